//! Answers cases with a session.

use super::configuration::Configuration;
use super::run::{Answer, Answerer};
use super::sample::Timing;
use super::suite::Case;
use callwright::error::{Error, ErrorKind, Result};
pub use callwright::machine::resident;
use callwright::model::Model;
use callwright::parse::event::Event as Parsed;
use callwright::session::{ContextPolicy, Event, FinishReason, Options, Session, ToolChoice};
use callwright::tool::Tools;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Answers cases with a model.
pub struct SessionAnswers {
    pub(super) session: Session,
    pub(super) now: Option<jiff::civil::DateTime>,
    pub(super) cancel: Arc<AtomicBool>,
    /// The tools that the session was given, as JSON.
    tools: String,
    /// The model, where each case gets an engine of its own.
    model: Option<Model>,
    /// Called after each answer.
    after: Option<Box<dyn Fn() + Send>>,
}

impl SessionAnswers {
    /// Answers with `session`. Chat templates get `now` as the time; setting `cancel` ends an answer.
    ///
    /// # Errors
    /// [`ErrorKind::Suite`] when `now` is not a date and time.
    pub fn new(session: Session, now: &str, cancel: Arc<AtomicBool>) -> Result<SessionAnswers> {
        let now = now.parse().map_err(|_| Error::new(ErrorKind::Suite, format!("{now:?} is no date and time")))?;
        Ok(SessionAnswers { session, now: Some(now), cancel, tools: String::new(), model: None, after: None })
    }

    /// Calls `after` after each case, answered or not: a sequence's turn ends there.
    #[must_use]
    pub fn with_after(mut self, after: impl Fn() + Send + 'static) -> SessionAnswers {
        self.after = Some(Box::new(after));
        self
    }

    /// Gives each case an engine of its own with `model`. What was asked before then changes nothing, not even how numbers are
    /// rounded: that depends on what is in the context, and on its size.
    #[must_use]
    pub fn one_by_one(mut self, model: Model) -> SessionAnswers {
        self.model = Some(model);
        self
    }

    /// Sets a case's tools and messages.
    fn set(&mut self, case: &Case) -> Result<()> {
        let tools = case.tools.to_json();
        let text = tools.to_string();
        if self.tools != text {
            self.session.set_tools(Tools::from_value(&tools)?);
            self.tools = text;
        }
        self.session.set_messages(case.messages.clone())
    }

    /// Forgets which tools the session was given: it has others.
    pub(super) fn forget_tools(&mut self) {
        self.tools.clear();
    }

    fn ask(&mut self, case: &Case, configuration: &Configuration, seed: u64) -> Result<Option<Answer>> {
        if let Some(model) = &self.model {
            self.session.swap_engine(&mut model.engine());
        }
        if let Some(task) = &case.task {
            return self.act(case, task, configuration, seed);
        }
        self.set(case)?;
        *self.session.options_mut() = options(case, configuration).with(|options| {
            options.sampling.seed = seed;
            options.now = self.now;
            options.cancel = Arc::clone(&self.cancel);
        });
        let mut events = Vec::new();
        let reply = self.session.respond(&mut |event| {
            if let Event::Parsed(event) = event {
                join(&mut events, event);
            }
        })?;
        if reply.finish_reason == FinishReason::Cancelled {
            return Ok(None);
        }
        let mut answer = Answer {
            prompt: reply.prompt,
            prompt_tail: reply.prompt_tail,
            raw: lossy(&reply.raw[..reply.dropped_from.unwrap_or(reply.raw.len())]),
            closed_from: reply.closed_from.map(|from| lossy(&reply.raw[..from]).len()),
            tokens: reply.tokens.iter().map(|token| token.0).collect(),
            events: events.iter().filter_map(|event| serde_json::to_value(event).ok()).collect::<Vec<Value>>(),
            cut_off: reply.finish_reason == FinishReason::Length,
            looped: reply.finish_reason == FinishReason::Loop,
            call_probability: reply.call_probability,
            decided: reply.decided,
            timing: Timing { memory: self.memory(), ..Timing::default() },
            ..Answer::default()
        };
        answer.spend(&reply.usage);
        Ok(Some(answer))
    }

    /// Bytes of this process in memory; 0 where the model is not in it.
    pub(super) fn memory(&self) -> u64 {
        if self.session.engine().server().is_some() { 0 } else { resident().unwrap_or(0) }
    }
}

/// The options of a session that answers a case. The answer is scored with the same ones.
pub(super) fn options(case: &Case, configuration: &Configuration) -> Options {
    Options::default().with(|options| {
        options.max_tokens = configuration.max_tokens;
        options.constrain = configuration.constrain;
        // Without tools no call can be required.
        options.tool_choice = if case.tools.is_empty() { ToolChoice::Auto } else { configuration.tool_choice.clone() };
        options.select_tools = configuration.select_tools;
        options.call_threshold = configuration.call_threshold;
        options.no_call_below = configuration.no_call_below;
        options.measure_call = true;
        options.repair = configuration.repair;
        options.other_forms = configuration.other_forms;
        // A case must not be shortened.
        options.context = ContextPolicy::Error;
    })
}

fn lossy(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

impl Answerer for SessionAnswers {
    fn answer(&mut self, case: &Case, configuration: &Configuration, seed: u64) -> Result<Option<Answer>> {
        let answer = self.ask(case, configuration, seed);
        if let Some(after) = &self.after {
            after();
        }
        answer
    }
}

/// Adds an event; joins the pieces of one text or of one call's arguments.
fn join(events: &mut Vec<Parsed>, event: &Parsed) {
    match (events.last_mut(), event) {
        (Some(Parsed::Text { delta: last }), Parsed::Text { delta }) => *last += delta,
        (Some(Parsed::Reasoning { delta: last }), Parsed::Reasoning { delta }) => *last += delta,
        (Some(Parsed::CallArguments { delta: last, .. }), Parsed::CallArguments { delta, .. }) => *last += delta,
        _ => events.push(event.clone()),
    }
}
