//! The input of a response, as messages of chat completions.
//!
//! Clients give back whatever an earlier response had, of this server or of another. An item of an unknown type is shown to the
//! model as text, or left out with a note; none ends the request.

use super::super::Refusal;
use crate::serve::offered::{INPUT, Names};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

/// Items without a word for the model: what they have is for other servers, or was read elsewhere.
const NOT_SHOWN: [&str; 9] = [
    "additional_tools",
    "compaction",
    "compaction_trigger",
    "context_compaction",
    "item_reference",
    "mcp_approval_response",
    "mcp_list_tools",
    "tool_search_call",
    "tool_search_output",
];
/// Items that were used, so that nothing of them is left out.
const USED: [&str; 3] = ["additional_tools", "compaction_trigger", "tool_search_output"];
/// What the content of a `compaction` begins with if it is a summary of this server.
pub(super) const SUMMARY: &str = "callwright summary:\n";
/// What asks for a summary.
const SUMMARIZE: &str = "The conversation is too long and will be deleted. Write a summary with which you can go on: what the user \
    wants, what was done and found out, with names of files, commands and values, and what is left to do. Write only the summary, \
    and call no tool.";
/// Fields that say nothing to a model.
const NOT_FOR_MODELS: [&str; 9] =
    ["type", "id", "call_id", "status", "role", "caller", "encrypted_content", "environment", "created_by"];
/// A longer text without white space is data.
const DATA: usize = 256;

/// The tools that items of the input bring along.
pub(super) fn tools(items: &[Value]) -> impl Iterator<Item = &[Value]> {
    let brings = |item: &&Value| item["type"].as_str().is_some_and(|kind| USED.contains(&kind));
    items.iter().filter(brings).filter_map(|item| item.get("tools")?.as_array()).map(Vec::as_slice)
}

/// Reads items.
#[derive(Default)]
pub(super) struct Input<'a> {
    names: Option<&'a Names>,
    messages: Vec<Value>,
    /// Calls that were written as text, by their ids: so are their results.
    as_text: HashSet<String>,
    /// Types of items that are left out, and how many there are.
    left_out: BTreeMap<String, usize>,
}

impl<'a> Input<'a> {
    /// For a request with these tools, after these messages.
    pub(super) fn new(names: &'a Names, messages: Vec<Value>) -> Input<'a> {
        Input { names: Some(names), messages, ..Input::default() }
    }

    /// Asks for a summary of what there is.
    pub(super) fn ask_for_summary(&mut self) {
        self.messages.push(json!({"role": "user", "content": SUMMARIZE}));
    }

    /// The messages, and a note about what is not among them.
    pub(super) fn finish(self) -> (Vec<Value>, Option<String>) {
        let kinds: Vec<String> = self.left_out.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let note = format!("input: items that say nothing to this model are left out: {}", kinds.join(", "));
        (self.messages, (!kinds.is_empty()).then_some(note))
    }

    /// Adds the item with this number.
    ///
    /// # Errors
    /// A refusal if it is no item.
    pub(super) fn add(&mut self, item: &Value, at: usize) -> Result<(), Refusal> {
        let Some(fields) = item.as_object() else {
            return Err(Refusal::invalid(format!("input[{at}] is no object; expected an item")));
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let kind = text("type");
        match kind {
            "" | "message" if text("role").is_empty() => {
                return Err(Refusal::invalid(format!("input[{at}] has no role; expected user, assistant or system")));
            }
            "" | "message" => self.message(text("role"), fields.get("content").cloned().unwrap_or_default()),
            "function_call" | "custom_tool_call" => self.call(fields, kind == "custom_tool_call"),
            "function_call_output" | "custom_tool_call_output" if !self.as_text.contains(text("call_id")) => {
                let content = match fields.get("output") {
                    None | Some(Value::Null) => json!(""),
                    Some(object @ Value::Object(_)) => json!(object.to_string()),
                    Some(output) => output.clone(),
                };
                self.messages.push(json!({"role": "tool", "tool_call_id": text("call_id"), "content": content}));
            }
            "reasoning" => {
                let said = ["content", "summary"].iter().find_map(|name| {
                    let parts = fields.get(*name)?.as_array()?.iter();
                    Some(parts.filter_map(|part| part.get("text")?.as_str()).collect::<String>())
                        .filter(|said| !said.is_empty())
                });
                if let Some(said) = said {
                    self.messages.push(json!({"role": "assistant", "content": null, "reasoning_content": said}));
                }
            }
            "compaction" if text("encrypted_content").starts_with(SUMMARY) => {
                let summary = text("encrypted_content").trim_start_matches(SUMMARY);
                let content = format!("Summary of the conversation so far:\n{summary}");
                self.messages.push(json!({"role": "user", "content": content}));
            }
            _ if NOT_SHOWN.contains(&kind) => self.leave_out(kind),
            _ if fields.contains_key("role") && fields.contains_key("content") => {
                self.message(text("role"), fields["content"].clone());
            }
            _ => self.other(kind, fields),
        }
        Ok(())
    }

    fn message(&mut self, role: &str, content: Value) {
        if role != "assistant" {
            return self.messages.push(json!({"role": role, "content": content}));
        }
        let last = self.assistant();
        if self.messages[last]["content"].is_null() && self.messages[last].get("tool_calls").is_none() {
            self.messages[last]["content"] = content;
        } else {
            self.messages.push(json!({"role": "assistant", "content": content}));
        }
    }

    /// The assistant's last message: reasoning, text and calls of one answer are one message.
    fn assistant(&mut self) -> usize {
        if self.messages.last().is_none_or(|last| last["role"] != "assistant") {
            self.messages.push(json!({"role": "assistant", "content": null}));
        }
        self.messages.len() - 1
    }

    fn call(&mut self, fields: &Map<String, Value>, custom: bool) {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let name = text("name").unwrap_or_default();
        let own = self.names.map_or_else(|| name.to_owned(), |names| names.for_model(name, text("namespace")));
        let arguments = match custom {
            true => json!({INPUT: text("input").unwrap_or_default()}),
            false => fields.get("arguments").cloned().unwrap_or_default(),
        };
        let call = json!({"id": text("call_id").unwrap_or_default(), "type": "function",
            "function": {"name": own, "arguments": arguments}});
        let last = self.assistant();
        match self.messages[last].get_mut("tool_calls").and_then(Value::as_array_mut) {
            Some(calls) => calls.push(call),
            None => self.messages[last]["tool_calls"] = json!([call]),
        }
    }

    /// An item of another type as text: what was called is the assistant's, and what came of it the user's.
    fn other(&mut self, kind: &str, fields: &Map<String, Value>) {
        let shown = fields.iter().filter(|(name, value)| !NOT_FOR_MODELS.contains(&name.as_str()) && !value.is_null());
        let shown: Map<String, Value> = shown.map(|(name, value)| (name.clone(), without_data(value))).collect();
        let text = match shown.values().next() {
            None => return self.leave_out(kind),
            Some(Value::String(only)) if shown.len() == 1 => only.clone(),
            Some(only) if shown.len() == 1 => only.to_string(),
            Some(_) => Value::Object(shown).to_string(),
        };
        if kind.ends_with("_output") || kind.ends_with("_result") || kind.ends_with("_response") {
            return self.messages.push(json!({"role": "user", "content": format!("[{kind}]\n{text}")}));
        }
        let ids = ["call_id", "id"].iter().filter_map(|name| fields.get(*name)?.as_str());
        self.as_text.extend(ids.map(str::to_owned));
        let text = format!("[{kind}: {text}]");
        let last = self.assistant();
        match &self.messages[last]["content"] {
            _ if self.messages[last].get("tool_calls").is_some() => self.message("assistant", json!(text)),
            Value::String(before) => self.messages[last]["content"] = json!(format!("{before}\n{text}")),
            _ => self.message("assistant", json!(text)),
        }
    }

    fn leave_out(&mut self, kind: &str) {
        if !USED.contains(&kind) {
            *self.left_out.entry(kind.to_owned()).or_default() += 1;
        }
    }
}

/// A value without the data in it, such as images.
fn without_data(value: &Value) -> Value {
    match value {
        Value::String(text)
            if text.starts_with("data:") || text.len() > DATA && !text.contains(char::is_whitespace) =>
        {
            json!(format!("({} bytes, not shown)", text.len()))
        }
        Value::Array(items) => items.iter().map(without_data).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "encrypted_content");
            fields.map(|(name, value)| (name.clone(), without_data(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}
