//! Ids in the shape that a chat template demands.
//!
//! Mistral's templates raise an exception over an id that is not nine letters and digits. A history of another program
//! has others, and so may a model that writes ids. The conversation keeps them: only the prompt shows others.

use crate::message::{Arguments, Message, ToolCall};
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
}

impl Ids {
    /// The messages with other ids, results' ids alike, if the chat template does not take those that they have. `renders`
    /// says whether it writes a conversation at all.
    pub(super) fn replaced(&self, messages: &[Message], renders: impl Fn(&[Message]) -> bool) -> Option<Vec<Message>> {
        let ids = |message: &Message| message.tool_calls.iter().filter_map(|call| call.id.clone()).collect::<Vec<_>>();
        let long = |call: &ToolCall| call.id.as_deref().is_some_and(|id| !is_short(id));
        if !messages.iter().flat_map(|message| &message.tool_calls).any(long) || !self.have_to_be_short(renders) {
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

    fn have_to_be_short(&self, renders: impl Fn(&[Message]) -> bool) -> bool {
        *self.short.get_or_init(|| {
            let renders = |id: &str| {
                let call =
                    ToolCall { id: Some(id.to_owned()), name: "probe".to_owned(), arguments: Arguments::from_text("") };
                renders(&[Message::user("?"), Message::calls(vec![call]), Message::tool(id, "probe", "!")])
            };
            !renders(LONG) && renders(SHORT)
        })
    }
}
