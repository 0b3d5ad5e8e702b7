//! The messages to the model about a call that failed: what was wrong, and what is expected.

use crate::agent::exec::Failure;
use crate::agent::turn::Fault;
use crate::message::{Message, Role, ToolCall};
use crate::parse::ParsedCall;
use crate::session::remarks::without_advice;
pub(crate) use crate::session::remarks::{ALREADY_DONE, REPEATED, UNAVAILABLE};

/// The beginning of an error in place of a result.
pub(crate) const ERROR: &str = "error: ";
/// For a call that was not executed because the run ended.
pub(crate) const NOT_EXECUTED: &str = "error: this call was not executed: the run ended before";
/// For the person, where the model did not see the results that it has.
pub(crate) const RESTATED: &str = "its result is known; the model gets the results once more, in words";
/// For the person, where the model was made to answer.
pub(crate) const LOOP: &str = "the model made the same call again and again; it was made to answer without tools";
/// For the person, where nothing more may be spent on fallback models.
pub(crate) const EXHAUSTED: &str = "the tokens or seconds for falling back are used up";
/// For the person, where the model only repeated what it had done.
pub(crate) const ONLY_REPEATS: &str = "the model repeated calls that were done; it was made to answer without tools";
/// For the person, where the model had nothing to say after its calls.
pub(crate) const SUMMARY: &str = "the model's answer is empty; the results of its calls take its place";
/// For the person, where the model had nothing to say.
pub(crate) const EMPTY: &str = "the model's answer is empty";
/// For the person, where a fallback model wrote only text.
pub(crate) const NO_CALL: &str = "the model wrote no call";

/// The result of a call that was not executed because of how it was written.
pub(crate) fn not_executed(call: &ParsedCall, fault: Fault) -> String {
    let problems = call.error_text();
    let expected = match fault {
        Fault::UnknownTool => "Call a tool that there is, by its exact name.",
        Fault::Schema => "Call it again with arguments that fit.",
        Fault::Tool => "Answer in words.",
        _ => "Write the call again, complete and in the right format.",
    };
    // A problem may be a question.
    let stop = if problems.ends_with(['.', '?', '!']) { "" } else { "." };
    let subject = if call.name.is_empty() { "this call" } else { call.name.as_str() };
    format!("{ERROR}{subject} was not executed: {problems}{stop} {expected}")
}

/// The result of a call whose tool failed.
pub(crate) fn failed(failure: &Failure) -> String {
    format!("{ERROR}{failure}")
}

/// The call as a conversation can carry it: programs refuse one without a name.
pub(crate) fn nameable(call: ToolCall) -> ToolCall {
    if call.name.trim().is_empty() { ToolCall { name: "invalid_call".to_owned(), ..call } } else { call }
}

/// Returns the calls since the user's last message that succeeded, with their results, and the advice after them.
pub(crate) fn succeeded(messages: &[Message]) -> impl Iterator<Item = (&ToolCall, &str, &str)> {
    let from = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
    let messages = &messages[from..];
    messages.iter().flat_map(|message| &message.tool_calls).filter_map(move |call| {
        let answers = |message: &&Message| message.role == Role::Tool && message.tool_call_id == call.id;
        let (result, advice) = without_advice(&messages.iter().find(answers)?.content);
        (call.id.is_some() && !result.starts_with(ERROR)).then_some((call, result, advice))
    })
}

/// The results since the user's last message once more, as a message of the user: small models overlook results in the place that
/// their template gives them, and repeat the calls.
pub(super) fn restated(messages: &[Message]) -> Message {
    Message::user(format!("Results:\n{}\nNow answer the question in words.", summary(messages)))
}

/// Says what was done since the user's last message: the calls that succeeded, with their results. Empty if none did.
pub(crate) fn summary(messages: &[Message]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (call, result, _) in succeeded(messages).filter(|(.., advice)| advice.is_empty()) {
        let line = format!("{} {}: {}", call.name, call.arguments.to_text(), result.trim_end());
        // The same call in one answer was executed once.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.join("\n")
}
