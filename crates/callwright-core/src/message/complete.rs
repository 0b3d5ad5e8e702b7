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
/// - A result that comes later, or before its call, moves to its call.
/// - A result in several messages is joined.
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
    /// Results whose calls come later.
    early: Vec<Placed>,
}

impl Completed {
    fn push(&mut self, placed: Placed, rest: &mut VecDeque<Placed>) {
        if placed.message.role == Role::Tool {
            match answered(&self.open, &placed.message) {
                Some(call) => {
                    self.open.remove(call);
                    self.placed.push(placed);
                }
                None if comes_before_its_call(&placed.message, rest) => self.early.push(placed),
                None => self.unanswered(placed),
            }
            return;
        }
        self.close(rest);
        let at = placed.at;
        let mut open: Vec<(ToolCall, usize)> =
            placed.message.tool_calls.iter().map(|call| (call.clone(), at)).collect();
        self.placed.push(placed);
        let ids: Vec<Option<String>> = open.iter().map(|(call, _)| call.id.clone()).collect();
        let (now, later) =
            std::mem::take(&mut self.early).into_iter().partition(|early| ids.contains(&early.message.tool_call_id));
        self.early = later;
        for early in now {
            let Some(call) = open.iter().position(|(call, _)| call.id == early.message.tool_call_id) else {
                self.unanswered(early);
                continue;
            };
            let (call, _) = open.remove(call);
            self.notes.push(moved(&early, &call, at));
            self.placed.push(early);
        }
        self.open = open;
    }

    /// Joins a result to one with the same id right before, which other programs send in parts.
    fn unanswered(&mut self, placed: Placed) {
        let group = self.placed.iter_mut().rev().take_while(|other| other.message.role == Role::Tool);
        let id = placed.message.tool_call_id.as_ref();
        let mut same = group.filter(|other| id.is_some() && other.message.tool_call_id.as_ref() == id);
        let Some(first) = same.next() else { return self.orphans.push(placed) };
        let (text, more) = (&mut first.message.content, &placed.message.content);
        if text != more {
            text.push_str(if text.is_empty() || more.is_empty() { "" } else { "\n" });
            text.push_str(more);
        }
        self.notes.push(format!(
            "messages[{}] answers the same call as messages[{}]; the prompt shows them as one result",
            placed.at, first.at
        ));
    }

    /// Closes the results of a message's calls.
    fn close(&mut self, rest: &mut VecDeque<Placed>) {
        for (call, at) in std::mem::take(&mut self.open) {
            let answers = |placed: &Placed| {
                let id = placed.message.tool_call_id.as_ref();
                placed.message.role == Role::Tool && id.is_some() && id == call.id.as_ref()
            };
            if let Some(late) = rest.iter().position(answers).and_then(|index| rest.remove(index)) {
                self.notes.push(moved(&late, &call, at));
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

/// The note on a result that moves to its call in `messages[at]`.
fn moved(result: &Placed, call: &ToolCall, at: usize) -> String {
    format!(
        "messages[{}] is the result of the call of {} in messages[{at}]; the prompt shows it right after the call",
        result.at, call.name
    )
}

/// Returns whether a result names a call that comes later and has no other result after it.
fn comes_before_its_call(result: &Message, rest: &VecDeque<Placed>) -> bool {
    let Some(id) = &result.tool_call_id else { return false };
    let calls = |placed: &Placed| {
        placed.message.role != Role::Tool && placed.message.tool_calls.iter().any(|call| call.id.as_ref() == Some(id))
    };
    let answers = |placed: &Placed| placed.message.tool_call_id.as_ref() == Some(id);
    let Some(at) = rest.iter().position(calls) else { return false };
    !rest.range(at..).any(answers)
}

/// Returns whether the results of parallel calls are in the order of the calls. Every call has its result.
pub(crate) fn are_in_call_order(messages: &[Message]) -> bool {
    messages.iter().enumerate().all(|(at, message)| {
        let results = messages[at + 1..].iter().take(message.tool_calls.len());
        message.tool_calls.len() < 2 || order(&message.tool_calls, results).is_sorted()
    })
}

/// Sorts results into the order of their calls, for templates from whose output only the order shows which result is
/// whose, and reports it. Every call has its result.
pub(crate) fn in_call_order(placed: &mut [Placed]) -> Vec<String> {
    let mut notes = Vec::new();
    for index in 0..placed.len() {
        let (before, results) = placed.split_at_mut(index + 1);
        let Placed { message, at, .. } = &before[index];
        let count = message.tool_calls.len().min(results.len());
        let results = &mut results[..count];
        let order = order(&message.tool_calls, results.iter().map(|result| &result.message));
        if order.is_sorted() {
            continue;
        }
        let mut sorted: Vec<(Option<usize>, Placed)> = order.into_iter().zip(results.iter().cloned()).collect();
        sorted.sort_by_key(|(call, _)| *call);
        results.iter_mut().zip(sorted).for_each(|(place, (_, result))| *place = result);
        notes.push(format!(
            "the results of the calls in messages[{at}] are shown in the order of the calls: the template writes no ids"
        ));
    }
    notes
}

/// The index of the call that each result answers.
fn order<'m>(calls: &[ToolCall], results: impl Iterator<Item = &'m Message>) -> Vec<Option<usize>> {
    let mut open: Vec<(ToolCall, usize)> = calls.iter().cloned().zip(0..).collect();
    results.map(|result| answered(&open, result).map(|at| open.remove(at).1)).collect()
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
