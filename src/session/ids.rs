//! Ids in the shape that a chat template demands.
//!
//! Mistral's templates raise an exception over an id that is not nine letters and digits. A history of another program
//! has others, and so may a model that writes ids. The conversation keeps them: only the prompt shows others.

use super::Session;
use super::prompt::AnswerRequest;
use crate::message::{Arguments, Message, ToolCall};
use std::collections::{HashMap, HashSet};

/// An id in the shape that the strictest templates demand.
const SHORT: &str = "call00001";
/// An id in a shape that is usual elsewhere.
const LONG: &str = "call_callwright_probe";

fn is_short(id: &str) -> bool {
    id.len() == SHORT.len() && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl Session {
    /// The messages with other ids, results' ids alike, if the chat template does not take those that they have.
    pub(super) fn with_short_ids(&self, request: &AnswerRequest) -> Option<Vec<Message>> {
        let ids = |message: &Message| message.tool_calls.iter().filter_map(|call| call.id.clone()).collect::<Vec<_>>();
        let long = |call: &ToolCall| call.id.as_deref().is_some_and(|id| !is_short(id));
        if !request.messages.iter().flat_map(|message| &message.tool_calls).any(long)
            || !self.demands_short_ids(request)
        {
            return None;
        }
        let mut messages = request.messages.to_vec();
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

    /// Whether the chat template renders short ids only.
    fn demands_short_ids(&self, request: &AnswerRequest) -> bool {
        *self.short_ids.get_or_init(|| {
            let renders = |id: &str| {
                let call =
                    ToolCall { id: Some(id.to_owned()), name: "probe".to_owned(), arguments: Arguments::from_text("") };
                let messages = vec![Message::user("?"), Message::calls(vec![call]), Message::tool(id, "probe", "!")];
                self.renders(request, &messages)
            };
            !renders(LONG) && renders(SHORT)
        })
    }
}
