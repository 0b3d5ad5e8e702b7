//! Chat mode: the server writes the prompt and reads the calls.
//!
//! The session renders and parses in this mode, too: a chat template writes the conversation as the JSON of a request, and
//! the server's answer is written in a format that only this file knows. So an answer of a server is an answer as any
//! other, with the same events, checks and scores.

use super::feed::{Counted, Said, finish};
use super::http::Path;
use super::raw::{penalties, seed_of};
use crate::answer::{Options, ToolChoice};
use crate::engine::sampler::Sampling;
use crate::models::decimal;
use crate::{Error, ErrorKind, Result};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Writes the part of a request that depends on the conversation, and declares how an answer is written here.
pub(super) const TEMPLATE: &str = r#"{#--- callwright
[format]
name    = "chat-completions"
start   = "\u001dCALL\n"
end     = "\n\u001dEND"
literal = true
payload = "json"
text_after_calls = true

[keys]
id = "id"

[reasoning]
start = "\u001dTHINK\n"
end   = "\n\u001dTEXT\n"
---#}
{"messages": {{ messages | tojson }}{% if tools %}, "tools": {{ tools | tojson }}{% endif %}}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"#;
/// What separates the conversation from the answer, as in other templates.
const HEADER: &str = "<|assistant|>";
const CALL: &str = "\u{1d}CALL\n";
const CALL_END: &str = "\n\u{1d}END";
const THINK: &str = "\u{1d}THINK\n";
const THINK_END: &str = "\n\u{1d}TEXT\n";

/// Writes a server's answer as a text.
#[derive(Default)]
pub(super) struct Writer {
    thinking: bool,
    /// The call that is open: its index, and its arguments so far.
    open: Option<(u64, String)>,
    /// What came of calls whose turn it is not yet: a server may write several at the same time.
    later: BTreeMap<u64, Vec<Value>>,
    /// Whether the answer was cut off.
    cut: bool,
    /// The id of each call, by its number.
    ids: BTreeMap<u64, String>,
}

/// The request for an answer to `conversation`, which the template wrote.
///
/// # Errors
/// [`ErrorKind::Template`] if that is no JSON, because another template wrote it.
pub(super) fn request(
    conversation: &str,
    model: &str,
    most: usize,
    options: &Options,
    sampling: &Sampling,
) -> Result<(Path, Value)> {
    let conversation = conversation.strip_suffix(HEADER).unwrap_or(conversation);
    let mut body: Map<String, Value> = serde_json::from_str(conversation).map_err(|error| {
        Error::new(ErrorKind::Template, format!("the conversation was not written as a request: {error}")).hint(
            "in chat mode the server writes the prompt; openai: in place of openai-chat: lets a template write it",
        )
    })?;
    for message in body.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
        as_openai(message);
    }
    let with_tools = body.contains_key("tools");
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("model", Value::from(model));
    set("max_tokens", json!(most));
    for (name, value) in penalties(sampling) {
        set(name, value);
    }
    set("temperature", json!(decimal(sampling.temperature)));
    if sampling.temperature > 0.0 {
        set("top_p", json!(decimal(sampling.top_p)));
        set("seed", seed_of(sampling.seed));
        // Beyond OpenAI's API, which refuses them, so only what somebody chose is sent.
        let default = Sampling::default();
        if sampling.top_k != default.top_k {
            set("top_k", json!(sampling.top_k));
        }
        if sampling.min_p != default.min_p {
            set("min_p", json!(decimal(sampling.min_p)));
        }
    }
    set("stream", json!(true));
    set("stream_options", json!({"include_usage": true}));
    if !options.stop.is_empty() {
        set("stop", json!(options.stop));
    }
    let wanted = options.response_format.as_ref().map(|wanted| (&wanted.schema, wanted.strict));
    let grammar = options.grammar.as_ref().and_then(|grammar| grammar.schema.as_ref()).map(|schema| (schema, true));
    if let Some((schema, strict)) = wanted.or(grammar) {
        let schema = json!({"name": "answer", "schema": schema, "strict": strict});
        set("response_format", json!({"type": "json_schema", "json_schema": schema}));
    }
    if with_tools {
        let choice = match &options.tool_choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
        };
        set("tool_choice", choice);
        if options.max_calls == Some(1) {
            set("parallel_tool_calls", json!(false));
        }
    }
    Ok((Path::Api("chat/completions"), Value::Object(body)))
}

/// A message as OpenAI's API has it: arguments are a text.
fn as_openai(message: &mut Value) {
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(arguments) = call.get_mut("function").and_then(|function| function.get_mut("arguments"))
            && !arguments.is_string()
        {
            *arguments = Value::from(arguments.to_string());
        }
        call.entry("type").or_insert_with(|| json!("function"));
    }
}

impl Writer {
    /// Returns what an event of a chat says.
    pub(super) fn read(&mut self, value: &Value) -> Said {
        // Others are further answers to the same question, which nobody asked for.
        let choices = value["choices"].as_array().into_iter().flatten();
        let choice =
            choices.into_iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0).unwrap_or(&Value::Null);
        // A server that does not stream has it all in a message.
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let mut text = String::new();
        let said = |key: &str| delta[key].as_str().unwrap_or_default();
        let reasoning =
            if said("reasoning_content").is_empty() { said("reasoning") } else { said("reasoning_content") };
        if !reasoning.is_empty() {
            self.end_call(&mut text);
            if !std::mem::replace(&mut self.thinking, true) {
                text.push_str(THINK);
            }
            text.push_str(&plain(reasoning));
        }
        let content = content(&delta["content"]) + said("refusal");
        if !content.is_empty() {
            self.end_thinking(&mut text);
            self.end_call(&mut text);
            text.push_str(&plain(&content));
        }
        for (place, call) in delta["tool_calls"].as_array().into_iter().flatten().enumerate() {
            self.end_thinking(&mut text);
            let index = self.index(call, place);
            self.call(index, call, &mut text);
        }
        // What tools were before.
        if let Some(function) = delta.get("function_call").filter(|function| function.is_object()) {
            self.end_thinking(&mut text);
            self.call(0, &json!({"function": function}), &mut text);
        }
        let finish = choice["finish_reason"].as_str();
        self.cut = finish == Some("length");
        if finish.is_some() {
            self.end_thinking(&mut text);
            self.end_call(&mut text);
            while !self.later.is_empty() {
                self.write(&mut text);
                self.end_call(&mut text);
            }
        }
        let (end, failed) = self::finish(finish);
        Said { text, end, counted: Counted::read(value), failed }
    }

    /// The number of the call that a part belongs to: another id at the same number, or another name where the arguments
    /// are whole, begins another call.
    fn index(&mut self, call: &Value, place: usize) -> u64 {
        let [id, name] = [&call["id"], &call["function"]["name"]].map(|value| value.as_str().unwrap_or_default());
        let last = self.ids.last_key_value().map(|(index, _)| *index);
        let given = call["index"].as_u64();
        let mut index = given.unwrap_or(if place > 0 { place as u64 } else { last.unwrap_or(0) });
        let other = self.ids.get(&index).is_some_and(|known| !id.is_empty() && !known.is_empty() && known != id);
        let whole = self.open.as_ref().is_some_and(|(open, arguments)| *open == index && is_json(arguments));
        if other || given.is_none() && !name.is_empty() && whole {
            let same = self.ids.iter().find(|(_, known)| !id.is_empty() && *known == id).map(|(index, _)| *index);
            index = same.unwrap_or(last.map_or(0, |last| last + 1));
        }
        let known = self.ids.entry(index).or_default();
        if known.is_empty() {
            *known = id.to_owned();
        }
        index
    }

    /// More of a call: it is written when the calls before it have ended.
    fn call(&mut self, index: u64, call: &Value, text: &mut String) {
        self.later.entry(index).or_default().push(call.clone());
        self.write(text);
        while !self.later.is_empty() && self.open.as_ref().is_some_and(|(_, arguments)| is_json(arguments)) {
            self.end_call(text);
            self.write(text);
        }
    }

    /// Writes what came of the open call, or of the first that waits.
    fn write(&mut self, text: &mut String) {
        let first = self.later.keys().next().copied();
        let Some(index) = self.open.as_ref().map(|(open, _)| *open).or(first) else { return };
        for part in self.later.remove(&index).unwrap_or_default() {
            let function = &part["function"];
            if self.open.is_none() {
                let [name, id] = [&function["name"], &part["id"]].map(|value| value.as_str().unwrap_or_default());
                let id = if id.is_empty() { String::new() } else { format!(", \"id\": {}", Value::from(id)) };
                text.push_str(CALL);
                text.push_str(&format!("{{\"name\": {}{id}, \"arguments\": ", Value::from(name)));
            }
            let more = match &function["arguments"] {
                Value::String(text) => plain(text),
                Value::Null => String::new(),
                value => value.to_string(),
            };
            text.push_str(&more);
            self.open.get_or_insert_with(|| (index, String::new())).1.push_str(&more);
        }
    }

    fn end_thinking(&mut self, text: &mut String) {
        if std::mem::take(&mut self.thinking) {
            text.push_str(THINK_END);
        }
    }

    /// Ends the open call. One whose arguments are cut off stays open, and is read as incomplete.
    fn end_call(&mut self, text: &mut String) {
        let Some((_, arguments)) = self.open.take() else { return };
        // Servers leave out the arguments of a tool that takes none. What is no JSON may still be repaired, but not where
        // the answer was cut off.
        let whole = match arguments.trim() {
            "" => !self.cut,
            arguments => is_json(arguments) || !self.cut && arguments.ends_with('}'),
        };
        if !whole {
            return;
        }
        if arguments.trim().is_empty() {
            text.push_str("{}");
        }
        text.push('}');
        text.push_str(CALL_END);
    }
}

/// Returns whether a text is JSON, as a call's arguments are at their end.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Content as a text, or as a list of parts with texts.
fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// A server's text without the character that begins the markers here.
fn plain(text: &str) -> String {
    text.replace('\u{1d}', "\u{fffd}")
}
