//! What a client gets of an answer while it is generated, and how it knows that the client is gone.

use super::line::Line;
use super::refusal::Refusal;
use callwright::generate::{TokenProbability, Usage};
use callwright::message::Message;
use callwright::parse::event::Event as Parsed;
use callwright::parse::{ParsedCall, message_to_json};
use callwright::session::{Event, FinishReason, Note, NoteKind, Reply};
use callwright::setting::Front;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A step of an answer.
#[derive(Debug)]
pub(super) enum Update {
    Reasoning(String),
    Text(String),
    /// A call begins, the one numbered `index` of the answer.
    Call {
        index: usize,
        id: String,
        name: String,
    },
    Arguments {
        index: usize,
        delta: String,
    },
    /// The arguments of the last call are over.
    CallEnd,
    /// A token of what comes, with its probability.
    Token(TokenProbability),
    /// The answer is over.
    Done(Box<Answer>),
    /// There is none.
    Failed(Refusal),
}

/// An answer that is over.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub content: String,
    pub reasoning: Option<String>,
    /// The calls that a client may execute, if they are valid.
    pub calls: Vec<Call>,
    pub finish: Finish,
    pub usage: Usage,
    /// What only this server says about an answer.
    pub more: Map<String, Value>,
}

/// A complete call.
#[derive(Debug)]
pub(super) struct Call {
    pub id: String,
    pub name: String,
    /// JSON text, as it was streamed.
    pub arguments: String,
    pub valid: bool,
}

/// Why an answer is over, as clients of OpenAI's API know it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Finish {
    #[default]
    Stop,
    ToolCalls,
    /// It was cut off: by a limit, or because the server ended it.
    Length,
}

impl Answer {
    /// The answer of a session. `notes` were known before it.
    pub(super) fn new(
        reply: Reply,
        written: Vec<(String, String)>,
        notes: Vec<String>,
        trace: Option<Value>,
    ) -> Answer {
        let notes =
            notes.into_iter().map(|note| Note::plain(NoteKind::Request, note)).chain(reply.notes).map(|mut note| {
                note.message = Front::Server.message(&note.message).into_owned();
                note
            });
        let mut message = message_to_json(&reply.message, &reply.calls);
        let whole: Vec<ParsedCall> = reply.calls.into_iter().filter(ParsedCall::is_whole).collect();
        let finish = match reply.finish_reason {
            // An agent goes on after a limit, and would repeat the loop.
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Loop if whole.is_empty() => Finish::Stop,
            FinishReason::Stop => Finish::Stop,
            FinishReason::ToolCalls | FinishReason::Loop => Finish::ToolCalls,
            _ => Finish::Length,
        };
        let (repairs, notes): (Vec<Note>, Vec<Note>) = notes.partition(|note| note.kind == NoteKind::Repair);
        let invalid =
            whole.iter().filter(|call| !call.valid).map(|call| json!({"id": call.id, "error": call.error_text()}));
        let fields = [
            ("finish_reason", json!(reply.finish_reason)),
            ("invalid_tool_calls", message["invalid_tool_calls"].take()),
            ("misfits", invalid.collect()),
            ("repairs", json!(repairs)),
            ("notes", json!(notes)),
            ("call_probability", json!(reply.call_probability)),
            ("decided", json!(reply.decided)),
            ("usage", json!(reply.usage)),
            ("trace", trace.unwrap_or_default()),
        ];
        let mut written: HashMap<String, String> = written.into_iter().collect();
        let call = |call: ParsedCall| Call {
            arguments: written.remove(&call.id).unwrap_or_else(|| call.arguments.to_text()),
            id: call.id,
            name: call.name,
            valid: call.valid,
        };
        let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        let more = fields.into_iter().filter(|(_, value)| !empty(value));
        let more: Map<String, Value> = more.map(|(name, value)| (name.to_owned(), value)).collect();
        let calls = whole.into_iter().map(call).collect();
        Answer {
            content: reply.message.content,
            reasoning: reply.message.reasoning,
            calls,
            finish,
            usage: reply.usage,
            more,
        }
    }
}

/// The updates of one answer, on their way to a client, and whether they are still wanted.
pub(super) struct Outbox {
    /// The answer's number among those to the same request.
    number: usize,
    updates: UnboundedSender<(usize, Update)>,
    cancel: Arc<AtomicBool>,
}

/// Where a client gets the updates of the answers to its request. Dropping it ends the answers.
pub(super) struct Inbox {
    updates: UnboundedReceiver<(usize, Update)>,
    pub cancel: Cancel,
    /// What is logged of the request.
    pub line: Option<Arc<Line>>,
}

/// Ends what is done for a client. It is raised where it is dropped, which it is when the client leaves.
#[derive(Default)]
pub(super) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Returns what is raised, as long as it is there.
    pub(super) fn flag(&self) -> Weak<AtomicBool> {
        Arc::downgrade(&self.0)
    }

    /// Returns what is raised.
    pub(super) fn raised(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Both ends, for one answer. They are not bounded, so that a client that reads slowly does not keep a place; an answer is not
/// long.
pub(super) fn channel() -> (Outbox, Inbox) {
    let (send, receive) = unbounded_channel();
    let cancel = Cancel::default();
    (Outbox { number: 0, updates: send, cancel: cancel.raised() }, Inbox { updates: receive, cancel, line: None })
}

impl Inbox {
    /// The next update, and the number of its answer; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<(usize, Update)> {
        let update = self.updates.recv().await;
        if let (Some(line), Some((_, Update::Done(answer)))) = (&self.line, &update) {
            line.answered(&answer.usage);
        }
        update
    }
}

impl Outbox {
    /// Where another answer to the same request goes.
    pub(super) fn another(&self, number: usize) -> Outbox {
        Outbox { number, updates: self.updates.clone(), cancel: Arc::clone(&self.cancel) }
    }

    pub(super) fn send(&self, update: Update) {
        // A client that is gone has raised the flag.
        let _ = self.updates.send((self.number, update));
    }

    /// The answer's number among those to the same request.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Raised when the client is gone, or to end the answer.
    pub(super) fn cancel(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancel)
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.cancel.load(Ordering::Relaxed)
    }
}

/// The ids of an answer's calls. They are other ones than in any other answer, also where a client no longer sends the beginning of
/// its conversation, and the same where a request is repeated.
pub(super) struct CallIds(DefaultHasher);

impl CallIds {
    /// For the answer with this number to a conversation.
    pub(super) fn new(messages: &[Message], number: usize) -> CallIds {
        let mut hasher = DefaultHasher::new();
        number.hash(&mut hasher);
        for message in messages {
            (&message.content, &message.reasoning, &message.tool_call_id).hash(&mut hasher);
            message.tool_calls.iter().for_each(|call| (&call.id, &call.name).hash(&mut hasher));
        }
        CallIds(hasher)
    }

    /// The id in place of one that the parser made. One that the model wrote stays. It has the shape that the strictest chat
    /// templates demand, nine letters and digits.
    pub(super) fn of(&self, id: &str) -> String {
        let made =
            id.len() == 9 && id.strip_prefix("call").is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_digit()));
        if !made {
            return id.to_owned();
        }
        let mut hasher = self.0.clone();
        id.hash(&mut hasher);
        let mut rest = hasher.finish();
        let mut digit = || {
            let digit = char::from_digit((rest % 36) as u32, 36).unwrap_or('0');
            rest /= 36;
            digit
        };
        (0..9).map(|_| digit()).collect()
    }
}

/// Turns a session's events into updates. A call that is cut off is not among them where calls are held until they are
/// complete; otherwise its arguments end where the model stopped, and are no JSON.
pub(super) struct Streamer<'a> {
    outbox: &'a Outbox,
    ids: &'a CallIds,
    hold: bool,
    /// What of the text's beginning the client has already.
    begun: Begun,
    /// How many calls were sent.
    sent: usize,
    /// The calls that have not ended: id, name, and the arguments that were not sent.
    open: Vec<Open>,
    /// The calls that are complete: their ids, and their arguments as they were written.
    arguments: Vec<(String, String)>,
}

struct Open {
    /// Its id in events.
    parsed: String,
    id: String,
    name: String,
    index: Option<usize>,
    held: Vec<String>,
    arguments: String,
}

impl<'a> Streamer<'a> {
    /// Streams an answer that begins with a text that is not sent.
    pub(super) fn new(outbox: &'a Outbox, ids: &'a CallIds, hold: bool, begun: Begun) -> Streamer<'a> {
        Streamer { outbox, ids, hold, begun, sent: 0, open: Vec::new(), arguments: Vec::new() }
    }

    /// The calls that were complete, with their arguments as they were written: a whole answer has the same text as a
    /// stream.
    pub(super) fn into_arguments(self) -> Vec<(String, String)> {
        self.arguments
    }

    pub(super) fn event(&mut self, event: &Event) {
        let event = match event {
            Event::Parsed(event) => event,
            Event::Token(token) => return self.outbox.send(Update::Token(token.clone())),
            _ => return,
        };
        match event {
            Parsed::Text { delta } => {
                let delta = self.begun.rest(delta);
                if !delta.is_empty() {
                    self.outbox.send(Update::Text(delta.to_owned()));
                }
            }
            Parsed::Reasoning { delta } => self.outbox.send(Update::Reasoning(delta.clone())),
            Parsed::CallStart { id, name } => {
                self.open.push(Open {
                    parsed: id.clone(),
                    id: self.ids.of(id),
                    name: name.clone(),
                    index: None,
                    held: Vec::new(),
                    arguments: String::new(),
                });
                if !self.hold {
                    self.release(self.open.len() - 1);
                }
            }
            Parsed::CallArguments { id, delta } => {
                let Some(at) = self.open.iter().position(|open| open.parsed == *id) else { return };
                self.open[at].held.push(delta.clone());
                self.open[at].arguments.push_str(delta);
                if !self.hold {
                    self.release(at);
                }
            }
            Parsed::CallEnd { id, complete, .. } => {
                let Some(at) = self.open.iter().position(|open| open.parsed == *id) else { return };
                // One whose arguments are no object is beyond repair, and in no answer.
                let whole = *complete && is_object(&self.open[at].arguments);
                if whole {
                    self.release(at);
                }
                let open = self.open.remove(at);
                if open.index.is_some() {
                    self.outbox.send(Update::CallEnd);
                }
                if whole {
                    self.arguments.push((open.id, open.arguments));
                }
            }
            _ => {}
        }
    }

    /// Sends what is known of a call.
    fn release(&mut self, at: usize) {
        let open = &mut self.open[at];
        let index = *open.index.get_or_insert_with(|| {
            self.outbox.send(Update::Call { index: self.sent, id: open.id.clone(), name: open.name.clone() });
            self.sent += 1;
            self.sent - 1
        });
        for delta in open.held.drain(..) {
            self.outbox.send(Update::Arguments { index, delta });
        }
    }
}

/// Returns whether a text is a JSON object. It may have a name twice, and numbers of any size.
pub(super) fn is_object(text: &str) -> bool {
    serde_json::from_str::<HashMap<String, serde::de::IgnoredAny>>(text).is_ok()
}

/// The beginning of an answer's text that its client sent itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Begun(String);

impl Begun {
    /// The text that an answer continues, if it does.
    pub(super) fn new(prefill: Option<&str>) -> Begun {
        // A parser passes no white space before an answer on.
        Begun(prefill.unwrap_or_default().trim_start().to_owned())
    }

    /// What of the next piece of text is new.
    pub(super) fn rest<'t>(&mut self, text: &'t str) -> &'t str {
        let same = self.0.chars().zip(text.chars()).take_while(|(one, other)| one == other);
        let same: usize = same.map(|(one, _)| one.len_utf8()).sum();
        if same == self.0.len() || same == text.len() {
            self.0.drain(..same);
        } else {
            self.0.clear();
        }
        &text[same..]
    }
}
