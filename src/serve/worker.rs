//! Answers the requests for one model, one after the other, each with a session on one sequence of the model's context.

use super::job::{Chat, Job, StreamArguments, Text, Work};
use super::metrics::Metrics;
use super::queue::{Kind, Queue};
use super::refusal::Refusal;
use super::updates::{Answer, Begun, CallIds, Finish, Outbox, Streamer, Update};
use callwright::engine::llama::parallel::TurnEnd;
use callwright::engine::sampler::Sampler;
use callwright::engine::{Engine, Token, check_length};
use callwright::format::Format;
use callwright::generate::{End, Guides, Limits, Probabilities, generate_with};
use callwright::model::Parallel;
use callwright::session::stop::Stops;
use callwright::session::{Event, FinishReason, Note, NoteKind, Options, Reply, Session};
use callwright::template::Piece;
use callwright::{Error, ErrorKind, Model, Result};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// How many sessions a worker keeps: one for each format and each set of variables of the chat template.
const SESSIONS: usize = 8;

/// What the workers of one model share.
pub(super) struct Shared {
    pub model: Arc<Model>,
    pub queue: Queue,
    pub sequences: Parallel,
    pub defaults: Options,
    pub max_tokens: usize,
    /// The seed of requests without one; a random one each if `None`.
    pub seed: Option<u64>,
    pub stream_arguments: StreamArguments,
    pub metrics: Metrics,
}

impl Shared {
    /// Seeds a request, and returns the seed if it has a say in the answer.
    fn seed(&self, options: &mut Options, asked: Option<u64>) -> Option<(String, Value)> {
        // Within the integers that every JSON reader has.
        let random = || RandomState::new().hash_one(std::thread::current().id()) >> 11;
        options.sampling.seed = asked.or(self.seed).unwrap_or_else(random);
        (options.sampling.temperature > 0.0).then(|| ("seed".to_owned(), json!(options.sampling.seed)))
    }
}

/// Returns what a request has in common with others.
pub(super) fn kind(work: &Work) -> Kind {
    let hash = |value: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        value(&mut hasher);
        hasher.finish()
    };
    match work {
        Work::Chat(chat) => Kind {
            tools: hash(&|hasher| chat.tools.iter().for_each(|tool| tool.name.hash(hasher))),
            messages: chat.messages.iter().map(|message| hash(&|hasher| message.content.hash(hasher))).collect(),
        },
        _ => Kind::default(),
    }
}

/// Answers requests until the queue is closed. The sequence, and with it the KV cache, stays between them.
pub(super) fn work(shared: &Shared, number: usize) {
    let mut known = Kind::default();
    let mut worker: Option<Worker<'_>> = None;
    while let Some(Job { work, outbox, until, _held }) = shared.queue.next(number, &known) {
        let began = Instant::now();
        let last = if until <= began {
            let message = "the request waited until its time was over (--timeout)";
            Some(Update::Failed(Refusal::unavailable(message)))
        } else if outbox.is_wanted() {
            known = kind(&work);
            Some(answer(&mut worker, shared, work, &outbox, until))
        } else {
            None
        };
        // Before the client knows, so that its next request finds a free worker.
        shared.queue.done(number, &known, began);
        last.into_iter().for_each(|update| outbox.send(update));
    }
}

/// Answers one request. What goes wrong in it ends neither the thread nor another request.
fn answer<'s>(
    worker: &mut Option<Worker<'s>>,
    shared: &'s Shared,
    work: Work,
    outbox: &Outbox,
    until: Instant,
) -> Update {
    let answered = catch_unwind(AssertUnwindSafe(|| {
        let worker = match worker {
            Some(worker) => worker,
            None => worker.insert(Worker::new(shared)?),
        };
        worker.answer(work, outbox, until)
    }));
    if let Some(turn) = worker.as_ref().and_then(|worker| worker.turn.as_ref()) {
        turn.end();
    }
    match answered {
        Ok(Ok(answer)) => {
            shared.metrics.answered(&answer);
            Update::Done(Box::new(answer))
        }
        Ok(Err(error)) => Update::Failed(error.into()),
        Err(_) => {
            *worker = None;
            shared.metrics.restarted();
            let message = "generating this answer ended with an error of this program; its thread is restarted";
            Update::Failed(Refusal::unavailable(message))
        }
    }
}

struct Worker<'s> {
    shared: &'s Shared,
    /// Lent to the session that answers.
    engine: Box<dyn Engine>,
    turn: Option<TurnEnd>,
    /// By format and variables.
    sessions: HashMap<(Option<String>, String), Tooled>,
}

/// A session, and the tools that it was given, as JSON.
struct Tooled {
    session: Session,
    tools: String,
    /// What is worth knowing about the tools.
    notes: Vec<String>,
}

impl<'s> Worker<'s> {
    fn new(shared: &'s Shared) -> Result<Worker<'s>> {
        let (engine, turn) = shared.sequences.take()?;
        Ok(Worker { shared, engine, turn, sessions: HashMap::new() })
    }

    fn answer(&mut self, work: Work, outbox: &Outbox, until: Instant) -> Result<Answer> {
        match work {
            Work::Chat(chat) => self.chat(*chat, outbox, until),
            Work::Text(text) => self.text(&text, outbox, until),
            #[cfg(test)]
            Work::Panic => panic!("a request that panics"),
        }
    }

    fn chat(&mut self, chat: Chat, outbox: &Outbox, until: Instant) -> Result<Answer> {
        let shared = self.shared;
        let mut options = chat.options(shared.model.entry(), &shared.defaults, shared.max_tokens);
        let seed = shared.seed(&mut options, chat.body.seed);
        options.cancel = outbox.cancel();
        let variables = &chat.body.variables;
        let key = (chat.own.format.clone(), Value::Object(variables.clone()).to_string());
        if !self.sessions.contains_key(&key) {
            if self.sessions.len() >= SESSIONS {
                self.sessions.clear();
            }
            let tooled = session(&shared.model, chat.own.format.as_deref(), variables)?;
            self.sessions.insert(key.clone(), tooled);
        }
        let Some(Tooled { session, tools, notes }) = self.sessions.get_mut(&key) else {
            return Err(Error::new(ErrorKind::Engine, "there is no session for this request"));
        };
        let holds_calls = chat.holds_calls(shared.stream_arguments);
        let asked = chat.tools.to_json().to_string();
        if *tools != asked {
            session.take_notices();
            session.set_tools(chat.tools);
            (*tools, *notes) = (asked, session.take_notices());
        }
        let mut notes: Vec<String> = chat.notes.into_iter().chain(notes.iter().cloned()).collect();
        if options.prefill.is_some() && self.engine.server().is_some_and(|server| !server.can_begin_answer()) {
            options.prefill = None;
            notes.push("the last message is not continued: the model's server begins answers itself".to_owned());
        }
        let ids = CallIds::new(&chat.messages, outbox.number());
        let begun = Begun::new(options.prefill.as_deref());
        *session.options_mut() = options;
        session.set_adopted_messages(chat.messages);
        let mut request = session.request()?;
        request.until = Some(until);
        let mut streamer = Streamer::new(outbox, &ids, holds_calls, begun.clone());
        session.swap_engine(&mut self.engine);
        // The engine has to come back before anything else may fail.
        let reply =
            catch_unwind(AssertUnwindSafe(|| session.answer(&request, &mut |event: &Event| streamer.event(event))));
        session.swap_engine(&mut self.engine);
        let mut reply = reply.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        reply.notes.splice(0..0, session.entry().map(|entry| Note::plain(NoteKind::Model, entry.to_owned())));
        reply.calls.iter_mut().for_each(|call| call.id = ids.of(&call.id));
        for call in &mut reply.message.tool_calls {
            call.id = call.id.as_deref().map(|id| ids.of(id));
        }
        reply.message.content = begun.clone().rest(&reply.message.content).to_owned();
        let written = streamer.into_arguments();
        let trace = chat.own.trace.then(|| trace(&*self.engine, session.format(), &reply));
        let mut answer = Answer::new(reply, written, notes, trace);
        answer.more.extend(seed);
        Ok(answer)
    }

    /// Continues a text, without a template.
    fn text(&mut self, text: &Text, outbox: &Outbox, until: Instant) -> Result<Answer> {
        let shared = self.shared;
        let mut options = text.options(shared.model.entry(), &shared.defaults, shared.max_tokens);
        let seed = shared.seed(&mut options, text.body.seed);
        let engine = &mut *self.engine;
        check_length(engine, text.prompt.len())?;
        let pieces = [Piece { text: text.prompt.clone(), literal: false }];
        if let Some(server) = engine.server_mut() {
            server.prepare(&pieces, &options, Some(until));
        }
        let prompt = engine.tokenize(&pieces)?;
        let limit = engine.context_limit();
        if prompt.is_empty() {
            return Err(Error::new(ErrorKind::Messages, "prompt is empty: there is nothing to continue"));
        }
        if prompt.len() >= limit {
            let message = format!("the prompt has {} tokens; the context holds {limit}", prompt.len());
            return Err(Error::new(ErrorKind::ContextOverflow, message).hint("shorten the prompt"));
        }
        let cancel = outbox.cancel();
        let limits = Limits { max_tokens: options.max_tokens, cancel: &cancel, until: Some(until) };
        let mut writer = TextWriter::new(&options.stop, outbox);
        if text.echo {
            writer.write(&text.prompt);
        }
        let probabilities = text.logprobs.map(Probabilities::new);
        let guides = Guides { probabilities: probabilities.as_ref(), ..Guides::default() };
        let sampler = Sampler::new(options.sampling).biased(&options.logit_bias);
        let generation = generate_with(engine, &prompt, sampler, limits, guides, &mut |bytes, _| {
            probabilities.iter().flat_map(Probabilities::take).for_each(|token| outbox.send(Update::Token(token)));
            writer.token(bytes)
        })?;
        let (content, stopped) = writer.finish();
        let reason = match generation.end {
            _ if stopped => FinishReason::Stop,
            End::EndOfTurn | End::Stopped => FinishReason::Stop,
            End::Cancelled => FinishReason::Cancelled,
            End::Length | End::Late => FinishReason::Length,
        };
        let mut more = Map::new();
        more.insert("finish_reason".to_owned(), json!(reason));
        more.insert("usage".to_owned(), json!(generation.usage));
        if let Some(note) = text.body.unused_note() {
            more.insert("notes".to_owned(), json!([{"kind": "request", "message": note}]));
        }
        more.extend(seed);
        let finish = if reason == FinishReason::Stop { Finish::Stop } else { Finish::Length };
        Ok(Answer { content, finish, usage: generation.usage, more, ..Answer::default() })
    }
}

/// A session of the model, which gets its engine for each answer.
fn session(model: &Model, format: Option<&str>, variables: &Map<String, Value>) -> Result<Tooled> {
    // A name only: a path would let a client read files.
    let format = format.map(|name| match Format::builtin(name) {
        Some(_) => Format::load(name),
        None => Err(Error::new(ErrorKind::Format, format!("callwright.format: there is no built-in format {name:?}"))),
    });
    let format = format.transpose()?;
    let mut session = model.start_on(model.engine(), None, format)?;
    session.take_notices();
    session.set_variables(variables.clone());
    let notes = session.take_notices();
    Ok(Tooled { session, tools: String::from("[]"), notes })
}

/// The prompt, what the model wrote, the tokens of both, and what shows where the markup is in them.
fn trace(engine: &dyn Engine, format: &Format, reply: &Reply) -> Value {
    let shown = |tokens: &[Token]| -> Value {
        tokens.iter().map(|token| String::from_utf8_lossy(engine.token_bytes(*token)).into_owned()).collect()
    };
    let raw = String::from_utf8_lossy(&reply.raw);
    let model = engine.model();
    let of_model = model.control_tokens.iter().chain(&model.user_defined_tokens).map(String::as_str);
    let occurs = |marker: &&str| !marker.is_empty() && (raw.contains(*marker) || reply.prompt.contains(*marker));
    let markers: BTreeSet<&str> = format.reserved().chain(of_model).filter(occurs).collect();
    let calls = reply.calls.iter().map(|call| json!({"id": call.id, "start": call.range.start, "end": call.range.end}));
    let calls: Value = calls.collect();
    let forced: Value = reply.forced.iter().map(|run| json!([run.start, run.end])).collect();
    json!({
        "format": format.name,
        "prompt": reply.prompt,
        "prompt_tokens": shown(&prompt(engine, reply)),
        "raw": raw,
        "tokens": shown(&reply.tokens),
        "forced": forced,
        "calls": calls,
        "markers": markers,
    })
}

/// The tokens of an answer's prompt. The engine has those that were decoded: text of a message is other tokens than markup
/// that reads the same.
fn prompt(engine: &dyn Engine, reply: &Reply) -> Vec<Token> {
    match engine.cached().get(..reply.usage.prompt_tokens) {
        Some(tokens) => tokens.to_vec(),
        None => engine.tokenize(&[Piece { text: reply.prompt.clone(), literal: false }]).unwrap_or_default(),
    }
}

/// Writes the continuation of a text: whole characters, up to a stop text.
struct TextWriter<'a> {
    stops: Stops<'a>,
    outbox: &'a Outbox,
    text: String,
    /// The beginning of a character.
    pending: Vec<u8>,
}

impl<'a> TextWriter<'a> {
    fn new(stops: &'a [String], outbox: &'a Outbox) -> TextWriter<'a> {
        TextWriter { stops: Stops::new(stops), outbox, text: String::new(), pending: Vec::new() }
    }

    fn token(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.pending.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.pending) {
            Ok(_) => self.pending.len(),
            // Bytes that can never become a character are replaced.
            Err(error) => error.error_len().map_or(error.valid_up_to(), |length| error.valid_up_to() + length),
        };
        let more: Vec<u8> = self.pending.drain(..whole).collect();
        let shown = self.stops.push(&String::from_utf8_lossy(&more));
        self.write(&shown);
        if self.stops.found() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn write(&mut self, text: &str) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.outbox.send(Update::Text(text.to_owned()));
        }
    }

    /// The text, and whether a stop text ended it.
    fn finish(mut self) -> (String, bool) {
        let rest = self.stops.push(&String::from_utf8_lossy(&self.pending)) + &self.stops.release();
        self.write(&rest);
        (self.text, self.stops.found())
    }
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests;
