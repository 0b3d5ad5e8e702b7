//! A context of llama.cpp: the KV cache of some sequences, and the threads that compute.
//!
//! llama-cpp-2's own type keeps its pointer to itself, and so has no way to the number of threads, to threads that outlive a
//! step, and to a sequence's state as bytes. What it wraps is little: these few calls.

use super::BATCH;
use super::backend::{backend, because, is_left};
use super::state::{self, Layout, Ring};
use super::weights::Weights;
use crate::engine::prompt_cache::Checkpoint;
use crate::engine::{LoadOptions, Token};
use crate::models::gguf::Pooling;
use crate::setting::Setting;
use crate::{Error, ErrorKind, Result};
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_void};
use std::num::NonZeroU32;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// llama.cpp rounds contexts up to a multiple of this.
const STEP: usize = 256;
/// How long an idle thread spins before it sleeps, in llama.cpp's unit: some milliseconds, so that choosing a token does not
/// put the others to sleep. llama.cpp's own 50 keep a core busy for a tenth of a second.
const POLL: u32 = 1;

/// llama.h's `LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`, which the bindings leave out: of a hybrid's state only what is recurrent, and of a model
/// with sliding windows only what its layers with a window have.
const PARTIAL: sys::llama_state_seq_flags = 1;
/// What the number of a window's cells is a multiple of: `llama_kv_cache_iswa`.
const WINDOW_STEP: usize = 256;

/// What a context is made for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// Tokens of each sequence.
    pub tokens: usize,
    /// The number of sequences.
    pub sequences: usize,
    /// Threads that decode one token of each sequence.
    pub threads: usize,
    /// Threads that read a prompt.
    pub prompt_threads: usize,
    /// How llama.cpp computes attention.
    pub flash_attention: sys::llama_flash_attn_type,
    /// How embeddings are made, and of how many tokens in one step; nothing generates in such a context.
    pub embeds: Option<(Pooling, usize)>,
}

/// Some sequences of a model.
pub(super) struct Context {
    raw: NonNull<sys::llama_context>,
    /// The context points into it, and to the model.
    pool: Option<Pool>,
    model: Arc<Weights>,
    shape: Shape,
    /// Where layers with a sliding window have the last tokens of a sequence.
    ring: Option<Ring>,
    /// The first token of each sequence that may still be in its ring.
    since: Vec<usize>,
    /// Whether a sequence was copied since the last batch: llama.cpp copies its numbers with the next one only, so that until then
    /// no state may be read or replaced.
    copied: bool,
    // The next batch, kept for its space. The pointers of `lists` lead to `ids`, or to `first`.
    tokens: Vec<sys::llama_token>,
    positions: Vec<sys::llama_pos>,
    counts: Vec<i32>,
    ids: Vec<sys::llama_seq_id>,
    wanted: Vec<i8>,
}

// SAFETY: llama.cpp binds a context to no thread, and all calls that change it take `&mut self`.
unsafe impl Send for Context {}

/// llama.cpp writes to the model where it makes a context, so only one is made at a time.
static MAKING: Mutex<()> = Mutex::new(());

impl Context {
    /// # Errors
    /// [`ErrorKind::Engine`] if there is not enough memory.
    pub(super) fn new(model: &Arc<Weights>, shape: Shape, options: &LoadOptions, pool: &Pool) -> Result<Context> {
        backend()?;
        let failed = |why: &str| {
            Error::new(ErrorKind::Engine, format!("llama.cpp cannot make a context of {} tokens: {why}", shape.tokens))
                .hint(format!("a smaller {} or {} needs less memory", Setting::Context, Setting::MaxTokens))
        };
        // llama.cpp takes 0 as the model's own size.
        let size = shape.tokens.checked_next_multiple_of(STEP).and_then(|size| size.checked_mul(shape.sequences));
        let size = size.and_then(|size| u32::try_from(size).ok()).and_then(NonZeroU32::new);
        let size = size.ok_or_else(|| failed("that is more than it can count"))?;
        // llama.cpp divides what is decoded at a time. A draft, and the sequences of a step, come together, however few of them it
        // computes at once.
        let at_once = options.batch.unwrap_or(BATCH).max(shape.sequences);
        let (batch, at_once) = (count(at_once.max(BATCH)), count(at_once));
        // SAFETY: a function without arguments that returns a struct.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = size.get();
        params.n_seq_max = count(shape.sequences);
        (params.n_batch, params.n_ubatch) = (batch, at_once);
        params.flash_attn_type = shape.flash_attention;
        params.swa_full = model.window().is_none();
        (params.n_threads, params.n_threads_batch) = (number(shape.threads), number(shape.prompt_threads));
        if let Some(kind) = options.cache_type_k {
            params.type_k = kind.ggml();
        }
        if let Some(kind) = options.cache_type_v {
            params.type_v = kind.ggml();
        }
        if let Some((pooling, step)) = shape.embeds {
            params.embeddings = true;
            params.pooling_type = match pooling {
                Pooling::Mean => sys::LLAMA_POOLING_TYPE_MEAN,
                Pooling::First => sys::LLAMA_POOLING_TYPE_CLS,
                Pooling::Last => sys::LLAMA_POOLING_TYPE_LAST,
            };
            (params.n_batch, params.n_ubatch) = (count(step), count(step));
        }
        params.no_perf = true;
        let raw = {
            let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the model lives in the `Arc` that the context keeps; `MAKING` excludes a second writer.
            unsafe { sys::llama_init_from_model(model.raw(), params) }
        };
        let Some(raw) = NonNull::new(raw) else { return Err(failed(&because("no reason given"))) };
        model.adapt(raw);
        let mut context = Context {
            raw,
            pool: None,
            model: Arc::clone(model),
            shape,
            ring: None,
            since: vec![0; shape.sequences],
            copied: false,
            tokens: Vec::new(),
            positions: Vec::new(),
            counts: Vec::new(),
            ids: Vec::new(),
            wanted: Vec::new(),
        };
        // SAFETY: it reads a number of the context.
        let at_once = unsafe { sys::llama_n_ubatch(raw.as_ptr()) } as usize;
        context.ring = model.window().map(|window| Ring { window, cells: cells(window, at_once).min(context.room()) });
        context.start_threads(pool);
        Ok(context)
    }

    /// Starts threads that outlive a step, or uses those that there are. Without them, llama.cpp starts new ones for each.
    fn start_threads(&mut self, pool: &Pool) {
        let threads = self.shape.threads.max(self.shape.prompt_threads);
        if threads < 2 {
            return;
        }
        let enough = |pool: &Pool| {
            pool.get_or_init(|| Threadpool::new(threads)).as_ref().is_none_or(|pool| pool.threads >= threads)
        };
        let pool = if enough(pool) { Arc::clone(pool) } else { Arc::new(OnceLock::from(Threadpool::new(threads))) };
        if let Some(Some(Threadpool { raw, .. })) = pool.get() {
            // SAFETY: the pool lives until the context is freed, because the context keeps it.
            unsafe { sys::llama_attach_threadpool(self.raw.as_ptr(), raw.as_ptr(), raw.as_ptr()) };
        }
        self.pool = Some(pool);
    }

    /// Sets how many threads decode; at most as many as the context was made with.
    pub(super) fn set_threads(&mut self, threads: usize) {
        self.shape.threads = threads;
        // SAFETY: it sets two numbers of the context.
        unsafe { sys::llama_set_n_threads(self.raw.as_ptr(), number(threads), number(self.shape.prompt_threads)) };
    }

    /// The number of tokens that each sequence has room for.
    pub(super) fn room(&self) -> usize {
        // SAFETY: it reads a number of the context.
        unsafe { sys::llama_n_ctx(self.raw.as_ptr()) as usize / self.shape.sequences }
    }

    /// Adds a token to the next batch, and says whether its logits are wanted.
    pub(super) fn add(&mut self, token: Token, position: usize, sequence: usize, wanted: bool) {
        self.tokens.push(token.0);
        self.positions.push(number(position));
        self.counts.push(1);
        self.ids.push(number(sequence));
        self.wanted.push(i8::from(wanted));
    }

    /// The number of tokens in the next batch.
    pub(super) fn waiting(&self) -> usize {
        self.tokens.len()
    }

    /// Decodes the batch: tokens of the vocabulary, at most as many as a batch may have, each at the end of its sequence,
    /// within its room.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] with llama.cpp's message.
    pub(super) fn decode(&mut self) -> Result<()> {
        let mut lists: Vec<*mut sys::llama_seq_id> = self.ids.iter_mut().map(ptr::from_mut).collect();
        let batch = sys::llama_batch {
            n_tokens: number(self.tokens.len()),
            token: self.tokens.as_mut_ptr(),
            embd: ptr::null_mut(),
            pos: self.positions.as_mut_ptr(),
            n_seq_id: self.counts.as_mut_ptr(),
            seq_id: lists.as_mut_ptr(),
            logits: self.wanted.as_mut_ptr(),
        };
        // SAFETY: each list of the batch has an element for each of its tokens, and outlives the call.
        let status = unsafe { sys::llama_decode(self.raw.as_ptr(), batch) };
        self.tokens.clear();
        self.positions.clear();
        self.counts.clear();
        self.ids.clear();
        self.wanted.clear();
        self.copied = false;
        match status {
            0 => Ok(()),
            status => {
                let why = because(&format!("status {status}"));
                Err(Error::new(ErrorKind::Engine, format!("llama.cpp failed while decoding: {why}")))
            }
        }
    }

    /// Waits until what was decoded is computed, on a GPU.
    pub(super) fn finish(&mut self) {
        // SAFETY: it changes nothing but the context.
        unsafe { sys::llama_synchronize(self.raw.as_ptr()) };
    }

    /// The logits after a token of the last batch; empty if they were not wanted.
    pub(super) fn logits(&self, row: usize) -> &[f32] {
        // SAFETY: llama.cpp checks the row, and returns null or one number for each token of the vocabulary, which the next
        // call that changes the context replaces. Waiting for a GPU is all that it changes.
        unsafe {
            let logits = sys::llama_get_logits_ith(self.raw.as_ptr(), number(row));
            let count = usize::try_from(self.model.n_vocab()).unwrap_or_default();
            if logits.is_null() { &[] } else { std::slice::from_raw_parts(logits, count) }
        }
    }

    /// The embedding of a sequence after the last batch; empty if there is none.
    pub(super) fn embedding(&self, sequence: usize) -> &[f32] {
        // SAFETY: llama.cpp returns null or, in a context for embeddings, as many numbers as the model says, which the next call that
        // changes the context replaces.
        unsafe {
            let numbers = sys::llama_get_embeddings_seq(self.raw.as_ptr(), number(sequence));
            let count = usize::try_from(sys::llama_model_n_embd_out(self.model.raw())).unwrap_or_default();
            if numbers.is_null() { &[] } else { std::slice::from_raw_parts(numbers, count) }
        }
    }

    /// Returns whether a sequence has what tokens after its first `len` look back to. Recurrent states are not considered.
    pub(super) fn can_truncate(&self, sequence: usize, len: usize) -> bool {
        self.ring.is_none_or(|ring| len == 0 || self.first(sequence) <= (len + 1).saturating_sub(ring.window))
    }

    /// The first token of a sequence that layers with a window have.
    fn first(&self, sequence: usize) -> usize {
        // SAFETY: the memory belongs to the context.
        let first = unsafe { sys::llama_memory_seq_pos_min(self.memory(), number(sequence)) };
        usize::try_from(first).unwrap_or_default().max(self.since[sequence])
    }

    /// Drops all but the first `len` tokens of a sequence. Returns whether that is possible; dropping all always is.
    pub(super) fn truncate(&mut self, sequence: usize, len: usize) -> bool {
        if !self.can_truncate(sequence, len) {
            return false;
        }
        // SAFETY: the memory belongs to the context.
        let last = unsafe { sys::llama_memory_seq_pos_max(self.memory(), number(sequence)) };
        // SAFETY: as above.
        let done = unsafe { sys::llama_memory_seq_rm(self.memory(), number(sequence), number(len), -1) };
        if len == 0 {
            self.since[sequence] = 0;
        } else if let Some(ring) = self.ring
            && usize::try_from(last).unwrap_or_default() / ring.cells > len / ring.cells
        {
            // llama.cpp would go on in the first cell that is free now, which is not the next one.
            return self.checkpoint(sequence).is_some_and(|state| self.read_part(sequence, &state));
        }
        done
    }

    /// Makes a sequence the same as another. Returns whether that is possible; if not, nothing is left of it.
    pub(super) fn copy(&mut self, from: usize, to: usize) -> bool {
        if self.ring.is_some() {
            // A checkpoint would be read before what llama.cpp copies with the next batch.
            let state = self.state(from).unwrap_or_default();
            return self.take_state(to, state);
        }
        self.copied = true;
        // SAFETY: as above. With separate sequences, llama.cpp copies a whole one or nothing.
        unsafe {
            sys::llama_memory_seq_rm(self.memory(), number(to), -1, -1);
            sys::llama_memory_seq_cp(self.memory(), number(from), number(to), -1, -1);
        }
        true
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        // SAFETY: as above.
        unsafe { sys::llama_memory_clear(self.memory(), true) };
        self.since.fill(0);
    }

    fn memory(&self) -> sys::llama_memory_t {
        // SAFETY: it returns a pointer that the context has.
        unsafe { sys::llama_get_memory(self.raw.as_ptr()) }
    }

    /// The bytes of a sequence's state, where it can be written.
    pub(super) fn state_size(&self, sequence: usize) -> usize {
        if self.copied {
            return 0;
        }
        // SAFETY: it counts bytes.
        unsafe { sys::llama_state_seq_get_size_ext(self.raw.as_ptr(), number(sequence), 0) }
    }

    /// A sequence's state as bytes, as a context of one sequence writes it; `None` if llama.cpp cannot write it.
    pub(super) fn state(&mut self, sequence: usize) -> Option<Vec<u8>> {
        let bytes = if self.copied { None } else { self.write_state(sequence, 0) }?;
        Some(state::convert(bytes, Layout { sequences: 1, ..self.layout() }))
    }

    /// A part of a sequence's state as llama.cpp writes it.
    fn write_state(&mut self, sequence: usize, flags: sys::llama_state_seq_flags) -> Option<Vec<u8>> {
        let (context, sequence) = (self.raw.as_ptr(), number(sequence));
        // SAFETY: it counts bytes.
        let size = unsafe { sys::llama_state_seq_get_size_ext(context, sequence, flags) };
        if size == 0 {
            return None;
        }
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(size).ok()?;
        // SAFETY: there is space for `size` bytes, and llama.cpp writes no more. It returns how many it has written; these are
        // initialised.
        unsafe {
            let written = sys::llama_state_seq_get_data_ext(context, bytes.as_mut_ptr(), size, sequence, flags);
            bytes.set_len(written.min(size));
        }
        (bytes.len() == size).then_some(bytes)
    }

    /// What a sequence cannot be truncated without, as long as it is: recurrent states, or the last tokens of layers with a window; `None` if
    /// llama.cpp cannot write it.
    pub(super) fn checkpoint(&mut self, sequence: usize) -> Option<Vec<u8>> {
        let part = self.write_state(sequence, PARTIAL)?;
        Some(if self.ring.is_some() { state::convert(part, Layout { sequences: 1, ..self.layout() }) } else { part })
    }

    /// Drops all but the first tokens of a sequence, those of one of its checkpoints. Returns whether that is possible; if not, nothing is left of
    /// the sequence.
    pub(super) fn go_back(&mut self, sequence: usize, checkpoint: &Checkpoint) -> bool {
        // What waits to be copied are numbers of attention, which a checkpoint of a model without windows does not have.
        let whole = self.read_part(sequence, &checkpoint.state) && self.truncate(sequence, checkpoint.at);
        if !whole {
            let why = because("it does not fit the model");
            tracing::warn!("a checkpoint after {} tokens is ignored: {why}", checkpoint.at);
            self.truncate(sequence, 0);
        }
        whole
    }

    /// Replaces what a checkpoint has.
    fn read_part(&mut self, sequence: usize, part: &[u8]) -> bool {
        match self.ring {
            Some(_) => self.read_ring(sequence, &state::convert(part.to_vec(), self.layout()), PARTIAL),
            None => self.read_bytes(sequence, part, PARTIAL),
        }
    }

    /// Returns whether states can be read and replaced now.
    pub(super) fn has_states(&self) -> bool {
        !self.copied
    }

    /// Replaces a sequence by a state that [`Context::state`] returned for the same model and build. If that fails, nothing
    /// is left of the sequence.
    pub(super) fn set_state(&mut self, sequence: usize, state: &[u8]) -> bool {
        if state::is_for(state, self.layout()) {
            self.read_state(sequence, state)
        } else {
            self.read_state(sequence, &state::convert(state.to_vec(), self.layout()))
        }
    }

    /// [`Context::set_state`] with a state that nobody else needs.
    pub(super) fn take_state(&mut self, sequence: usize, state: Vec<u8>) -> bool {
        self.read_state(sequence, &state::convert(state, self.layout()))
    }

    fn read_state(&mut self, sequence: usize, state: &[u8]) -> bool {
        if self.copied {
            self.truncate(sequence, 0);
            return false;
        }
        let whole = match self.ring {
            Some(_) => self.read_ring(sequence, state, 0),
            None => self.read_bytes(sequence, state, 0),
        };
        if !whole {
            // What llama.cpp has to say about a refusal is not the reason of a later error.
            let _ = because("");
            self.truncate(sequence, 0);
        }
        whole
    }

    /// [`Context::read_bytes`], with each token in its place.
    fn read_ring(&mut self, sequence: usize, state: &[u8], flags: sys::llama_state_seq_flags) -> bool {
        let count = if flags == PARTIAL { 1 } else { 2 };
        let placed = self.ring.and_then(|ring| state::in_ring(state, ring, count));
        let Some((state, first, end)) = placed else { return false };
        self.since[sequence] = first;
        // SAFETY: the memory belongs to the context.
        self.read_bytes(sequence, &state, flags)
            && unsafe { sys::llama_memory_seq_rm(self.memory(), number(sequence), number(end), -1) }
    }

    /// Replaces a part of a sequence's state; returns whether llama.cpp has read all of it.
    fn read_bytes(&mut self, sequence: usize, state: &[u8], flags: sys::llama_state_seq_flags) -> bool {
        // SAFETY: llama.cpp reads no more than the bytes that there are, and refuses what does not fit the context.
        let read = unsafe {
            sys::llama_state_seq_set_data_ext(self.raw.as_ptr(), state.as_ptr(), state.len(), number(sequence), flags)
        };
        read == state.len()
    }

    /// Returns whether it computes attention in full.
    pub(super) fn is_full_attention(&self) -> bool {
        self.shape.flash_attention == sys::LLAMA_FLASH_ATTN_TYPE_DISABLED
    }

    /// Returns whether it was made with flash attention, without leaving the choice to llama.cpp.
    pub(super) fn is_flash_attention(&self) -> bool {
        self.shape.flash_attention == sys::LLAMA_FLASH_ATTN_TYPE_ENABLED
    }

    /// How it reads and writes states.
    fn layout(&self) -> Layout {
        Layout { sequences: self.shape.sequences, transposed: self.is_full_attention() }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if is_left() {
            std::mem::forget((Arc::clone(&self.model), self.pool.clone()));
            return;
        }
        // SAFETY: it is not used again. The model and the threads are freed after it.
        unsafe { sys::llama_free(self.raw.as_ptr()) };
    }
}

/// Threads of contexts that never compute at the same time; started with the first one, if they can be.
pub(super) type Pool = Arc<OnceLock<Option<Threadpool>>>;

/// Threads of llama.cpp.
pub(super) struct Threadpool {
    raw: NonNull<sys::ggml_threadpool>,
    free: FreePool,
    threads: usize,
}

// SAFETY: llama.cpp binds them to no thread. Contexts that share them belong to one engine, which computes with one at a time.
unsafe impl Send for Threadpool {}
// SAFETY: as above.
unsafe impl Sync for Threadpool {}

impl Threadpool {
    fn new(threads: usize) -> Option<Threadpool> {
        let (new, free) = pool_functions()?;
        // SAFETY: a function of numbers that returns a struct.
        let mut params = unsafe { sys::ggml_threadpool_params_default(number(threads)) };
        params.poll = POLL;
        // SAFETY: the parameters are copied. A pool that could not be made is null.
        let raw = NonNull::new(unsafe { new(&raw mut params) })?;
        Some(Threadpool { raw, free, threads })
    }
}

impl Drop for Threadpool {
    fn drop(&mut self) {
        // SAFETY: no context has it any more, and its threads are idle.
        unsafe { (self.free)(self.raw.as_ptr()) };
    }
}

type NewPool = unsafe extern "C" fn(*mut sys::ggml_threadpool_params) -> *mut sys::ggml_threadpool;
type FreePool = unsafe extern "C" fn(*mut sys::ggml_threadpool);

/// Returns what makes and frees threads. Both belong to llama.cpp's code for the processor, which the feature
/// `portable` loads at run time: there they cannot be linked.
fn pool_functions() -> Option<(NewPool, FreePool)> {
    // SAFETY: each pointer is null or valid for as long as the program runs, and null is never passed on. llama.cpp promises
    // these signatures for these names.
    unsafe {
        let device = sys::ggml_backend_dev_by_type(sys::GGML_BACKEND_DEVICE_TYPE_CPU);
        let registry = (!device.is_null()).then(|| sys::ggml_backend_dev_backend_reg(device))?;
        let find = |name: &CStr| NonNull::new(sys::ggml_backend_reg_get_proc_address(registry, name.as_ptr()));
        let (new, free) = (find(c"ggml_threadpool_new")?, find(c"ggml_threadpool_free")?);
        Some((
            std::mem::transmute::<*mut c_void, NewPool>(new.as_ptr()),
            std::mem::transmute::<*mut c_void, FreePool>(free.as_ptr()),
        ))
    }
}

/// How many cells a window of so many tokens has where so many more are decoded at a time: `llama_kv_cache_iswa`.
pub(super) fn cells(window: usize, at_once: usize) -> usize {
    (window + at_once).next_multiple_of(WINDOW_STEP)
}

/// A number of tokens or sequences, in the same way.
fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A number as llama.cpp takes it; all are bounded by its own limits.
fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
