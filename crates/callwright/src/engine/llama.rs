//! llama.cpp: the only module that calls it.
//!
//! Its C++ exceptions and failed assertions end the process, so any possible mistake of a file or a caller is checked
//! before: the GGUF in [`crate::models`], token ids and lengths here.

mod backend;
mod context;
mod embed;
mod fit;
mod layout;
pub mod parallel;
pub mod quantize;
mod state;
mod threads;
mod weights;
mod words;

pub use self::backend::{cpu_features, exit_now, gpu_devices, has_gpu, leave, report_failures, slow_build_notice};
pub use self::embed::Embedder;
pub use self::threads::measured_counts;
pub use super::{LoadOptions, MAX_THREADS};

use self::backend::{backend, because};
use self::context::{Context, Pool, Shape};
use self::layout::{Layout, steps};
use self::threads::Threads;
use self::weights::Weights;
use self::words::Words;
use super::prompt_cache::{
    Checkpoint, Checkpoints, Disk, Entry, Outline, PROMPT_BLOCK, PromptCache, Reading, WORTH, Wanted, alike, not_before,
};
use super::sampler::Sampling;
use super::vocabulary::ReadVocabulary;
use super::{Abilities, CacheType, Engine, FlashAttention, ModelInfo, Prompt, Token, common};
use crate::setting::Setting;
use crate::template::Piece;
use crate::{Error, ErrorKind, Result};
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_sys_2 as sys;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum tokens decoded in one call. llama.cpp's own default for the physical batch.
const BATCH: usize = 512;

/// Up to this many tokens the CPU computes attention in full while it decodes an answer. Flash attention divides such a step
/// among the threads from 512 tokens on, so that their number changes the result, and its speed was measured at 0.4.
/// Beyond this limit, the score matrices would take gigabytes.
const LONG_CONTEXT: usize = 16 * 1024;
/// In a context of up to so many tokens, flash attention does not divide a step among the threads either, and it leaves out the
/// cells that are still empty, which full attention does not: a step was measured at 0.95 of the time.
const SHORT_CONTEXT: usize = 256;
/// From this many tokens at a time on, a prompt is read with flash attention: up to twice as fast.
const FLASH_FROM: usize = 128;
/// Space for up to this many tokens of an answer is made when they come: most answers are short, and clearing it takes longer than
/// their first token.
const LATER: usize = 1024;
/// Each step of a model smaller than this is over before a second thread has begun, and a prompt before it has moved to
/// another context.
const SMALL: u64 = 32 << 20;
/// Checkpoints are so many tokens apart on a GPU, which reads as many while it copies one, and on the CPU.
const APART: (usize, usize) = (64, 8);
/// A model with sliding windows goes back within an answer if it keeps so many tokens more than a window.
const GO_BACK: usize = 128;
/// The version of llama.cpp's package, which what is kept on disk belongs to.
const LLAMA: &str = "0.1.161";

const ONLY_VOCABULARY: &str = "only the vocabulary was loaded: there is nothing to decode with";

/// A loaded GGUF.
pub struct LlamaEngine {
    context: Option<Context>,
    /// Where a long prompt is read. While it is there, it has the sequence, and `context` is empty.
    flash: Option<Context>,
    /// Whether sequences can move between the two.
    can_move: bool,
    model: Arc<Weights>,
    words: Words,
    options: LoadOptions,
    threads: Arc<Threads>,
    cached: Vec<Token>,
    /// How many tokens may come in total.
    most: usize,
    /// The rows of the last batch's tokens that have logits.
    rows: Vec<usize>,
    /// What was read of earlier prompts, by any engine of the model.
    prompts: Option<Arc<PromptCache>>,
    /// How many of the tokens were read as flash attention reads a prompt.
    read_with_flash: usize,
    /// How many of the tokens were decoded in a short context. A sequence that begins with such tokens is not kept for other
    /// prompts: a longer one reads them in another way, and would have another answer with the cache than without.
    short: usize,
    /// Whether the rest of the prompt is read with flash attention though it is short, as without a cache.
    goes_on: bool,
    /// How much of the prompt of a hybrid is read with flash attention.
    border: usize,
    /// Where a model that cannot truncate can go back to.
    checkpoints: Checkpoints,
    /// Where the last question of the next prompt is.
    question: usize,
    /// The threads of all its contexts.
    pool: Pool,
}

impl LlamaEngine {
    /// Starts llama.cpp, which loading does otherwise. Loading also returns the error, if there is one.
    pub fn start() {
        let _ = backend();
    }

    /// Loads the GGUF at `path`, which must have passed `Gguf::check`.
    ///
    /// # Errors
    /// [`ErrorKind::Gguf`] with llama.cpp's message if it refuses the file.
    pub(crate) fn load(path: &Path, mut options: LoadOptions) -> Result<LlamaEngine> {
        let started = Instant::now();
        let model = open(path, &mut options)?;
        let info = words::describe(&model, path);
        let threads = Threads::new(&info, model.size(), &options);
        // Without weights there is nothing that they change.
        let adapters = if options.vocabulary_only { &[][..] } else { &options.lora };
        let model = Arc::new(Weights::new(model, adapters)?);
        let prompts = prompts(path, &info, &options, can_truncate(&model));
        let (name, seconds, count) = (&info.name, started.elapsed().as_secs_f64(), threads.decode());
        match options.vocabulary_only {
            true => tracing::debug!("loaded the vocabulary of {name} in {seconds:.2} s"),
            false => tracing::info!("loaded {name} in {seconds:.2} s; threads: {count}"),
        }
        tracing::debug!("llama.cpp uses {}", cpu_features().join(" "));
        Ok(LlamaEngine { prompts, ..LlamaEngine::of(model, info, options, Arc::new(threads)) })
    }

    /// An engine for a loaded model, which other engines may share.
    fn of(model: Arc<Weights>, info: ModelInfo, options: LoadOptions, threads: Arc<Threads>) -> LlamaEngine {
        LlamaEngine {
            context: None,
            flash: None,
            can_move: moves(&model, &options),
            words: Words::new(Arc::clone(&model), info),
            model,
            options,
            threads,
            cached: Vec::new(),
            most: 0,
            rows: Vec::new(),
            prompts: None,
            read_with_flash: 0,
            short: 0,
            goes_on: false,
            border: 0,
            checkpoints: Checkpoints::default(),
            question: 0,
            pool: Pool::default(),
        }
    }

    /// An engine with a context of its own over the same weights.
    #[must_use]
    pub(crate) fn share(&self) -> LlamaEngine {
        let (model, threads) = (Arc::clone(&self.model), Arc::clone(&self.threads));
        let other = LlamaEngine::of(model, self.words.info.clone(), self.options.again(), threads);
        LlamaEngine { prompts: self.prompts.clone(), ..other }
    }

    /// How many threads decode.
    pub(crate) fn threads(&self) -> usize {
        self.threads.decode()
    }

    fn new_context(&self, tokens: usize, flash_attention: sys::llama_flash_attn_type) -> Result<Context> {
        let began = Instant::now();
        let (threads, prompt_threads) = (self.threads.decode(), self.threads.prompt());
        let shape = Shape { tokens, sequences: 1, threads, prompt_threads, flash_attention, embeds: None };
        let made = Context::new(&self.model, shape, &self.options, &self.pool);
        tracing::debug!(tokens, flash_attention, elapsed = ?began.elapsed(), "made a context");
        made
    }

    /// A context for answers, with the faster kind of attention.
    fn context_for(&mut self, tokens: usize) -> Result<Context> {
        let kind = self.options.flash_attention(tokens.max(self.most));
        if self.can_move
            && !has_state(&self.model)
            && tokens <= SHORT_CONTEXT
            && kind == sys::LLAMA_FLASH_ATTN_TYPE_DISABLED
        {
            match self.new_context(tokens, sys::LLAMA_FLASH_ATTN_TYPE_ENABLED) {
                Ok(context) => return Ok(context),
                Err(_) => self.can_move = false,
            }
        }
        self.new_context(tokens, kind)
    }

    /// Returns whether the sequence is in a short context with flash attention.
    fn is_short(&self) -> bool {
        let is_short = |context: &Context| context.is_flash_attention() && context.room() <= SHORT_CONTEXT;
        self.can_move && self.context.as_ref().is_some_and(is_short)
    }

    /// The context that has the sequence.
    fn current(&mut self) -> Option<&mut Context> {
        self.flash.as_mut().or(self.context.as_mut())
    }

    /// The sequence's state; `None` if there is none, or it cannot be written.
    fn state(&mut self) -> Option<Vec<u8>> {
        if self.cached.is_empty() { None } else { self.current()?.state(0) }
    }

    /// Goes on with a state, or with nothing if that is impossible.
    fn set_state(&mut self, tokens: &[Token], flash: usize, state: &[u8]) {
        self.flash = None;
        let checkpoints = std::mem::take(&mut self.checkpoints);
        self.forget();
        if self.context.as_mut().is_some_and(|context| context.set_state(0, state)) {
            self.cached.extend_from_slice(tokens);
            self.read_with_flash = flash;
            self.checkpoints = checkpoints;
        }
    }

    /// Goes on with flash attention; returns whether that is possible.
    fn set_flash_state(&mut self, entry: &Entry) -> bool {
        let Ok(mut flash) = self.new_context(self.room(), sys::LLAMA_FLASH_ATTN_TYPE_ENABLED) else { return false };
        if !flash.set_state(0, &entry.state) {
            return false;
        }
        if let Some(context) = &mut self.context {
            context.clear();
        }
        self.forget();
        self.flash = Some(flash);
        self.cached.extend_from_slice(&entry.tokens);
        self.checkpoints = Checkpoints::of(&entry.checkpoints);
        self.read_with_flash = entry.flash;
        true
    }

    /// How many of the first `len` tokens it can go on from.
    fn reach(&self, len: usize) -> usize {
        let context = self.flash.as_ref().or(self.context.as_ref());
        let can = !has_state(&self.model) && context.is_none_or(|context| context.can_truncate(0, len));
        if can { len } else { self.checkpoints.reach(self.cached.len(), len) }
    }

    /// Nothing is in the context any more.
    fn forget(&mut self) {
        self.rows.clear();
        self.cached.clear();
        self.checkpoints.clear();
        (self.read_with_flash, self.short) = (0, 0);
    }

    /// Moves the sequence to where `tokens` more are decoded the fastest.
    fn move_for(&mut self, tokens: usize) {
        if tokens < PROMPT_BLOCK {
            // The prompt is read.
            self.goes_on = false;
        }
        let began = Instant::now();
        let Some(context) = self.context.as_mut().filter(|_| self.can_move) else { return };
        let enough = if self.goes_on { PROMPT_BLOCK } else { FLASH_FROM };
        let (there, back) = match has_state(&self.model) {
            true => (self.cached.len() < self.border, self.cached.len() >= self.border),
            false => (tokens >= enough, tokens < PROMPT_BLOCK),
        };
        if self.flash.is_none() && there && context.is_full_attention() {
            let room = context.room();
            let state = self.state();
            // Without memory for a second context, the first one does.
            let Ok(mut flash) = self.new_context(room, sys::LLAMA_FLASH_ATTN_TYPE_ENABLED) else {
                self.can_move = false;
                return;
            };
            if self.cached.is_empty() || state.is_some_and(|state| flash.take_state(0, state)) {
                self.flash = Some(flash);
                tracing::debug!(tokens = self.cached.len(), elapsed = ?began.elapsed(), "moved the sequence to flash attention");
            } else {
                self.can_move = false;
            }
        } else if back && let Some(mut flash) = self.flash.take() {
            let state = flash.state(0);
            let moved = self.context.as_mut().zip(state).is_some_and(|(context, state)| context.take_state(0, state));
            tracing::debug!(tokens = self.cached.len(), moved, elapsed = ?began.elapsed(), "moved the sequence out of flash attention");
            if !moved {
                // Then it stays where it is.
                self.can_move = false;
                self.context = Some(flash);
            }
        }
    }

    /// The number of tokens that the context has room for.
    fn room(&self) -> usize {
        self.context.as_ref().map_or(0, Context::room)
    }

    /// Makes room for tokens that were announced, with all that is decoded kept.
    fn grow(&mut self, tokens: usize) -> Result<()> {
        let before = self.cached.clone();
        self.reserve(tokens, self.most)?;
        // Where the state could not be moved, it is computed again.
        let lost = self.cached.len().min(before.len());
        before[lost..].chunks(self.batch()).try_for_each(|chunk| self.decode_batch(chunk, chunk.len()))
    }

    /// Tokens of a prompt that are decoded at a time.
    fn batch(&self) -> usize {
        self.options.batch.unwrap_or(BATCH)
    }

    /// Decodes tokens of at most one batch, with logits after those from the one numbered `first` on.
    fn decode_batch(&mut self, tokens: &[Token], first: usize) -> Result<()> {
        let error = |message: String| Err(Error::new(ErrorKind::Engine, message));
        let vocabulary = self.model.n_vocab();
        if let Some(stranger) = tokens.iter().find(|token| !(0..vocabulary).contains(&token.0)) {
            return error(format!("token {} is not in the vocabulary", stranger.0));
        }
        if self.options.vocabulary_only {
            return error(ONLY_VOCABULARY.to_owned());
        }
        let (batch, wanted) = (self.batch().max(BATCH), self.cached.len() + tokens.len());
        if wanted > self.room() && wanted <= self.most {
            self.grow(wanted)?;
        }
        self.move_for(tokens.len());
        let Some(context) = self.flash.as_mut().or(self.context.as_mut()) else {
            return error("nothing to decode into: no room was reserved".to_owned());
        };
        let size = context.room();
        if wanted > size {
            return error(format!("{wanted} tokens do not fit into the {size} that were reserved"));
        }
        if tokens.len() > batch {
            return error(format!("{} tokens are more than the {batch} of one batch", tokens.len()));
        }
        self.rows.clear();
        for (i, token) in tokens.iter().enumerate() {
            context.add(*token, self.cached.len() + i, 0, i >= first);
        }
        self.rows.extend(first..tokens.len());
        let flash = !context.is_full_attention() && tokens.len() >= PROMPT_BLOCK;
        if let Err(error) = context.decode() {
            context.clear();
            self.forget();
            return Err(error);
        }
        let whole = self.read_with_flash == self.cached.len();
        self.cached.extend_from_slice(tokens);
        if flash && whole {
            self.read_with_flash = self.cached.len();
        }
        if self.is_short() {
            self.short = self.cached.len();
        }
        Ok(())
    }
}

impl Engine for LlamaEngine {
    fn model(&self) -> &ModelInfo {
        &self.words.info
    }

    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        Ok(self.words.tokenize(prompt))
    }

    fn token_bytes(&self, token: Token) -> &[u8] {
        self.words.bytes(token)
    }

    fn longest_token(&self) -> Option<usize> {
        self.words.longest()
    }

    fn vocabulary(&self) -> Option<ReadVocabulary> {
        Some(Box::new(self.words.vocabulary()))
    }

    fn is_end(&self, token: Token) -> bool {
        self.words.is_end(token)
    }

    fn reserve(&mut self, now: usize, most: usize) -> Result<()> {
        if self.options.vocabulary_only {
            return Err(Error::new(ErrorKind::Engine, ONLY_VOCABULARY));
        }
        self.most = most;
        let later = if self.options.is_on_gpu() { 0 } else { LATER };
        let tokens = now.max(most.saturating_sub(later));
        let size = self.room();
        if tokens <= size {
            return Ok(());
        }
        // A conversation that outgrows its context doubles it, so that few turns need a new one.
        let wanted = tokens.max(2 * size).min(self.context_limit().max(tokens));
        let size = self.options.context.unwrap_or(wanted).max(tokens);
        let (state, flash, cached) = (self.state(), self.read_with_flash, std::mem::take(&mut self.cached));
        let (short, checkpoints) = (self.short, std::mem::take(&mut self.checkpoints));
        self.forget();
        // First, so that both need not fit into memory.
        (self.context, self.flash) = (None, None);
        self.context = Some(self.context_for(size)?);
        if let Some(state) = state {
            self.checkpoints = checkpoints;
            self.set_state(&cached, flash, &state);
            self.short = short.min(self.cached.len());
        }
        Ok(())
    }

    fn context_limit(&self) -> usize {
        self.options.limit(&self.words.info, 1)
    }

    fn cached(&self) -> &[Token] {
        &self.cached
    }

    fn truncate(&mut self, len: usize) {
        if len >= self.cached.len() {
            return;
        }
        let checkpoint = self.checkpoints.last(len).cloned();
        let Some(context) = self.current() else { return };
        let kept = match checkpoint {
            _ if context.truncate(0, len) => len,
            Some(checkpoint) if context.go_back(0, &checkpoint) => checkpoint.at,
            // Recurrent models cannot drop a part of a sequence.
            _ => 0,
        };
        if kept == 0 {
            context.clear();
        }
        self.cached.truncate(kept);
        self.checkpoints.truncate(kept);
        self.read_with_flash = self.read_with_flash.min(kept);
        self.short = self.short.min(kept);
    }

    fn begin(&mut self, prompt: Prompt<'_>, _sampling: &Sampling) -> Result<()> {
        self.question = prompt.question;
        Ok(())
    }

    fn recall(&mut self, prompt: &[Token], most: usize) {
        self.goes_on = false;
        let question = std::mem::take(&mut self.question);
        let mut shared = common(&self.cached, prompt);
        let hybrid = has_state(&self.model);
        self.border = if hybrid && self.can_move { self.words.border(prompt) } else { 0 };
        let same = alike(shared.min(most), self.read_with_flash, self.border);
        let Some(prompts) = self.prompts.clone() else {
            if hybrid {
                self.truncate(not_before(self.border, same, |len| len));
            }
            return;
        };
        if self.short == 0 && self.cached.len() >= shared + WORTH {
            let (context, cached) = (self.flash.as_mut().or(self.context.as_mut()), &self.cached);
            prompts.keep(cached, self.read_with_flash, self.checkpoints.kept(), || context?.state(0));
        }
        if self.is_short() {
            return;
        }
        if self.short > 0 && shared <= SHORT_CONTEXT && most >= shared + FLASH_FROM {
            // The little that it saves would keep a long prompt out of the cache.
            self.truncate(0);
            shared = 0;
        }
        let can_truncate = can_truncate(&self.model);
        let mut have = match hybrid {
            true => not_before(self.border, self.reach(same), |len| self.reach(len)),
            false => self.reach(shared.min(most)),
        };
        let full = self.context.as_ref().is_none_or(Context::is_full_attention);
        let flash = !hybrid && (!full || (self.can_move && most >= FLASH_FROM));
        let reading = match flash {
            // Its checkpoints divide the rest of a prompt into pieces of any length.
            _ if hybrid => Reading::Until(self.border),
            true => Reading::Flash,
            false => Reading::Full,
        };
        if let Some((gain, entry)) = prompts.find(Wanted { prompt, have, most, reading })
            && entry.tokens.len() <= self.most
            && self.reserve(entry.tokens.len(), self.most).is_ok()
        {
            self.goes_on = flash && gain < most;
            if !(self.goes_on && full && self.set_flash_state(&entry)) {
                self.checkpoints = Checkpoints::of(&entry.checkpoints);
                self.set_state(&entry.tokens, entry.flash, &entry.state);
            }
            self.truncate(gain);
            have = self.cached.len();
        } else if hybrid {
            self.truncate(have);
        }
        if !can_truncate {
            let known = prompts.known(prompt).max(shared).min(most);
            self.checkpoints.plan(&outline(&self.words, &self.options, prompt, known, question), have);
        }
    }

    fn border(&self) -> usize {
        self.border
    }

    fn remember(&mut self, reading: Duration) {
        let context = self.flash.as_ref().or(self.context.as_ref());
        let checkpoints = self.checkpoints.for_disk(self.cached.len());
        let bytes = || context.map_or(0, |context| context.state_size(0) + Checkpoint::bytes(&checkpoints));
        if let Some(prompts) = self.prompts.clone()
            && self.short == 0
            && prompts.is_worth_writing(&self.cached, reading, bytes)
            && let Some(state) = self.state()
        {
            prompts.write(&self.cached, self.read_with_flash, &checkpoints, state);
        }
        let (model, options) = (&self.model, &self.options);
        let found = self.threads.measure(|threads| steps(model, Layout::alone(threads), options, &[1]));
        if let (Some(threads), Some(context)) = (found, &mut self.context) {
            context.set_threads(threads);
        }
    }

    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        let mut rest = tokens;
        // A checkpoint divides them, which must not change how they are read.
        self.move_for(tokens.len());
        while !rest.is_empty() {
            let small = has_state(&self.model) && self.cached.len() >= self.border;
            let least = if self.can_move && !small { PROMPT_BLOCK } else { 1 };
            let count = rest.len().min(self.batch());
            let count = self.checkpoints.ahead(self.cached.len(), count, least).unwrap_or(count);
            self.decode_batch(&rest[..count], count - 1)?;
            rest = &rest[count..];
            if self.checkpoints.is_planned(self.cached.len())
                && let Some(prompts) = self.prompts.clone()
                && let Some(state) = self.current().and_then(|context| context.checkpoint(0))
            {
                self.checkpoints.push(self.cached.len(), state, &prompts);
            }
        }
        Ok(())
    }

    fn can(&self) -> Abilities {
        let can = goes_back(&self.model, &self.options);
        Abilities { truncate: can, go_back: can, draft: can }
    }

    fn decode_all(&mut self, tokens: &[Token], first: usize) -> Result<()> {
        self.decode_batch(tokens, first)
    }

    fn logits(&self, row: usize) -> &[f32] {
        match (self.flash.as_ref().or(self.context.as_ref()), self.rows.get(row)) {
            (Some(context), Some(row)) if !self.cached.is_empty() => context.logits(*row),
            _ => &[],
        }
    }
}

impl LoadOptions {
    /// The most tokens of each of several sequences: what was asked for, or what the model was trained for and the memory has room for.
    fn limit(&self, model: &ModelInfo, sequences: usize) -> usize {
        let room = self.room.map_or(usize::MAX, |room| room / sequences);
        self.context.unwrap_or(model.context_train.min(room))
    }

    /// llama.cpp's flash attention in contexts of so many tokens that decode answers.
    fn flash_attention(&self, tokens: usize) -> sys::llama_flash_attn_type {
        // Values of fewer bits need flash attention.
        let whole = matches!(self.cache_type_v, None | Some(CacheType::F16 | CacheType::F32 | CacheType::Bf16));
        match self.flash_attention {
            FlashAttention::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            _ if !whole || tokens > LONG_CONTEXT => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            FlashAttention::Auto if self.is_on_gpu() => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            _ => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
        }
    }
}

impl CacheType {
    fn ggml(self) -> sys::ggml_type {
        match self {
            CacheType::F32 => sys::GGML_TYPE_F32,
            CacheType::F16 => sys::GGML_TYPE_F16,
            CacheType::Bf16 => sys::GGML_TYPE_BF16,
            CacheType::Q8_0 => sys::GGML_TYPE_Q8_0,
            CacheType::Q5_1 => sys::GGML_TYPE_Q5_1,
            CacheType::Q5_0 => sys::GGML_TYPE_Q5_0,
            CacheType::Q4_1 => sys::GGML_TYPE_Q4_1,
            CacheType::Q4_0 => sys::GGML_TYPE_Q4_0,
            CacheType::Iq4Nl => sys::GGML_TYPE_IQ4_NL,
        }
    }
}

/// Reads the weights at `path`.
///
/// # Errors
/// [`ErrorKind::Gguf`] with llama.cpp's message if it refuses the file.
fn open(path: &Path, options: &mut LoadOptions) -> Result<LlamaModel> {
    let backend = backend()?;
    if std::str::from_utf8(path.as_os_str().as_encoded_bytes()).is_err() {
        return Err(Error::new(ErrorKind::Gguf, format!("the path {} is not UTF-8", path.display())));
    }
    weights::check(&options.lora, path)?;
    let mut params = LlamaModelParams::default()
        .with_vocab_only(options.vocabulary_only)
        .with_use_mmap(!options.no_mmap)
        .with_use_mlock(options.mlock);
    fit::on_gpu(path, options, &mut params);
    if let Some(layers) = options.gpu_layers {
        params = params.with_n_gpu_layers(layers);
    }
    if let Some(mut on_progress) = options.on_progress.take() {
        params = params.with_progress_callback(move |part| {
            on_progress(part);
            true
        });
    }
    if options.from_file && !options.vocabulary_only {
        return weights::in_place(path).ok_or_else(|| {
            let why = because("no reason given");
            Error::new(ErrorKind::Gguf, format!("llama.cpp cannot load {}: {why}", path.display()))
        });
    }
    LlamaModel::load_from_file(backend, path, &params).map_err(|error| {
        let why = because(&error.to_string());
        Error::new(ErrorKind::Gguf, format!("llama.cpp cannot load {}: {why}", path.display()))
            .hint(match options.is_on_gpu() {
                true => format!(
                    "if the GPU's memory is too small, a smaller {} helps; -vv shows llama.cpp's messages while loading",
                    Setting::GpuLayers
                ),
                false => "use -vv to see llama.cpp's messages while loading".to_owned(),
            })
    })
}

/// Returns whether long prompts are read in another context than answers.
fn moves(model: &Weights, options: &LoadOptions) -> bool {
    // Only for these types is flash attention the faster one: with 8 bits it takes four times as long.
    let (keys, values) = (options.cache_type_k.unwrap_or_default(), options.cache_type_v.unwrap_or_default());
    let fast = keys == values && matches!(keys, CacheType::F16 | CacheType::F32);
    options.flash_attention == FlashAttention::Auto && fast && model.size() >= SMALL && !model.is_recurrent()
}

/// Returns whether a sequence of the model can drop any number of its last tokens.
fn can_truncate(model: &Weights) -> bool {
    !has_state(model) && model.window().is_none()
}

/// Returns whether it can drop some of those that were decoded last.
fn goes_back(model: &Weights, options: &LoadOptions) -> bool {
    let spare = |window| context::cells(window, options.batch.unwrap_or(BATCH)) - window;
    !has_state(model) && model.window().is_none_or(|window| spare(window) >= GO_BACK)
}

/// Returns whether the model has a state of one size for all tokens that it has read.
fn has_state(model: &LlamaModel) -> bool {
    model.is_recurrent() || model.is_hybrid()
}

/// Where a prompt may have checkpoints.
fn outline(words: &Words, options: &LoadOptions, prompt: &[Token], known: usize, question: usize) -> Outline {
    let on_gpu = options.is_on_gpu();
    let apart = if on_gpu { APART.0 } else { APART.1 };
    Outline { tokens: prompt.len(), messages: words.messages(prompt), known, question, apart, whole: !on_gpu }
}

/// Returns what was read of earlier prompts, if the options keep any.
fn prompts(path: &Path, info: &ModelInfo, options: &LoadOptions, can_truncate: bool) -> Option<Arc<PromptCache>> {
    if options.vocabulary_only || (options.prompt_cache.is_none() && options.prompt_memory == 0) {
        return None;
    }
    // All that a state depends on.
    let gpu = options.is_on_gpu().then_some(options.gpu_layers);
    let cell = (
        options.cache_type_k.unwrap_or_default(),
        options.cache_type_v.unwrap_or_default(),
        options.flash_attention,
        gpu,
    );
    let file = crate::cache::fingerprint(path).ok().zip(weights::fingerprint(&options.lora));
    let file = file.map(|(model, adapters)| model + &adapters);
    let disk = options.prompt_cache.as_ref().zip(file).map(|(cache, file)| {
        let key = crate::hash::sha256(format!("{file} {LLAMA} {} {cell:?}", cpu_features().join(" ")).as_bytes());
        Disk::new(cache.folder.clone(), &key[..16], &info.name, cache.budget, cache.always)
    });
    Some(Arc::new(PromptCache::new(options.prompt_memory, disk, can_truncate)))
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests;
