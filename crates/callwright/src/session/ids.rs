//! Ids in the shape that a chat template demands.
//!
//! Mistral's templates raise an exception over an id that is not nine letters and digits. Kimi's models read
//! `functions.NAME:INDEX`. A history of another program has others, and so may a model that writes ids. The conversation
//! keeps them: only the prompt shows others.

use crate::format::{Format, Payload};
use crate::message::{Arguments, Message, Role, ToolCall};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

/// An id in the shape that the strictest templates demand.
const SHORT: &str = "call00001";
/// An id in a shape that is usual elsewhere.
const LONG: &str = "call_callwright_probe";

fn is_short(id: &str) -> bool {
    id.len() == SHORT.len() && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The ids that a chat template takes.
#[derive(Default)]
pub(super) struct Ids {
    /// Whether they have to be short, once that was found out.
    short: OnceCell<bool>,
    /// Whether the template writes them at all, likewise.
    written: OnceCell<bool>,
}

impl Ids {
    /// The messages with other ids, results' ids alike, if the chat template or the format does not take those that they
    /// have. `render` writes a conversation, if the chat template can.
    pub(super) fn replaced(
        &self,
        messages: &[Message],
        format: &Format,
        render: impl Fn(&[Message]) -> Option<String>,
    ) -> Option<Vec<Message>> {
        self.shortened(messages, &render).or_else(|| self.composed(messages, format, &render))
    }

    fn shortened(&self, messages: &[Message], render: impl Fn(&[Message]) -> Option<String>) -> Option<Vec<Message>> {
        let ids = |message: &Message| message.tool_calls.iter().filter_map(|call| call.id.clone()).collect::<Vec<_>>();
        let long = |call: &ToolCall| call.id.as_deref().is_some_and(|id| !is_short(id));
        if !messages.iter().flat_map(|message| &message.tool_calls).any(long) || !self.have_to_be_short(render) {
            return None;
        }
        let mut messages = messages.to_vec();
        let mut taken: HashSet<String> = messages.iter().flat_map(ids).filter(|id| is_short(id)).collect();
        let mut short: HashMap<String, String> = HashMap::new();
        let mut next = 0;
        for id in messages.iter().flat_map(ids).filter(|id| !is_short(id)) {
            short.entry(id).or_insert_with(|| {
                loop {
                    next += 1;
                    let id = format!("call{next:05}");
                    if taken.insert(id.clone()) {
                        break id;
                    }
                }
            });
        }
        let replace = |id: &mut Option<String>| {
            if let Some(other) = id.as_ref().and_then(|id| short.get(id)) {
                *id = Some(other.clone());
            }
        };
        for message in &mut messages {
            replace(&mut message.tool_call_id);
            message.tool_calls.iter_mut().for_each(|call| replace(&mut call.id));
        }
        Some(messages)
    }

    fn have_to_be_short(&self, render: impl Fn(&[Message]) -> Option<String>) -> bool {
        *self.short.get_or_init(|| {
            let renders = |id: &str| {
                let call = probe(id, "");
                render(&[Message::user("?"), Message::calls(vec![call]), Message::tool(id, "probe", "!")]).is_some()
            };
            !renders(LONG) && renders(SHORT)
        })
    }

    /// The messages with ids that are built as the format builds them from name and index, if some are not.
    fn composed(
        &self,
        messages: &[Message],
        format: &Format,
        render: impl Fn(&[Message]) -> Option<String>,
    ) -> Option<Vec<Message>> {
        let head = match &format.payload {
            Payload::Named(named) => &named.head,
            Payload::Tagged(tagged) => &tagged.head,
            _ => return None,
        };
        let pattern = head.id.as_deref().filter(|id| id.contains("{name}"))?;
        let (before, after) = pattern.split_once("{index}")?;
        let compose = |name: &str, index: usize| pattern.replace("{name}", name).replace("{index}", &index.to_string());
        let is_own = |call: &ToolCall| {
            let index = call.id.as_deref().and_then(|id| id.strip_prefix(&before.replace("{name}", &call.name)));
            index.and_then(|rest| rest.strip_suffix(after)).is_some_and(|index| index.parse::<u32>().is_ok())
        };
        if messages.iter().flat_map(|message| &message.tool_calls).all(is_own) {
            return None;
        }
        // A template that does not write ids counts the calls of each message by itself.
        let counts_all = *self.written.get_or_init(|| {
            let call = Message::calls(vec![probe(LONG, "{}")]);
            render(&[Message::user("?"), call]).is_some_and(|prompt| prompt.contains(LONG))
        });
        let mut messages = messages.to_vec();
        let mut others: HashMap<String, String> = HashMap::new();
        let mut earlier = 0;
        for message in &mut messages {
            let first = if counts_all { earlier } else { 0 };
            earlier += message.tool_calls.len();
            for (index, call) in message.tool_calls.iter_mut().enumerate().filter(|(_, call)| !is_own(call)) {
                let id = compose(&call.name, first + index);
                if let Some(old) = call.id.replace(id.clone()) {
                    others.insert(old, id);
                }
            }
            if message.role == Role::Tool
                && let Some(id) = message.tool_call_id.as_ref().and_then(|id| others.get(id))
            {
                message.tool_call_id = Some(id.clone());
            }
        }
        Some(messages)
    }
}

fn probe(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: Some(id.to_owned()), name: "probe".to_owned(), arguments: Arguments::from_text(arguments) }
}
