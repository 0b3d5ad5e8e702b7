//! What of a model goes onto a GPU: llama.cpp's own estimate, which is in its library `common`.

use super::backend::because;
use crate::engine::{CacheType, LoadOptions};
use llama_cpp_2::context::params::{KvCacheType, LlamaContextParams};
use llama_cpp_2::max_devices;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_sys_2 as sys;
use std::ffi::CString;
use std::num::NonZeroU32;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

/// Bytes of each GPU's memory that are left free, as llama.cpp's programs leave them.
const LEFT: usize = 1 << 30;
/// Layers leave the GPU where a context of so many tokens would not fit otherwise.
const LEAST: u32 = 4096;
/// llama.cpp changes where all its messages go while it estimates.
static FITTING: Mutex<()> = Mutex::new(());

/// Chooses how many layers go onto the GPU and how many tokens of context there are, where they are not given. Fewer bits for the KV cache are
/// chosen where more layers fit with them.
pub(super) fn on_gpu(path: &Path, options: &mut LoadOptions, params: &mut LlamaModelParams) {
    if options.no_fit || options.vocabulary_only || options.gpu_layers.is_some() || !options.is_on_gpu() {
        return;
    }
    let Some(path) = path.to_str().and_then(|path| CString::new(path).ok()) else { return };
    let _fitting = FITTING.lock().unwrap_or_else(PoisonError::into_inner);
    let all = params.n_gpu_layers();
    let layers =
        |params: &LlamaModelParams| if params.n_gpu_layers() == all { i32::MAX } else { params.n_gpu_layers() };
    let given = (options.cache_type_k, options.cache_type_v);
    let smaller = (given == (None, None)).then_some((Some(CacheType::Q8_0), Some(CacheType::Q8_0)));
    let mut chosen: Option<(LlamaModelParams, _, u32)> = None;
    for types in std::iter::once(given).chain(smaller) {
        let kind = |kind: Option<CacheType>| KvCacheType::from(kind.unwrap_or_default().ggml());
        let context = options.context.and_then(|context| NonZeroU32::new(u32::try_from(context).ok()?));
        let mut context =
            LlamaContextParams::default().with_n_ctx(context).with_type_k(kind(types.0)).with_type_v(kind(types.1));
        let mut tried = LlamaModelParams::default().with_use_mmap(params.use_mmap()).with_use_mlock(params.use_mlock());
        let mut left = vec![LEFT; max_devices()];
        let level = sys::GGML_LOG_LEVEL_ERROR;
        if let Ok(fitted) = Pin::new(&mut tried).fit_params(&path, &mut context, &mut left, LEAST, level) {
            let (room, more) = (fitted.n_ctx, layers(&tried));
            if chosen.as_ref().is_none_or(|(before, ..)| layers(before) < more) {
                chosen = Some((tried, types, room));
            }
            if more == i32::MAX {
                break;
            }
        }
    }
    // What it has to say about a size that does not fit is not the reason of a later error.
    let _ = because("");
    let Some((fitted, types, room)) = chosen else { return };
    let name =
        |kind: Option<CacheType>| serde_json::json!(kind.unwrap_or_default()).as_str().unwrap_or_default().to_owned();
    let tensors = match fitted.tensor_buft_override_patterns().len() {
        0 => String::new(),
        some => format!(", and tensors of {some} kinds in the main memory, which only --fit does"),
    };
    let count = if layers(&fitted) == i32::MAX { "all".to_owned() } else { fitted.n_gpu_layers().to_string() };
    let line = format!(
        "fits the GPU's free memory: --gpu-layers {count} --ctx {room} --cache-type-k {} --cache-type-v {}{tensors}",
        name(types.0),
        name(types.1)
    );
    if count == "all" {
        tracing::info!("{line}")
    } else {
        tracing::warn!("{line}")
    }
    (options.cache_type_k, options.cache_type_v) = types;
    options.room = options.room.or(usize::try_from(room).ok());
    *params = fitted;
}
