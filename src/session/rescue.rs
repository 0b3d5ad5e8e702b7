//! Fallback models: another session that is asked for one call.

use super::Session;
use super::answer::Ask;
use super::event::{Event, Reply};
use crate::Result;
use crate::fallback::{self, Limits, Rates, Warm};
use crate::message::{Message, Role};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Opens the model of a name; says how many bytes it takes.
pub type Open = Box<dyn FnMut(&str) -> Result<(Session, u64)>>;

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

    /// Asks a model, which is loaded where it is not.
    pub(super) fn ask(&mut self, model: &str, ask: Ask) -> Result<Reply> {
        let started = Instant::now();
        let Fallbacks { warm, open, .. } = self;
        let answer = warm.get(model, || open(model)).and_then(|session| {
            let mut asked = ask.options.clone();
            asked.sampling = session.options.sampling;
            // Another conversation each time.
            session.cuts = Default::default();
            session.answer(&Ask { options: asked, ..ask }, &mut |_: &Event| ())
        });
        self.time += started.elapsed();
        if let Ok(reply) = &answer {
            self.tokens += reply.usage.prompt_tokens + reply.usage.completion_tokens;
        }
        answer
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
