//! A model's weights, and the LoRA adapters that belong to each of its contexts.
//!
//! An adapter is loaded once, beside the weights. llama.cpp adds its product to that of the weights in each step, so that the
//! file of the model stays as it is, and several programs may share it.

use super::backend::{backend, because};
use crate::engine::LoraAdapter;
use crate::models::Gguf;
use crate::{Error, ErrorKind, Result};
use llama_cpp_2::model::LlamaModel;
use llama_cpp_sys_2 as sys;
use std::ffi::CString;
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;

/// A loaded model with its adapters.
pub(super) struct Weights {
    model: LlamaModel,
    /// They belong to the model, which frees them.
    adapters: Vec<NonNull<sys::llama_adapter_lora>>,
    scales: Vec<f32>,
}

// SAFETY: nothing changes an adapter once it is loaded; contexts only read it.
unsafe impl Send for Weights {}
// SAFETY: as above.
unsafe impl Sync for Weights {}

impl Deref for Weights {
    type Target = LlamaModel;

    fn deref(&self) -> &LlamaModel {
        &self.model
    }
}

impl Weights {
    /// The model with adapters, which must have passed [`check`].
    ///
    /// # Errors
    /// [`ErrorKind::Gguf`] with llama.cpp's message if it refuses one.
    pub(super) fn new(model: LlamaModel, adapters: &[LoraAdapter]) -> Result<Weights> {
        let mut weights = Weights { model, adapters: Vec::new(), scales: Vec::new() };
        backend()?;
        for LoraAdapter { file, scale } in adapters {
            let failed = |why: &str| {
                Error::new(ErrorKind::Gguf, format!("llama.cpp cannot load the LoRA adapter {}: {why}", file.display()))
            };
            let path = file.to_str().ok_or_else(|| failed("its path is not UTF-8"))?;
            let path = CString::new(path).map_err(|_| failed("its path has a NUL character"))?;
            // SAFETY: the model is not shared yet, and the path ends with a NUL. llama.cpp catches its own exceptions.
            let adapter = unsafe { sys::llama_adapter_lora_init(weights.raw(), path.as_ptr()) };
            let adapter = NonNull::new(adapter).ok_or_else(|| failed(&because("no reason given")))?;
            weights.adapters.push(adapter);
            weights.scales.push(*scale);
        }
        Ok(weights)
    }

    /// How many tokens layers with a sliding window look back; `None` if there are none, or if the model has recurrent layers, too.
    pub(super) fn window(&self) -> Option<usize> {
        // SAFETY: it reads a number of the model.
        let window = unsafe { sys::llama_model_n_swa(self.raw()) };
        let has_state = self.model.is_recurrent() || self.model.is_hybrid();
        usize::try_from(window).ok().filter(|window| *window > 0 && !has_state)
    }

    /// The pointer that the model is.
    pub(super) fn raw(&self) -> *mut sys::llama_model {
        const { assert!(size_of::<LlamaModel>() == size_of::<*mut sys::llama_model>()) };
        // SAFETY: `LlamaModel` is a transparent wrapper of this pointer, in the one version of llama-cpp-2 that Cargo.toml
        // allows.
        unsafe { std::mem::transmute_copy(&self.model) }
    }

    /// Adds the adapters to a new context of the model.
    pub(super) fn adapt(&self, context: NonNull<sys::llama_context>) {
        if self.adapters.is_empty() {
            return;
        }
        let (mut adapters, mut scales) =
            (self.adapters.iter().map(|adapter| adapter.as_ptr()).collect::<Vec<_>>(), self.scales.clone());
        // SAFETY: both lists have as many elements as is said, and llama.cpp copies them. The adapters live as long as the
        // model, which the context keeps.
        unsafe {
            sys::llama_set_adapters_lora(context.as_ptr(), adapters.as_mut_ptr(), adapters.len(), scales.as_mut_ptr());
        }
    }
}

/// Loads weights that stay in the mapped file. Otherwise llama.cpp copies many of them, in an order that is faster to compute with, into
/// memory that the system cannot take back. llama-cpp-2 has no way to say so. `None` if it refuses the file.
pub(super) fn in_place(path: &Path) -> Option<LlamaModel> {
    let path = CString::new(path.to_str()?).ok()?;
    // SAFETY: a function without arguments that returns a struct.
    let mut params = unsafe { sys::llama_model_default_params() };
    (params.n_gpu_layers, params.use_extra_bufts) = (0, false);
    // SAFETY: the path ends with a NUL. llama.cpp catches its own exceptions.
    let model = NonNull::new(unsafe { sys::llama_model_load_from_file(path.as_ptr(), params) })?;
    const { assert!(size_of::<LlamaModel>() == size_of::<NonNull<sys::llama_model>>()) };
    // SAFETY: `LlamaModel` is a transparent wrapper of this pointer, as in `Weights::raw`, and frees it.
    Some(unsafe { std::mem::transmute::<NonNull<sys::llama_model>, LlamaModel>(model) })
}

/// Checks that the adapters are adapters for the model at `path`: llama.cpp would abort over some that are not.
///
/// # Errors
/// [`ErrorKind::Gguf`] with the reason, [`ErrorKind::Io`] if a file cannot be read.
pub(super) fn check(adapters: &[LoraAdapter], path: &Path) -> Result<()> {
    if adapters.is_empty() {
        return Ok(());
    }
    let model = Gguf::open(path)?;
    for LoraAdapter { file, scale } in adapters {
        if !scale.is_finite() {
            return Err(Error::new(
                ErrorKind::Config,
                format!("the scale of {} is no number: {scale}", file.display()),
            ));
        }
        Gguf::open(file)?.check_adapter(&model)?;
    }
    Ok(())
}

/// Returns what a state depends on because of the adapters, and empty without any; `None` if a file cannot be read.
pub(super) fn fingerprint(adapters: &[LoraAdapter]) -> Option<String> {
    let one = |adapter: &LoraAdapter| {
        Some(format!(" lora {} {}", crate::cache::fingerprint(&adapter.file).ok()?, adapter.scale))
    };
    adapters.iter().filter(|adapter| adapter.scale != 0.0).map(one).collect()
}
