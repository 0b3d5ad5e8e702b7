//! Fallback models: another session that is asked for one call.

use crate::Result;
use crate::agent::fallback::{self, Limits, Rates, Warm};
use crate::message::{Message, Role};
use crate::session::Session;
use crate::session::event::{Event, Reply};
use crate::session::prompt::AnswerRequest;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Opens the model of a name; says how many bytes it takes.
pub type Open = Box<dyn FnMut(&str) -> Result<(Session, u64)> + Send>;

/// What asking a fallback model came to.
pub(super) enum Asked {
    Answered(Box<Reply>),
    /// Not enough may be spent any more.
    Exhausted,
}

/// The models that help where a call keeps failing.
pub struct Fallbacks {
    models: Vec<String>,
    open: Open,
    limits: Limits,
    rates: Rates,
    learn: bool,
    warm: Warm<Session>,
    tokens: usize,
    time: Duration,
}

impl Fallbacks {
    /// These models, which `open` loads when they are needed.
    pub fn new(models: Vec<String>, limits: Limits, open: Open) -> Fallbacks {
        Fallbacks {
            models,
            open,
            limits,
            rates: Rates::default(),
            learn: false,
            warm: Warm::new(limits.memory),
            tokens: 0,
            time: Duration::ZERO,
        }
    }

    /// Counts how the models do, and prefers those that did well.
    #[must_use]
    pub fn learning(mut self, rates: Rates) -> Fallbacks {
        self.rates = rates;
        self.learn = true;
        self
    }

    /// The models that are loaded.
    pub fn loaded(&self) -> Vec<String> {
        self.warm.names().map(str::to_owned).collect()
    }

    /// How many models there are to ask, beside `own`.
    pub(super) fn count(&self, own: &str) -> usize {
        self.models.iter().filter(|model| *model != own).count()
    }

    /// A run begins: nothing was spent on it yet.
    pub(super) fn begin(&mut self) {
        (self.tokens, self.time) = (0, Duration::ZERO);
    }

    /// A run is over.
    pub(super) fn end(&mut self) {
        self.warm.rest();
    }

    pub(super) fn exhausted(&self) -> bool {
        self.tokens >= self.limits.max_tokens || self.time >= self.limits.max_time
    }

    /// The models in the order in which they are asked for a call of `tool`.
    pub(super) fn order(&self, own: &str, tool: &str) -> Vec<String> {
        fallback::order(&self.models, own, tool, &self.rates)
    }

    /// Asks a model, which is loaded where it is not. Its answer is ended where nothing more may be spent; only loading
    /// cannot be.
    pub(super) fn ask(&mut self, model: &str, mut request: AnswerRequest) -> Result<Asked> {
        if self.exhausted() {
            return Ok(Asked::Exhausted);
        }
        let started = Instant::now();
        let most = self.limits.max_tokens - self.tokens;
        // Too far away to be reckoned with is no limit.
        request.until = started.checked_add(self.limits.max_time - self.time);
        let Fallbacks { warm, open, .. } = self;
        let asked = warm.get(model, || open(model)).and_then(|session| {
            request.options.sampling = session.options.sampling;
            // Its tokens are others.
            request.options.logit_bias.clear();
            // Another conversation each time.
            session.cuts = Default::default();
            let prompt = session.prepare(&request)?;
            let late = request.until.is_some_and(|until| until <= Instant::now());
            if prompt >= most || late {
                return Ok(Asked::Exhausted);
            }
            request.options.max_tokens = request.options.max_tokens.min(most - prompt);
            let reply = session.answer(&request, &mut |_: &Event| ())?;
            Ok(Asked::Answered(Box::new(reply)))
        });
        self.time += started.elapsed();
        if let Ok(Asked::Answered(reply)) = &asked {
            self.tokens += reply.usage.prompt_tokens + reply.usage.completion_tokens;
        }
        asked
    }

    /// Remembers how a model's call went.
    pub(super) fn learned(&mut self, model: &str, tool: &str, good: bool) -> Result<()> {
        if self.learn { self.rates.count(model, tool, good) } else { Ok(()) }
    }
}

/// What a fallback model sees of a conversation: the instructions, and what came from the last question on.
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
