//! One call of an answer: what the model wrote, and what has become of it.

use super::messages;
use super::turn::Fault;
use crate::message::{Message, ToolCall};

/// What has become of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The tool returned this result.
    Done(String),
    /// There is no result.
    Failed {
        /// What is wrong.
        fault: Fault,
        /// The error that the model reads in place of the result.
        error: String,
    },
    /// Nothing runs the tool; the caller of the run adds the result.
    LeftOpen,
}

impl CallOutcome {
    /// A failure.
    pub(crate) fn failed(fault: Fault, error: impl Into<String>) -> CallOutcome {
        CallOutcome::Failed { fault, error: error.into() }
    }
}

/// A call of an answer, from what the model wrote to its result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallState {
    pub(super) call: ToolCall,
    /// The text that the model wrote for the call.
    pub(super) written: String,
    pub(super) outcome: Option<CallOutcome>,
    /// The call as the model first wrote it, and its error, once another call is tried in its place.
    original: Option<(ToolCall, String)>,
    /// What is added to the result for the model.
    pub(super) advice: Option<&'static str>,
    /// The tool under whose name failures of the call are counted.
    pub(super) counted_as: String,
    /// The call was executed before and has the result of that time.
    pub(super) already_done: bool,
    /// The conversation has the result of the same call, which only reads.
    pub(super) known: bool,
    /// Why the text of the call alone makes it need approval, if it does.
    pub(super) doubt: Option<&'static str>,
}

impl CallState {
    /// A call that can be executed.
    pub(crate) fn new(call: ToolCall) -> CallState {
        let counted_as = call.name.clone();
        CallState {
            call,
            written: String::new(),
            outcome: None,
            original: None,
            advice: None,
            counted_as,
            already_done: false,
            known: false,
            doubt: None,
        }
    }

    /// The same call with a tool's name and the text of its arguments only.
    #[cfg(test)]
    pub(crate) fn named(tool: impl Into<String>, arguments: &str) -> CallState {
        CallState::new(ToolCall {
            id: None,
            name: tool.into(),
            arguments: crate::message::Arguments::from_text(arguments),
        })
    }

    /// The same call with something wrong in how it was written: it is not executed.
    #[must_use]
    pub(crate) fn failed(mut self, fault: Fault, error: impl Into<String>) -> CallState {
        self.outcome = Some(CallOutcome::failed(fault, error));
        self
    }

    /// The same call with the result that the conversation has.
    pub(super) fn with_result(mut self, content: &str) -> CallState {
        self.outcome = Some(match content.starts_with(messages::ERROR) {
            true => CallOutcome::failed(Fault::Execution, content),
            false => CallOutcome::Done(content.to_owned()),
        });
        self
    }

    /// The same call with the text that the model wrote for it.
    #[must_use]
    pub(super) fn written_as(mut self, text: &str) -> CallState {
        text.clone_into(&mut self.written);
        self
    }

    /// Returns what is wrong with the call, if anything is.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self.outcome {
            Some(CallOutcome::Failed { fault, .. }) => Some(fault),
            _ => None,
        }
    }

    /// The call's id, as text.
    pub(super) fn id(&self) -> String {
        self.call.id.clone().unwrap_or_default()
    }

    /// The result, or the error in its place.
    pub(super) fn content(&self) -> &str {
        match &self.outcome {
            Some(CallOutcome::Done(text) | CallOutcome::Failed { error: text, .. }) => text,
            Some(CallOutcome::LeftOpen) | None => messages::NOT_EXECUTED,
        }
    }

    /// Keeps the call and its error before another one is tried in its place.
    pub(super) fn keep_original(&mut self) {
        if self.original.is_none() {
            self.original = Some((self.call.clone(), self.content().to_owned()));
        }
    }

    /// Puts another call in the place of this one; the id stays. The name stays too if the other call is wrong.
    pub(super) fn replace_with(&mut self, other: CallState) {
        self.written = other.written;
        self.call.arguments = other.call.arguments;
        if other.outcome.is_none() {
            self.call.name = other.call.name;
        }
        self.outcome = other.outcome;
    }

    /// The call's own error, before others were tried in its place.
    fn original_error(&self) -> &str {
        self.original.as_ref().map_or_else(|| self.content(), |(_, error)| error)
    }

    /// The call and its result for the conversation; no result if the caller adds it.
    fn settled(self) -> (ToolCall, Option<String>) {
        let content = self.content().to_owned();
        let (call, mut content) = match (self.outcome, self.original) {
            (Some(CallOutcome::LeftOpen), _) => return (self.call, None),
            // The other attempts failed too: the call as the model wrote it is kept, with its own error.
            (Some(CallOutcome::Failed { .. }) | None, Some(original)) => original,
            _ => (self.call, content),
        };
        if let Some(advice) = self.advice {
            content = format!("{content}\n{advice}");
        }
        (call, Some(content))
    }
}

/// The original error of the first call that has failed.
pub(super) fn failure(calls: &[CallState]) -> Option<String> {
    let error = calls.iter().find(|call| call.fault().is_some())?.original_error();
    Some(error.strip_prefix(messages::ERROR).unwrap_or(error).to_owned())
}

/// An answer and the results of its calls as they are now.
pub(super) fn so_far(answer: &Message, calls: &[CallState]) -> Vec<Message> {
    with_results(answer, calls.iter().map(|state| (state.call.clone(), Some(state.content().to_owned()))).collect())
}

/// An answer and the results of its calls for the conversation.
pub(super) fn settled(answer: &Message, calls: Vec<CallState>) -> Vec<Message> {
    with_results(answer, calls.into_iter().map(CallState::settled).collect())
}

fn with_results(answer: &Message, calls: Vec<(ToolCall, Option<String>)>) -> Vec<Message> {
    let calls: Vec<(ToolCall, Option<String>)> =
        calls.into_iter().map(|(call, content)| (messages::nameable(call), content)).collect();
    let tool_calls = calls.iter().map(|(call, _)| call.clone()).collect();
    let mut messages = vec![Message { tool_calls, ..answer.clone() }];
    let results = calls.into_iter().filter_map(|(call, content)| Some((call, content?)));
    messages.extend(results.map(|(call, content)| Message::tool(call.id.unwrap_or_default(), call.name, content)));
    messages
}
