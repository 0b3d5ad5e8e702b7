//! An answer with calls, before it joins the conversation: what its calls have come to so far.

use super::tell;
use crate::agent::exec::Failure;
use crate::message::{Message, ToolCall};

/// An answer that waits for the results of its calls.
pub(super) struct Open {
    pub message: Message,
    pub calls: Vec<OpenCall>,
    /// The calls that were executed, as they were then, and what they came to.
    pub ran: Vec<(ToolCall, Result<String, Failure>)>,
}

pub(super) struct OpenCall {
    pub call: ToolCall,
    /// The result, or what went wrong.
    pub came: Option<Result<String, String>>,
    /// The call as the model wrote it and what was wrong with it, before others had a go at it.
    pub original: Option<(ToolCall, String)>,
    /// Whether the call is left to the caller: the conversation has no result of it.
    pub left_open: bool,
    /// What is added to the result for the model.
    pub remark: Option<&'static str>,
    /// What was written for the call.
    pub written: String,
}

impl Open {
    /// The call at `index`, which is to be repaired, and what is wrong with it.
    pub(crate) fn failing(&mut self, index: usize) -> Option<(ToolCall, String)> {
        let open = self.calls.get_mut(index)?;
        let error = open.content();
        open.original.get_or_insert_with(|| (open.call.clone(), error.clone()));
        Some((open.call.clone(), error))
    }

    /// What the first call that has failed met, before others had a go at it.
    pub(crate) fn failure(&self) -> Option<String> {
        let failed = self.calls.iter().find(|open| matches!(open.came, Some(Err(_))))?;
        let error = failed.original.as_ref().map_or_else(|| failed.content(), |(_, error)| error.clone());
        Some(error.strip_prefix(tell::ERROR).unwrap_or(&error).to_owned())
    }

    /// The answer and the results of its calls as they are now.
    pub(crate) fn so_far(&self) -> Vec<Message> {
        messages(&self.message, self.calls.iter().map(|open| (open.call.clone(), Some(open.content()))).collect())
    }

    /// The answer and the results of its calls for the conversation.
    pub(crate) fn settled(self) -> Vec<Message> {
        messages(&self.message, self.calls.into_iter().map(OpenCall::settled).collect())
    }
}

fn messages(answer: &Message, calls: Vec<(ToolCall, Option<String>)>) -> Vec<Message> {
    let calls: Vec<(ToolCall, Option<String>)> =
        calls.into_iter().map(|(call, content)| (tell::nameable(call), content)).collect();
    let tool_calls = calls.iter().map(|(call, _)| call.clone()).collect();
    let mut messages = vec![Message { tool_calls, ..answer.clone() }];
    let results = calls.into_iter().filter_map(|(call, content)| Some((call, content?)));
    messages.extend(results.map(|(call, content)| Message::tool(call.id.unwrap_or_default(), call.name, content)));
    messages
}

impl OpenCall {
    /// The result, or the error in its place.
    pub(crate) fn content(&self) -> String {
        match &self.came {
            Some(Ok(text) | Err(text)) => text.clone(),
            None => tell::NOT_EXECUTED.to_owned(),
        }
    }

    fn settled(self) -> (ToolCall, Option<String>) {
        if self.left_open {
            return (self.call, None);
        }
        let content = self.content();
        let (call, mut content) = match (self.came, self.original) {
            // The other attempts failed too: the call as the model wrote it is kept, with its own error.
            (Some(Err(_)) | None, Some(original)) => original,
            _ => (self.call, content),
        };
        if let Some(remark) = self.remark {
            content = format!("{content}\n{remark}");
        }
        (call, Some(content))
    }
}
