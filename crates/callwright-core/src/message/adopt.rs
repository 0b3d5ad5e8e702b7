//! Repairs other programs' histories: missing or duplicate ids, and results in the wrong role.

use super::{Message, Role, ToolCall};
use serde_json::Value;
use std::collections::HashSet;

/// Beginnings of user messages in which old programs wrote a tool's result, in lower case.
const RESULT_WORDS: [&str; 5] = ["tool result", "tool_result", "function result", "result of", "tool output"];
/// Beginning of a tag with the same meaning.
const RESULT_TAG: &str = "<tool_re";
/// What follows a tool's name before its result.
const AFTER_NAME: [&str; 5] = ["(", " returned", " result", " output", " response"];

/// Shorter ids are not searched for in texts.
const SHORTEST_ID: usize = 4;

/// Repairs a history from another program, and reports the changes.
///
/// - A call without an id, or with an earlier call's id, gets a new one.
/// - Results with an id go to the call with that id. Those without go to the remaining calls in order, and to calls of
///   the tool that they name if they name one.
/// - A user message that answers an open call becomes a tool message if it is headed by the call's id or its tool's
///   name, is JSON, or is headed like a result. Prose stays the user's, even if the model continues after it.
///
/// Results that answer no call, and calls without a result, are unchanged: see `complete`.
///
/// ```
/// use callwright_core::message::{Conversation, Role, adopt};
///
/// let text = r#"[{"role": "user", "content": "Which tables are there?"},
///     {"role": "assistant", "tool_calls": [{"function": {"name": "list_tables", "arguments": "{}"}}]},
///     {"role": "user", "content": "[\"users\", \"orders\"]"}]"#;
/// let (messages, notices) = adopt(Conversation::from_json(text, "history.json")?.messages);
/// assert_eq!(messages[2].role, Role::Tool);
/// assert_eq!(messages[2].tool_call_id, messages[1].tool_calls[0].id);
/// assert_eq!(notices.len(), 2);
/// # Ok::<(), callwright_core::Error>(())
/// ```
pub fn adopt(mut messages: Vec<Message>) -> (Vec<Message>, Vec<String>) {
    let mut notices = Vec::new();
    let mut taken: HashSet<String> =
        messages.iter().flat_map(|message| &message.tool_calls).filter_map(|call| call.id.clone()).collect();
    let mut used = HashSet::new();
    let mut minted = (0, 0);
    for index in 0..messages.len() {
        if messages[index].tool_calls.is_empty() {
            continue;
        }
        let (before, after) = messages.split_at_mut(index + 1);
        let calls = &mut before[index].tool_calls;
        // The ids in the file, which its results use.
        let old: Vec<Option<String>> = calls.iter().map(|call| call.id.clone()).collect();
        for (position, call) in calls.iter_mut().enumerate() {
            match call.id.take() {
                Some(id) if used.insert(id.clone()) => call.id = Some(id),
                given => {
                    let id = mint(&mut taken, &mut minted.0);
                    match given {
                        Some(given) => notices.push(format!(
                            "messages[{index}].tool_calls[{position}].id is {given:?}, which an earlier call has; it \
                             became {id:?}"
                        )),
                        None => minted.1 += 1,
                    }
                    used.insert(id.clone());
                    call.id = Some(id);
                }
            }
        }
        answers(calls, &old, after, index + 1, &mut notices);
    }
    if minted.1 > 0 {
        notices.push(format!("{} without an id got one", count(minted.1, "call")));
    }
    (messages, notices)
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn mint(taken: &mut HashSet<String>, next: &mut usize) -> String {
    loop {
        *next += 1;
        let id = format!("call{next:05}");
        if taken.insert(id.clone()) {
            return id;
        }
    }
}

/// Assigns the results in `after` to the calls that they answer. `first` is the index of the first message in `after`.
fn answers(calls: &[ToolCall], old: &[Option<String>], after: &mut [Message], first: usize, notices: &mut Vec<String>) {
    let mut open: Vec<usize> = (0..calls.len()).collect();
    let mut nameless = Vec::new();
    let mut end = 0;
    while end < after.len() && after[end].role == Role::Tool {
        let id = after[end].tool_call_id.clone().filter(|id| !id.is_empty());
        let by_id = id.as_ref().and_then(|id| open.iter().position(|&call| old[call].as_ref() == Some(id)));
        match by_id {
            Some(at) => after[end].tool_call_id = calls[open.remove(at)].id.clone(),
            None => nameless.push((end, id.is_some())),
        }
        end += 1;
    }
    let mut matched = 0;
    for (result, has_id) in nameless {
        // An unknown id can only belong to a call without an id.
        let fits = |call: usize| !has_id || old[call].is_none();
        let named = |call: usize| after[result].name.as_ref() == Some(&calls[call].name);
        let by_name = open.iter().position(|&call| fits(call) && named(call));
        let Some(at) = by_name.or_else(|| open.iter().position(|&call| fits(call))) else { continue };
        after[result].tool_call_id = calls[open.remove(at)].id.clone();
        matched += 1;
    }
    if matched > 0 {
        let results = count(matched, "result");
        notices.push(format!("{results} after messages[{}] had no call's id; matched by tool and position", first - 1));
    }
    let said = after[end..].iter().take_while(|message| message.role == Role::User).count();
    let goes_on = after.get(end + said).is_some_and(|message| message.role == Role::Assistant);
    for (offset, message) in after.iter_mut().enumerate().skip(end).take(said.min(open.len())) {
        let Some(at) = answered(message, calls, old, &open, goes_on) else { break };
        let call = &calls[open.remove(at)];
        message.role = Role::Tool;
        message.tool_call_id = call.id.clone();
        message.name = Some(call.name.clone());
        notices.push(format!(
            "messages[{}] is a user message that answers the call of {}; it is read as the tool's",
            first + offset,
            call.name
        ));
    }
}

/// The open call that a user message answers, if any.
fn answered(
    message: &Message,
    calls: &[ToolCall],
    old: &[Option<String>],
    open: &[usize],
    goes_on: bool,
) -> Option<usize> {
    let text = message.content.trim();
    let json = serde_json::from_str::<Value>(text).ok();
    let names = |id: &str| match &json {
        Some(Value::Object(fields)) => fields.values().any(|value| value == id),
        _ => id.len() >= SHORTEST_ID && heads(text, id),
    };
    let by_id = open.iter().position(|&call| {
        let id = old[call].as_deref().unwrap_or_default();
        !id.is_empty() && (message.tool_call_id.as_deref() == Some(id) || names(id))
    });
    let by_name = || {
        open.iter().position(|&call| {
            let name = calls[call].name.as_str();
            message.name.as_deref() == Some(name) || begins(text, name)
        })
    };
    let lower = text.to_lowercase();
    let headed = lower.lines().next().is_some_and(|line| line.contains(':')) || text.contains('\n');
    let is_result = message.tool_call_id.is_some()
        || lower.starts_with(RESULT_TAG)
        || headed && RESULT_WORDS.iter().any(|words| lower.starts_with(words))
        || match json {
            Some(Value::Object(_) | Value::Array(_) | Value::Number(_)) => true,
            // People rarely write these, and never before the model continues.
            Some(Value::String(_) | Value::Bool(_) | Value::Null) => goes_on,
            None => false,
        };
    by_id.or_else(by_name).or(if is_result && !open.is_empty() { Some(0) } else { None })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-')
}

/// Returns whether the first line has `word` as a heading, as in `call_1: …`, `Result (call_1) = …` and `[call_1] …`.
/// An occurrence alone is not enough: people also ask about calls.
fn heads(text: &str, word: &str) -> bool {
    let (line, more) = text.split_once('\n').map_or((text, false), |(line, _)| (line, true));
    line.match_indices(word).any(|(at, _)| {
        let rest = &line[at + word.len()..];
        let whole = !line[..at].ends_with(is_word) && !rest.starts_with(is_word);
        let following = rest.trim_start_matches([')', ']', '}', '>', '"', '\'', '`', '*', ' ']);
        whole
            && (following.starts_with([':', '=', '→']) || rest.starts_with([']', '>']) || following.is_empty() && more)
    })
}

/// Returns whether a text begins with a tool's name in the form of a result.
fn begins(text: &str, name: &str) -> bool {
    let bare = text.trim_start_matches(['[', '`', '*', '"', '<', '(']);
    let rest = bare.strip_prefix(name).filter(|rest| !name.is_empty() && !rest.starts_with(is_word));
    rest.is_some_and(|rest| AFTER_NAME.iter().any(|after| rest.starts_with(after)) || heads(text, name))
}
