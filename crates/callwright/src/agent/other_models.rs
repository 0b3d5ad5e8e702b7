//! Fallback models: other sessions, each of which writes one call.

use crate::Result;
use crate::agent::fallback::{self, Limits, Rates, Warm};
use crate::message::{Message, Role};
use crate::session::Session;
use crate::session::event::{Event, Reply};
use crate::session::prompt::AnswerRequest;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Opens a model by its name; also returns its size in bytes.
pub type OpenModel = Box<dyn FnMut(&str) -> Result<(Session, u64)> + Send>;

/// The models that write a call which keeps failing.
pub struct Fallbacks {
    models: Vec<String>,
    open: OpenModel,
    limits: Limits,
    rates: Rates,
    learn: bool,
    warm: Warm<Session>,
    tokens: usize,
    time: Duration,
    cost: f64,
}

impl Fallbacks {
    /// These models, which `open` loads when they are needed.
    pub fn new(models: Vec<String>, limits: Limits, open: OpenModel) -> Fallbacks {
        Fallbacks {
            models,
            open,
            limits,
            rates: Rates::default(),
            learn: false,
            warm: Warm::new(limits.memory),
            tokens: 0,
            time: Duration::ZERO,
            cost: 0.0,
        }
    }

    /// Counts how the models do in the file at `path`, which need not exist yet, and prefers those that did well.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) or [`ErrorKind::Syntax`](crate::ErrorKind::Syntax) when the file cannot be read.
    pub fn learning(mut self, path: impl Into<PathBuf>) -> Result<Fallbacks> {
        self.rates = Rates::open(path)?;
        self.learn = true;
        Ok(self)
    }

    /// The models that are loaded.
    pub fn loaded(&self) -> Vec<String> {
        self.warm.names().map(str::to_owned).collect()
    }

    /// The number of models other than `own`.
    pub(super) fn number(&self, own: &str) -> usize {
        self.models.iter().filter(|model| *model != own).count()
    }

    /// A run begins: it has not spent anything yet.
    pub(super) fn begin(&mut self) {
        (self.tokens, self.time, self.cost) = (0, Duration::ZERO, 0.0);
    }

    /// A run is over.
    pub(super) fn end(&mut self) {
        self.warm.rest();
    }

    pub(super) fn exhausted(&self) -> bool {
        let Limits { max_tokens, max_time, max_cost, .. } = self.limits;
        self.tokens >= max_tokens || self.time >= max_time || self.cost >= max_cost
    }

    /// The models in the order in which they try a call of `tool`.
    pub(super) fn order(&self, own: &str, tool: &str) -> Vec<String> {
        fallback::order(&self.models, own, tool, &self.rates)
    }

    /// Lets a model answer; loads it if necessary. `None` if nothing more may be spent. The answer is ended at the limits;
    /// only loading cannot be.
    pub(super) fn answer(&mut self, model: &str, mut request: AnswerRequest) -> Result<Option<Reply>> {
        if self.exhausted() {
            return Ok(None);
        }
        let started = Instant::now();
        let most = self.limits.max_tokens - self.tokens;
        // A deadline that overflows the clock is no limit.
        request.until = started.checked_add(self.limits.max_time - self.time);
        let Fallbacks { warm, open, .. } = self;
        let reply = warm.get(model, || open(model)).and_then(|session| {
            request.options.sampling = session.options.sampling;
            // Its tokens have other ids.
            request.options.logit_bias.clear();
            // Each conversation is a new one.
            session.prompts.forget_cuts();
            let prompt = session.prepare(&request)?;
            let late = request.until.is_some_and(|until| until <= Instant::now());
            if prompt >= most || late {
                return Ok(None);
            }
            request.options.max_tokens = request.options.max_tokens.min(most - prompt);
            session.answer(&request, &mut |_: &Event| ()).map(Some)
        });
        self.time += started.elapsed();
        if let Ok(Some(reply)) = &reply {
            self.tokens += reply.usage.prompt_tokens + reply.usage.completion_tokens;
            self.cost += reply.usage.cost;
        }
        reply
    }

    /// Counts how a model's call went.
    pub(super) fn count_result(&mut self, model: &str, tool: &str, good: bool) -> Result<()> {
        if self.learn { self.rates.count(model, tool, good) } else { Ok(()) }
    }
}

/// Returns what a fallback model sees of a conversation: the instructions, and everything from the last question on.
pub(super) fn recent(messages: &[Message]) -> Vec<Message> {
    let question = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
    let system = messages[..question].iter().filter(|message| message.role == Role::System);
    system.chain(&messages[question..]).cloned().collect()
}

/// The tool alone, or all of them where it is not known.
pub(super) fn alone(tools: &Arc<crate::Tools>, name: &str) -> Result<Arc<crate::Tools>> {
    match tools.get(name) {
        Some(tool) => Ok(Arc::new(crate::Tools::new([tool.clone()])?)),
        None => Ok(Arc::clone(tools)),
    }
}
