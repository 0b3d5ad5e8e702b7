//! A smaller model beside another one, which proposes what that may write.

use super::context::Pool;
use super::layout::{Layout, steps};
use super::threads::{Threads, median};
use super::weights::Weights;
use super::words::Words;
use super::{LlamaEngine, can_truncate};
use crate::engine::{DraftModel, LoadOptions};
use crate::models::Gguf;
use crate::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A draft model of more than this part of the other one costs more than it can save.
const LARGEST: f32 = 0.5;
/// What checking a token costs, in steps, until it is measured: it was 0.3 to 0.8 on a CPU.
const CHECK: f32 = 0.5;
/// Tokens of the batches by which that is measured, and of the median one. Drafts differ in length, and a GPU computes a batch of
/// another length than the last one more slowly.
const BATCHES: &[usize] = &[5, 4, 5, 6];
const CHECKED: usize = 5;
/// The part of the memory for prompts that is for the draft model's.
const MEMORY: u64 = 4;

/// A draft model with a context of its own.
pub(super) struct DraftEngine {
    engine: LlamaEngine,
    shared: usize,
    /// Its part of the other model's size.
    size: f32,
    pub(super) costs: Arc<OnceLock<Costs>>,
}

/// What a proposed token costs, in hundredths of a step of the large model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    pub(super) step: usize,
    pub(super) check: usize,
}

impl DraftEngine {
    /// Loads the draft model of the options of `large`, a model at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Gguf`] if its file is not in order, [`ErrorKind::Config`] if it cannot propose anything to that model.
    pub(super) fn load(path: &Path, large: &LlamaEngine) -> Result<Option<DraftEngine>> {
        let options = &large.options;
        let Some(file) = options.draft_model.as_deref().map(Path::new) else { return Ok(None) };
        let failed = |why: &str| {
            Error::new(ErrorKind::Config, format!("{} is no draft model for {}: {why}", file.display(), path.display()))
        };
        Gguf::open(file)?.check()?;
        let bytes = |file: &Path| file.metadata().map_or(0, |data| data.len()) as f32;
        let size = bytes(file) / bytes(path);
        if size.is_nan() || size > LARGEST {
            let why =
                format!("it has {:.0}% of its size, so that a draft takes more time than it can save", 100.0 * size);
            return Err(failed(&why).hint("a draft model of a tenth of the size, or less, saves the most"));
        }
        let own = LoadOptions {
            draft_model: None,
            lora: Vec::new(),
            context: None,
            prompt_memory: options.prompt_memory / MEMORY,
            ..options.again()
        };
        let engine = LlamaEngine { pool: Arc::clone(&large.pool), ..LlamaEngine::load(file, own)? };
        if !can_truncate(&large.model) || !can_truncate(&engine.model) {
            return Err(failed("a recurrent or hybrid model cannot drop tokens, as a wrong draft needs"));
        }
        let shared = shared_tokens(&large.words, &engine.words).map_err(|why| {
            failed(&why).hint("a draft model has the same tokens: it is a smaller model of the same family")
        })?;
        let draft = DraftEngine { engine, shared, size, costs: Arc::default() };
        let known = |what: &str| large.threads.known(&draft.measured(what));
        if let (Some(step), Some(check)) = (known("step"), known("check")) {
            draft.set_costs(Costs { step, check });
        }
        Ok(Some(draft))
    }

    /// The same model with another context, for an engine with these threads.
    pub(super) fn share(&self, pool: &Pool) -> DraftEngine {
        let (shared, size, costs) = (self.shared, self.size, Arc::clone(&self.costs));
        let engine = LlamaEngine { pool: Arc::clone(pool), ..self.engine.share() };
        DraftEngine { engine, shared, size, costs }
    }

    /// The model, to be asked.
    pub(super) fn ask(&mut self) -> DraftModel<'_> {
        let part = |hundredths: usize| hundredths as f32 / 100.0;
        let (step, check) = self.costs.get().map_or((self.size, CHECK), |costs| (part(costs.step), part(costs.check)));
        DraftModel { engine: &mut self.engine, step, check, shared: self.shared }
    }

    /// Measures what a proposed token costs, once on a machine: until then it is estimated.
    pub(super) fn measure(&self, large: &Arc<Weights>, threads: &Threads, options: &LoadOptions) {
        if self.costs.get().is_some() {
            return;
        }
        let time = |model, threads: &Threads, options, sizes| {
            median(&mut steps(model, Layout::alone(threads.decode()), options, sizes)?, Instant::now())
        };
        let Some(whole) = time(large, threads, options, &[1]).filter(|time| !time.is_zero()) else { return };
        let small = || time(&self.engine.model, &self.engine.threads, &self.engine.options, &[1]);
        let batch = || time(large, threads, options, BATCHES);
        let (Some(small), Some(batch)) = (small(), batch()) else { return };
        let hundredths = |part: f64| (100.0 * part).round().max(1.0) as usize;
        let in_steps = |time: Duration| time.as_secs_f64() / whole.as_secs_f64();
        let step = hundredths(in_steps(small));
        let check = hundredths((in_steps(batch) - 1.0) / (CHECKED - 1) as f64);
        let once = |what: &str, found| threads.once(&self.measured(what), || found);
        self.set_costs(Costs { step: once("step", step), check: once("check", check) });
    }

    fn set_costs(&self, costs: Costs) {
        let Costs { step, check } = *self.costs.get_or_init(|| costs);
        tracing::debug!(step, check, "what a token of the draft model costs, in hundredths of a step");
        if step + check >= 100 {
            let name = &self.engine.words.info.name;
            tracing::warn!(
                "the draft model {name} saves no time on this machine, and is not used: a step of it takes {step}% of a step of \
                 the model, and checking a token {check}%"
            );
        }
    }

    /// The name of what is measured for this model.
    fn measured(&self, what: &str) -> String {
        format!("{what} of a draft model of {} bytes", self.engine.model.size())
    }
}

/// How many tokens both have; what is different, if one of these is. Some models of a family have more tokens than others, at the end.
fn shared_tokens(one: &Words, other: &Words) -> Result<usize, String> {
    let (one, other) = (one.vocabulary()(), other.vocabulary()());
    let mut pairs = one.words.iter().zip(other.words.iter()).enumerate();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match pairs.find(|(_, (one, other))| one.bytes != other.bytes) {
        Some((id, (one, other))) => {
            Err(format!("its token {id} is {:?}, and that of the other is {:?}", text(&other.bytes), text(&one.bytes)))
        }
        None => Ok(one.words.len().min(other.words.len())),
    }
}
