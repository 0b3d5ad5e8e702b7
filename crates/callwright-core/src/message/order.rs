//! Checks that calls and results are in an order that a chat template can write.

use super::{Message, Role, ToolCall};
use crate::error::{Error, ErrorKind, Result};
use crate::setting::Setting;
use std::collections::HashMap;

/// Checks that a model can speak next: there is a message to answer, and every call has its result.
///
/// ```
/// use callwright_core::message::{Message, check_question};
/// assert!(check_question(&[Message::system("Be brief."), Message::user("Hello")]).is_ok());
/// assert_eq!(check_question(&[]).unwrap_err().message(), "there is no question: the conversation is empty");
/// ```
///
/// # Errors
/// [`ErrorKind::Messages`], and those of [`check_order`].
pub fn check_question(messages: &[Message]) -> Result<()> {
    check_answered(messages)?;
    check_asked(messages)
}

/// Checks only that there is a message to answer.
///
/// # Errors
/// [`ErrorKind::Messages`] if no message is from the user or a tool.
pub fn check_asked(messages: &[Message]) -> Result<()> {
    if messages.iter().any(|message| matches!(message.role, Role::User | Role::Tool)) {
        return Ok(());
    }
    let what = if messages.is_empty() { "the conversation is empty" } else { "no message is the user's" };
    Err(Error::new(ErrorKind::Messages, format!("there is no question: {what}"))
        .hint(format!("add a message of role user, or {}", Setting::Question)))
}

/// Like [`check_order`], but the last calls must also have results.
///
/// # Errors
/// [`ErrorKind::Messages`] with the unanswered call, and those of [`check_order`].
pub fn check_answered(messages: &[Message]) -> Result<()> {
    let open = walk(messages)?;
    let Some(first) = open.first() else { return Ok(()) };
    let text = format!("the {} in messages[{}] has no result yet", first.described(), first.message);
    Err(Error::new(ErrorKind::Messages, text)
        .hint("add a message of role tool with its tool_call_id before the model speaks again"))
}

struct Open<'a> {
    call: &'a ToolCall,
    message: usize,
}

impl Open<'_> {
    fn described(&self) -> String {
        match &self.call.id {
            Some(id) => format!("call {id:?} of {}", self.call.name),
            None => format!("call of {}", self.call.name),
        }
    }
}

/// Checks that every tool message answers an earlier call, that every call is answered before anyone else speaks, and
/// that no two calls share an id.
///
/// A result without an id, or for a call without one, answers the first open call. Calls still open at the end are
/// allowed: see [`open_calls`].
pub fn check_order(messages: &[Message]) -> Result<()> {
    walk(messages).map(|_| ())
}

/// The unanswered calls; their results come next.
pub fn open_calls(messages: &[Message]) -> Result<Vec<&ToolCall>> {
    Ok(walk(messages)?.into_iter().map(|open| open.call).collect())
}

fn walk(messages: &[Message]) -> Result<Vec<Open<'_>>> {
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut made: HashMap<&str, usize> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        if message.role == Role::Tool {
            let answered = answered_call(message, index, &open, &made)?;
            open.remove(answered);
            continue;
        }
        if let Some(first) = open.first() {
            let text = format!(
                "messages[{index}] is {} message, but the {} in messages[{}] has no result yet; expected a tool \
                 message that answers it",
                match message.role {
                    Role::Assistant => "an assistant",
                    Role::System => "a system",
                    Role::User | Role::Tool => "a user",
                },
                first.described(),
                first.message
            );
            let error = Error::new(ErrorKind::Messages, text);
            return Err(match (&first.call.id, message.role) {
                (Some(id), Role::User) => {
                    error.hint(format!("if it is the call's result, give it role tool and tool_call_id {id:?}"))
                }
                _ => error,
            });
        }
        for (position, call) in message.tool_calls.iter().enumerate() {
            if let Some(id) = call.id.as_deref()
                && let Some(earlier) = made.insert(id, index)
            {
                let text = format!(
                    "messages[{index}].tool_calls[{position}].id is {id:?}, which a call in messages[{earlier}] \
                     already has; expected an id of its own"
                );
                return Err(Error::new(ErrorKind::Messages, text));
            }
            open.push(Open { call, message: index });
        }
    }
    Ok(open)
}

fn answered_call(message: &Message, index: usize, open: &[Open<'_>], made: &HashMap<&str, usize>) -> Result<usize> {
    let Some(id) = message.tool_call_id.as_deref() else {
        return if open.is_empty() {
            Err(Error::new(
                ErrorKind::Messages,
                format!(
                    "messages[{index}] is a tool message, but no call is open; expected it after the call it answers"
                ),
            ))
        } else {
            Ok(0)
        };
    };
    let by_id = open.iter().position(|open| open.call.id.as_deref() == Some(id));
    if let Some(found) = by_id.or_else(|| open.iter().position(|open| open.call.id.is_none())) {
        return Ok(found);
    }
    let expected = match open {
        [] if made.contains_key(id) => "that call already has its result".to_owned(),
        [] => "no call is open".to_owned(),
        _ => format!(
            "expected {}",
            open.iter()
                .filter_map(|o| o.call.id.as_deref())
                .map(|id| format!("{id:?}"))
                .collect::<Vec<_>>()
                .join(" or ")
        ),
    };
    Err(Error::new(
        ErrorKind::Messages,
        format!("messages[{index}].tool_call_id is {id:?}, which answers no open call; {expected}"),
    ))
}
