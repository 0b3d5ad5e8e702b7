//! The order that chat templates need: each call is answered right after its message.
//!
//! A conversation that was interrupted, cut off or assembled by hand has calls without results and results without
//! calls. Templates fail on them, or write something wrong. This runs when the prompt is built; the conversation itself
//! is unchanged.

use super::{Message, Role, ToolCall, check_answered};
use std::collections::VecDeque;

/// The result of a call that has none.
const INTERRUPTED: &str = "interrupted: there is no result of this call";

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Placed {
    /// The message.
    pub message: Message,
    /// Index of the original message in the conversation.
    pub at: usize,
    /// Whether it was inserted because a template requires a message there.
    pub inserted: bool,
}

impl Placed {
    /// A message of the conversation.
    pub fn new(at: usize, message: Message) -> Placed {
        Placed { message, at, inserted: false }
    }
}

/// Gives every call its result and every result its call, and reports the changes:
///
/// - A later result moves to its call.
/// - A call without a result gets one that begins with "interrupted".
/// - A result that answers no call becomes a user message.
///
/// ```
/// use callwright_core::message::{Arguments, Message, Placed, Role, ToolCall, complete};
///
/// let call = ToolCall { id: Some("a".into()), name: "clock".into(), arguments: Arguments::from_text("") };
/// let messages = [Message::user("Time?"), Message::calls(vec![call]), Message::user("Never mind.")];
/// let placed = messages.into_iter().enumerate().map(|(at, message)| Placed::new(at, message)).collect();
/// let (placed, notes) = complete(placed);
/// assert_eq!(placed[2].message.role, Role::Tool);
/// assert!(placed[2].message.content.starts_with("interrupted"));
/// assert_eq!(notes.len(), 1);
/// ```
pub fn complete(placed: Vec<Placed>) -> (Vec<Placed>, Vec<String>) {
    let messages: Vec<Message> = placed.iter().map(|placed| placed.message.clone()).collect();
    if check_answered(&messages).is_ok() {
        return (placed, Vec::new());
    }
    let mut completed = Completed::default();
    let mut rest: VecDeque<Placed> = placed.into();
    while let Some(placed) = rest.pop_front() {
        completed.push(placed, &mut rest);
    }
    completed.close(&mut rest);
    (completed.placed, completed.notes)
}

#[derive(Default)]
struct Completed {
    placed: Vec<Placed>,
    notes: Vec<String>,
    /// Calls that wait for results, and their positions.
    open: Vec<(ToolCall, usize)>,
    /// Results that answer no call. They must not come between the others.
    orphans: Vec<Placed>,
}

impl Completed {
    fn push(&mut self, placed: Placed, rest: &mut VecDeque<Placed>) {
        if placed.message.role == Role::Tool {
            return match answered(&self.open, &placed.message) {
                Some(call) => {
                    self.open.remove(call);
                    self.placed.push(placed);
                }
                None => self.orphans.push(placed),
            };
        }
        self.close(rest);
        self.open.extend(placed.message.tool_calls.iter().map(|call| (call.clone(), placed.at)));
        self.placed.push(placed);
    }

    /// Closes the results of a message's calls.
    fn close(&mut self, rest: &mut VecDeque<Placed>) {
        for (call, at) in std::mem::take(&mut self.open) {
            let answers = |placed: &Placed| {
                let id = placed.message.tool_call_id.as_ref();
                placed.message.role == Role::Tool && id.is_some() && id == call.id.as_ref()
            };
            if let Some(late) = rest.iter().position(answers).and_then(|index| rest.remove(index)) {
                self.notes.push(format!(
                    "messages[{}] is the result of the call of {} in messages[{at}]; the prompt shows it right after \
                     the call",
                    late.at, call.name
                ));
                self.placed.push(late);
                continue;
            }
            self.notes.push(format!(
                "the call of {} in messages[{at}] has no result; the prompt says that it was interrupted",
                call.name
            ));
            let result =
                Message { tool_call_id: call.id, name: Some(call.name), ..Message::new(Role::Tool, INTERRUPTED) };
            self.placed.push(Placed { message: result, at, inserted: true });
        }
        for Placed { message, at, inserted } in std::mem::take(&mut self.orphans) {
            self.notes.push(format!("messages[{at}] is a result that answers no call; the prompt shows it as text"));
            self.placed.push(Placed { message: as_text(message), at, inserted });
        }
    }
}

/// The open call that a result answers, by the rule of [`check_order`](super::check_order).
fn answered(open: &[(ToolCall, usize)], result: &Message) -> Option<usize> {
    let Some(id) = &result.tool_call_id else { return if open.is_empty() { None } else { Some(0) } };
    let by_id = open.iter().position(|(call, _)| call.id.as_ref() == Some(id));
    by_id.or_else(|| open.iter().position(|(call, _)| call.id.is_none()))
}

/// A tool's result as a user message.
pub(crate) fn as_text(message: Message) -> Message {
    let name = message.name.as_deref().or(message.tool_call_id.as_deref()).unwrap_or("a tool");
    Message::user(format!("[Result of {name}]\n{}", message.content))
}
