//! llama.cpp: the only module that calls it.
//!
//! Its C++ exceptions and failed assertions end the process, so any possible mistake of a file or a caller is checked
//! before: the GGUF in [`crate::models`], token ids and lengths here.

pub(crate) mod parallel;
mod threads;

pub(crate) use super::{LoadOptions, MAX_THREADS};

use self::parallel::Layout;
use super::vocabulary::{Vocabulary, Word};
use super::{Engine, ModelInfo, Token};
use crate::template::Piece;
use crate::{Error, ErrorKind, Result};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token_type::LlamaTokenAttr;
use std::cell::OnceCell;
use std::ffi::{CStr, c_char, c_void};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Maximum tokens decoded in one call. llama.cpp's own default for the physical batch.
const BATCH: usize = 512;
/// llama.cpp rounds contexts up to a multiple of this.
const CONTEXT_STEP: usize = 256;

/// Up to this many tokens the CPU computes attention in full. From 512 tokens on, flash attention divides a decoding
/// step among the threads, so that their number changes the result, and its speed was measured at 0.6. Beyond this
/// limit, the score matrices would take gigabytes.
const LONG_CONTEXT: usize = 16 * 1024;

const ONLY_VOCABULARY: &str = "only the vocabulary was loaded: there is nothing to decode with";

/// A loaded GGUF.
pub(crate) struct LlamaEngine {
    // Before `model`: fields drop in this order, and the context points into the model.
    context: Option<LlamaContext<'static>>,
    model: Arc<LlamaModel>,
    info: ModelInfo,
    options: LoadOptions,
    threads: usize,
    cached: Vec<Token>,
    pieces: Vec<OnceCell<Box<[u8]>>>,
    /// The rows of the last batch's tokens that have logits.
    rows: Vec<i32>,
}

impl LlamaEngine {
    /// Loads the GGUF at `path`, which must have passed `Gguf::check`.
    ///
    /// # Errors
    /// [`ErrorKind::Gguf`] with llama.cpp's message if it refuses the file.
    pub(crate) fn load(path: &Path, mut options: LoadOptions) -> Result<LlamaEngine> {
        let started = Instant::now();
        let backend = backend()?;
        if std::str::from_utf8(path.as_os_str().as_encoded_bytes()).is_err() {
            return Err(Error::new(ErrorKind::Gguf, format!("the path {} is not UTF-8", path.display())));
        }
        let mut params = LlamaModelParams::default().with_vocab_only(options.vocabulary_only);
        if let Some(layers) = options.gpu_layers {
            params = params.with_n_gpu_layers(layers);
        }
        if let Some(mut on_progress) = options.on_progress.take() {
            params = params.with_progress_callback(move |part| {
                on_progress(part);
                true
            });
        }
        let model = LlamaModel::load_from_file(backend, path, &params).map_err(|error| {
            Error::new(ErrorKind::Gguf, format!("llama.cpp cannot load {}: {}", path.display(), because(&error)))
                .hint("use -vv to see llama.cpp's messages while loading")
        })?;
        let info = describe(&model, path);
        let model = Arc::new(model);
        let threads = match options.threads {
            Some(threads) => threads.clamp(1, MAX_THREADS),
            None if options.vocabulary_only => 1,
            None => threads::measured(|threads| one_token_steps(&model, Layout::alone(threads))),
        };
        tracing::debug!(model = info.name, threads, cpu = cpu_features().join(" "), elapsed = ?started.elapsed(), "loaded");
        Ok(LlamaEngine::of(model, info, options, threads))
    }

    /// An engine for a loaded model, which other engines may share.
    fn of(model: Arc<LlamaModel>, info: ModelInfo, options: LoadOptions, threads: usize) -> LlamaEngine {
        let pieces = (0..model.n_vocab()).map(|_| OnceCell::new()).collect();
        LlamaEngine { context: None, model, info, options, threads, cached: Vec::new(), pieces, rows: Vec::new() }
    }

    /// An engine with a context of its own over the same weights.
    #[must_use]
    pub(crate) fn share(&self) -> LlamaEngine {
        let LoadOptions { context, threads, gpu_layers, vocabulary_only, .. } = self.options;
        let options = LoadOptions { context, threads, gpu_layers, vocabulary_only, on_progress: None };
        LlamaEngine::of(Arc::clone(&self.model), self.info.clone(), options, self.threads)
    }

    /// How many threads decode.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The number of contexts that can decode in parallel, each with one thread.
    fn contexts_at_a_time(&self) -> usize {
        let on_gpu = self.options.gpu_layers != Some(0) && has_gpu();
        if on_gpu || self.options.threads.is_some() {
            return 1;
        }
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn new_context(&mut self, tokens: usize) -> Result<()> {
        let context = create_context(&self.model, tokens, BATCH, Layout::alone(self.threads))?;
        // SAFETY: the context borrows the model, which lives in an `Arc` that is neither moved out nor replaced while
        // `self` lives, and `context` is declared before `model`, so that it is dropped first.
        self.context = Some(unsafe { std::mem::transmute::<LlamaContext<'_>, LlamaContext<'static>>(context) });
        self.cached.clear();
        self.rows.clear();
        Ok(())
    }

    /// Decodes at most [`BATCH`] tokens, with logits after those from the one numbered `first` on.
    fn decode_batch(&mut self, tokens: &[Token], first: usize) -> Result<()> {
        let error = |message: String| Err(Error::new(ErrorKind::Engine, message));
        let vocabulary = self.model.n_vocab();
        if let Some(stranger) = tokens.iter().find(|token| !(0..vocabulary).contains(&token.0)) {
            return error(format!("token {} is not in the vocabulary", stranger.0));
        }
        if self.options.vocabulary_only {
            return error(ONLY_VOCABULARY.to_owned());
        }
        let Some(context) = &mut self.context else {
            return error("nothing to decode into: no room was reserved".to_owned());
        };
        let (size, wanted) = (context.n_ctx() as usize, self.cached.len() + tokens.len());
        if wanted > size {
            // A larger context would be a new, empty one.
            return error(format!("{wanted} tokens do not fit into the {size} that were reserved"));
        }
        if tokens.len() > BATCH {
            return error(format!("{} tokens are more than the {BATCH} of one batch", tokens.len()));
        }
        let mut batch = LlamaBatch::new(tokens.len(), 1);
        self.rows.clear();
        for (i, token) in tokens.iter().enumerate() {
            let position = i32::try_from(self.cached.len() + i).unwrap_or(i32::MAX);
            let wanted = i >= first;
            batch.add(LlamaToken(token.0), position, &[0], wanted).map_err(engine_error)?;
            if wanted {
                self.rows.push(i32::try_from(i).unwrap_or(i32::MAX));
            }
        }
        if let Err(error) = context.decode(&mut batch) {
            context.clear_kv_cache();
            self.cached.clear();
            return Err(engine_error(error));
        }
        self.cached.extend_from_slice(tokens);
        Ok(())
    }

    fn plain_tokens(&self, text: &str, special: bool, into: &mut Vec<Token>) {
        let tokens = self.model.vocab().tokenize(text.as_bytes(), false, special);
        into.extend(tokens.iter().map(|token| Token(token.0)));
    }
}

impl Engine for LlamaEngine {
    fn model(&self) -> &ModelInfo {
        &self.info
    }

    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        let mut tokens = Vec::new();
        let vocab = self.model.vocab();
        let writes_bos =
            prompt.first().is_some_and(|p| !self.info.bos.is_empty() && p.text.starts_with(&self.info.bos));
        if vocab.should_add_bos() && !writes_bos && vocab.bos().0 >= 0 {
            tokens.push(Token(vocab.bos().0));
        }
        for piece in prompt {
            if !piece.literal {
                self.plain_tokens(&piece.text, true, &mut tokens);
                continue;
            }
            // llama.cpp recognises user-defined tokens even in plain text. Splitting after the first character prevents
            // this.
            let first = piece.text.chars().next().map_or(0, char::len_utf8);
            let (head, tail) = piece.text.split_at(first);
            self.plain_tokens(head, false, &mut tokens);
            self.plain_tokens(tail, false, &mut tokens);
        }
        Ok(tokens)
    }

    fn token_bytes(&self, token: Token) -> &[u8] {
        let Some(cell) = usize::try_from(token.0).ok().and_then(|index| self.pieces.get(index)) else { return b"" };
        cell.get_or_init(|| {
            let mut bytes = Vec::with_capacity(16);
            self.model.vocab().token_to_piece_into(LlamaToken(token.0), &mut bytes, true, None);
            bytes.into_boxed_slice()
        })
    }

    fn sibling(&self) -> Option<Box<dyn Engine>> {
        Some(Box::new(self.share()))
    }

    fn vocabulary(&self) -> Option<Vocabulary> {
        let vocab = self.model.vocab();
        let words = (0..self.model.n_vocab()).map(|index| {
            let token = LlamaToken(index);
            let attributes = vocab.attr(token);
            let markup = attributes.contains(LlamaTokenAttr::Control) || attributes.contains(LlamaTokenAttr::Unknown);
            let end = vocab.is_eog(token);
            Word { bytes: self.token_bytes(Token(index)).into(), control: markup || end, end }
        });
        let model = Arc::clone(&self.model);
        let tokenize = move |text: &[u8]| {
            let tokens = model.vocab().tokenize(text, false, false);
            tokens.iter().map(|token| Token(token.0)).collect()
        };
        Some(Vocabulary::new(words.collect(), Arc::new(tokenize)))
    }

    fn is_end(&self, token: Token) -> bool {
        (0..self.model.n_vocab()).contains(&token.0) && self.model.vocab().is_eog(LlamaToken(token.0))
    }

    fn reserve(&mut self, tokens: usize) -> Result<()> {
        if self.options.vocabulary_only {
            return Err(Error::new(ErrorKind::Engine, ONLY_VOCABULARY));
        }
        let size = self.context.as_ref().map_or(0, |context| context.n_ctx() as usize);
        if tokens <= size {
            return Ok(());
        }
        // A conversation that outgrows its context doubles it, so that few turns need a new one.
        let wanted = tokens.max(2 * size).min(self.context_limit().max(tokens));
        self.context = None;
        self.new_context(self.options.context.unwrap_or(wanted).max(tokens))
    }

    fn context_limit(&self) -> usize {
        self.options.context.unwrap_or(self.info.context_train)
    }

    fn cached(&self) -> &[Token] {
        &self.cached
    }

    fn truncate(&mut self, len: usize) {
        if len >= self.cached.len() {
            return;
        }
        let Some(context) = &mut self.context else { return };
        let from = u32::try_from(len).ok();
        // Recurrent models and sliding windows cannot drop a part of a sequence.
        let kept = if from.is_some_and(|from| context.kv_cache_seq_rm(0, Some(from), None).is_ok()) {
            len
        } else {
            context.clear_kv_cache();
            0
        };
        self.cached.truncate(kept);
    }

    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        for chunk in tokens.chunks(BATCH) {
            self.decode_batch(chunk, chunk.len() - 1)?;
        }
        Ok(())
    }

    fn can_draft(&self) -> bool {
        !self.model.is_recurrent() && !self.model.is_hybrid()
    }

    fn decode_all(&mut self, tokens: &[Token], first: usize) -> Result<()> {
        self.decode_batch(tokens, first)
    }

    fn logits_at(&self, index: usize) -> &[f32] {
        match (&self.context, self.rows.get(index)) {
            (Some(context), Some(row)) => context.get_logits_ith(*row),
            _ => &[],
        }
    }

    fn logits(&self) -> &[f32] {
        match &self.context {
            Some(context) if !self.cached.is_empty() => {
                self.rows.last().map_or(&[], |row| context.get_logits_ith(*row))
            }
            _ => &[],
        }
    }
}

/// The CPU features that llama.cpp was compiled to use, by its names: `AVX2`, `AMX_INT8` and so on.
pub(crate) fn cpu_features() -> Vec<String> {
    if backend().is_err() {
        return Vec::new();
    }
    // SAFETY: returns a pointer to a static string that the next call overwrites; it is copied at once, and the
    // backends that it queries are loaded.
    let text = unsafe { CStr::from_ptr(llama_cpp_sys_2::llama_print_system_info()) }.to_string_lossy();
    // One section per backend: `CPU : SSE3 = 1 | AVX2 = 1 | `.
    let cpu = text.split("CPU : ").nth(1).unwrap_or_default();
    let features = cpu.split('|').filter_map(|feature| feature.trim().strip_suffix(" = 1"));
    features.map(str::to_owned).collect()
}

/// Whether this build of llama.cpp can keep layers on a GPU.
pub(crate) fn has_gpu() -> bool {
    backend().is_ok_and(LlamaBackend::supports_gpu_offload)
}

/// What to do about a build that does not use this CPU's vector units, such as a generic build; `None` if it uses them.
pub(crate) fn slow_build_notice() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    {
        let compiled = cpu_features();
        let units = [
            ("AVX2", std::is_x86_feature_detected!("avx2")),
            ("AVX512", std::is_x86_feature_detected!("avx512f")),
            ("AVX512_VNNI", std::is_x86_feature_detected!("avx512vnni")),
        ];
        let unused: Vec<&str> = units
            .into_iter()
            .filter(|(name, there)| *there && !compiled.iter().any(|feature| feature == name))
            .map(|(name, _)| name)
            .collect();
        if !unused.is_empty() {
            // clang, because GCC 12 miscompiles AMX, which a native build would use.
            return Some(format!(
                "this build of llama.cpp does not use all vector units of the CPU ({} are left) and is slower than it \
                 could be; build it for this machine: `make install` in the repository, or CC=clang CXX=clang++ \
                 RUSTFLAGS=\"-C target-cpu=native\" cargo install callwright --force",
                unused.join(", ")
            ));
        }
    }
    None
}

fn backend() -> Result<&'static LlamaBackend> {
    static BACKEND: OnceLock<std::result::Result<LlamaBackend, String>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        // SAFETY: the callback is a static function that is safe to call from any thread.
        unsafe { llama_cpp_sys_2::llama_log_set(Some(log), std::ptr::null_mut()) };
        #[cfg(feature = "portable")]
        load_cpu_backends();
        LlamaBackend::init().map_err(|error| error.to_string())
    });
    backend.as_ref().map_err(|error| Error::new(ErrorKind::Engine, format!("llama.cpp does not start: {error}")))
}

/// Loads the backend library for this CPU: from the program's folder, where `make portable` puts all of them, or from
/// the build folder.
#[cfg(feature = "portable")]
fn load_cpu_backends() {
    use llama_cpp_2::llama_backend::{load_backends, load_backends_from_path};
    let program_folder = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let holds_backends = |folder: &Path| {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.into_iter().any(|name| name.to_string_lossy().contains("ggml-cpu-"))
    };
    match program_folder.filter(|folder| folder.to_str().is_some() && holds_backends(folder)) {
        Some(folder) => load_backends_from_path(&folder),
        None => load_backends(),
    }
}

static COMPLAINTS: Mutex<String> = Mutex::new(String::new());
/// Characters of messages to keep. The first message is the cause; the later ones come from its callers.
const COMPLAINTS_KEPT: usize = 400;

/// llama.cpp returns null or a number and logs the reason: keep it for the error message.
unsafe extern "C" fn log(level: llama_cpp_sys_2::ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that lives for the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let text = text.trim_end();
    if level == llama_cpp_sys_2::GGML_LOG_LEVEL_ERROR {
        let mut complaints = COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.len() + text.len() < COMPLAINTS_KEPT {
            if !complaints.is_empty() {
                complaints.push_str("; ");
            }
            complaints.push_str(text);
        }
    }
    tracing::debug!(target: "llama.cpp", "{text}");
}

/// llama.cpp's messages since the last call, or the binding's error if there are none.
fn because(error: &dyn std::error::Error) -> String {
    let complaints = std::mem::take(&mut *COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner));
    if complaints.is_empty() { error.to_string() } else { complaints }
}

fn engine_error(error: impl std::error::Error) -> Error {
    Error::new(ErrorKind::Engine, format!("llama.cpp failed while decoding: {}", because(&error)))
}

/// One of the contexts of `layout`, whose sequences have up to `tokens` each.
fn create_context(model: &LlamaModel, tokens: usize, batch: usize, layout: Layout) -> Result<LlamaContext<'_>> {
    let failed = |why: &str| {
        Error::new(ErrorKind::Engine, format!("llama.cpp cannot make a context of {tokens} tokens: {why}"))
            .hint("a smaller `LoadOptions::context` or `Options::max_tokens` needs less memory")
    };
    // llama.cpp takes 0 as the model's own size.
    let each = tokens.checked_next_multiple_of(CONTEXT_STEP);
    let size = each.and_then(|size| size.checked_mul(layout.each)).and_then(|size| u32::try_from(size).ok());
    let size = size.and_then(NonZeroU32::new).ok_or_else(|| failed("that is more than it can count"))?;
    let batch = u32::try_from(batch).unwrap_or(u32::MAX);
    let threads = i32::try_from(layout.threads).unwrap_or(i32::MAX);
    let flash_attention = if cfg!(any(feature = "cuda", feature = "metal", feature = "vulkan", feature = "rocm"))
        || tokens > LONG_CONTEXT
    {
        llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_AUTO
    } else {
        llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_DISABLED
    };
    let params = LlamaContextParams::default()
        .with_n_ctx(Some(size))
        .with_n_seq_max(u32::try_from(layout.each).unwrap_or(u32::MAX))
        .with_n_batch(batch)
        .with_n_ubatch(batch)
        .with_flash_attention_policy(flash_attention)
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    model.new_context(backend()?, params).map_err(|error| failed(&because(&error)))
}

/// A closure that decodes a token of each sequence of one context, and returns the time.
fn one_token_steps(model: &LlamaModel, layout: Layout) -> Option<impl FnMut() -> Option<std::time::Duration>> {
    let sequences = layout.each;
    let mut context = create_context(model, CONTEXT_STEP, sequences, layout).ok()?;
    let mut position = 0;
    Some(move || {
        let mut batch = LlamaBatch::new(sequences, 1);
        for sequence in 0..sequences {
            batch.add(LlamaToken(0), position, &[i32::try_from(sequence).ok()?], true).ok()?;
        }
        position += 1;
        let started = Instant::now();
        context.decode(&mut batch).ok()?;
        context.synchronize();
        Some(started.elapsed())
    })
}

fn describe(model: &LlamaModel, path: &Path) -> ModelInfo {
    let vocab = model.vocab();
    let text = |token: LlamaToken| match token.0 {
        0.. => vocab.text(token).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default(),
        _ => String::new(),
    };
    let mut templates = Vec::new();
    for index in 0..model.meta_count() {
        let Ok(key) = model.meta_key_by_index(index) else { continue };
        let name = match key.strip_prefix("tokenizer.chat_template") {
            Some("") => "default",
            Some(variant) => variant.trim_start_matches('.'),
            None => continue,
        };
        if let Ok(source) = model.meta_val_str_by_index(index) {
            templates.push((name.to_owned(), source));
        }
    }
    let marked = |attribute: LlamaTokenAttr| {
        let tokens = (0..model.n_vocab()).map(LlamaToken);
        tokens.filter(|token| vocab.attr(*token).contains(attribute)).map(text).collect()
    };
    let name = model.meta_val_str("general.name").ok().filter(|name| !name.is_empty());
    ModelInfo {
        name: name.unwrap_or_else(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned()),
        architecture: model.meta_val_str("general.architecture").unwrap_or_default(),
        templates,
        // llama.cpp invents a beginning token for vocabularies that have none.
        bos: model.meta_val_str("tokenizer.ggml.bos_token_id").map(|_| text(vocab.bos())).unwrap_or_default(),
        eos: text(vocab.eos()),
        context_train: model.n_ctx_train() as usize,
        control_tokens: marked(LlamaTokenAttr::Control),
        user_defined_tokens: marked(LlamaTokenAttr::UserDefined),
    }
}
