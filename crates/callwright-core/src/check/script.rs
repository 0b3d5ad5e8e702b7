//! The conversation that templates are checked with. Its words occur in no template.

use crate::Result;
use crate::message::{Arguments, Message, ToolCall};
use crate::tool::{Tool, Tools};
use serde_json::{Value, json};

pub(super) const SYSTEM: &str = "Speak like an old sailor.";
pub(super) const QUESTION: &str = "When does the ferry leave?";
pub(super) const SECOND_QUESTION: &str = "And the one after?";
pub(super) const TEXT: &str = "One moment, the timetable hangs aft.";
pub(super) const REASONING: &str = "Passengers want departures.";
pub(super) const ANSWER: &str = "She sails at twenty to six.";
pub(super) const RESULT: &str = "Herjolfur departs 17:40";
pub(super) const SECOND_RESULT: &str = "Baldur departs 09:15";
/// Nine letters and digits: some templates refuse other ids.
pub(super) const ID: &str = "fErry0001";
pub(super) const SECOND_ID: &str = "fErry0002";

pub(super) fn ferries() -> Tool {
    tool(
        "find_ferries",
        "Looks departures up",
        json!({"island": {"type": "string", "description": "Where to"}, "passengers": {"type": "integer"}}),
    )
}

/// As long as [`ferries`], so that the cost of one tool is what the second adds.
pub(super) fn trains() -> Tool {
    tool(
        "find_trains",
        "Looks departures up",
        json!({"town": {"type": "string", "description": "Where to"}, "passengers": {"type": "integer"}}),
    )
}

/// A tool with arguments of every type.
pub(super) fn logbook() -> Tool {
    tool(
        "keep_logbook",
        "Writes an entry",
        json!({
            "entry": {"type": "string"},
            "depth": {"type": "number"},
            "miles": {"type": "integer"},
            "calm": {"type": "boolean"},
            "crew": {"type": "array", "items": {"type": "string"}},
            "wind": {"type": "object", "properties": {"from": {"type": "string"}, "knots": {"type": "integer"}}},
        }),
    )
}

fn tool(name: &str, description: &str, properties: Value) -> Tool {
    let schema = json!({"type": "object", "properties": properties});
    Tool::new(name, description, schema.as_object().cloned())
}

pub(super) fn all() -> Result<Tools> {
    Tools::new([ferries(), trains(), logbook(), Tool::new("drop_anchor", "Stops the ship", None)])
}

pub(super) fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    ToolCall { id: Some(id.to_owned()), name: name.to_owned(), arguments: Arguments::Object(arguments) }
}

pub(super) fn first_call() -> ToolCall {
    call(ID, "find_ferries", json!({"island": "Heimaey", "passengers": 2}))
}

pub(super) fn second_call() -> ToolCall {
    call(SECOND_ID, "find_ferries", json!({"island": "Flatey", "passengers": 4}))
}

pub(super) fn question() -> Message {
    Message::user(QUESTION)
}

pub(super) fn result() -> Message {
    Message::tool(ID, "find_ferries", RESULT)
}

pub(super) fn second_result() -> Message {
    Message::tool(SECOND_ID, "find_ferries", SECOND_RESULT)
}

/// Question, call, result, answer.
pub(super) fn conversation() -> Vec<Message> {
    vec![question(), Message::calls(vec![first_call()]), result(), Message::assistant(ANSWER)]
}
