//! What was executed since the user's last message, so that nothing is done twice and no tool is called without end.

use super::messages::succeeded;
use crate::message::{Arguments, Message, ToolCall};
use crate::tool::{Effect, Tool, Tools};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Calls of a tool that changes something, in one run, where its definition sets no other limit.
const MAX_WRITES: usize = 8;
/// Calls of a destructive tool that nobody has looked at, in one run.
const MAX_DESTRUCTIVE: usize = 1;

/// The calls that were executed.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    /// The results of calls that succeeded and changed something, by tool and arguments.
    done: HashMap<(String, String), String>,
    /// The calls that succeeded and only read, since the last one that may have changed what they read.
    read: HashSet<(String, String)>,
    /// The number of executed calls, by tool.
    executed: HashMap<String, usize>,
}

impl Ledger {
    /// Reads what a conversation has of it.
    pub(super) fn of(messages: &[Message], tools: &Tools) -> Ledger {
        let mut ledger = Ledger::default();
        for (call, result, _) in succeeded(messages) {
            ledger.count(call);
            ledger.succeeded(tools, call, result);
        }
        ledger
    }

    /// Counts a call that is executed now.
    pub(super) fn count(&mut self, call: &ToolCall) {
        *self.executed.entry(call.name.clone()).or_default() += 1;
    }

    /// Keeps a call that succeeded, with its result if it has changed something.
    pub(super) fn succeeded(&mut self, tools: &Tools, call: &ToolCall, result: &str) {
        let Some(tool) = tools.get(&call.name) else { return };
        let key = (call.name.clone(), canonical(tool, &call.arguments));
        if tool.policy.effect == Effect::Read {
            self.read.insert(key);
            return;
        }
        self.read.clear();
        if runs_once(tool) {
            self.done.insert(key, result.to_owned());
        }
    }

    /// Returns whether the same call has read the same before, and nothing has changed since.
    pub(super) fn has_read(&self, tools: &Tools, call: &ToolCall) -> bool {
        let tool = tools.get(&call.name).filter(|tool| !tool.policy.repeat);
        tool.is_some_and(|tool| self.read.contains(&(call.name.clone(), canonical(tool, &call.arguments))))
    }

    /// Returns the result of the same call, if it was executed before and must not be again.
    pub(super) fn earlier(&self, tools: &Tools, call: &ToolCall) -> Option<&str> {
        let tool = tools.get(&call.name).filter(|tool| runs_once(tool))?;
        self.done.get(&(call.name.clone(), canonical(tool, &call.arguments))).map(String::as_str)
    }

    /// Returns the limit that a further call of the tool would pass. `seen`: a person has allowed this call.
    pub(super) fn limit(&self, tool: &Tool, seen: bool, all: Option<usize>) -> Option<usize> {
        let own = match (tool.policy.max_calls, tool.policy.effect) {
            (Some(most), _) => Some(most),
            (None, Effect::Write) => Some(MAX_WRITES),
            (None, Effect::Destructive) if !seen => Some(MAX_DESTRUCTIVE),
            (None, _) => None,
        };
        let executed = self.executed.get(&tool.name).copied().unwrap_or(0);
        let total = self.executed.values().sum::<usize>();
        own.filter(|most| executed >= *most).or(all.filter(|most| total >= *most))
    }
}

/// Returns false for tools that may do the same thing several times.
fn runs_once(tool: &Tool) -> bool {
    tool.policy.effect != Effect::Read && !tool.policy.repeat
}

/// Writes arguments so that equal ones have equal text: keys sorted, numbers by their value, the schema's defaults filled in.
pub(super) fn canonical(tool: &Tool, arguments: &Arguments) -> String {
    let Arguments::Object(given) = arguments else { return arguments.to_text() };
    let mut whole = given.clone();
    let properties = tool.parameters.as_ref().and_then(|schema| schema.get("properties")?.as_object());
    for (name, schema) in properties.into_iter().flatten() {
        if let Some(default) = schema.get("default").filter(|_| !whole.contains_key(name)) {
            whole.insert(name.clone(), default.clone());
        }
    }
    sorted(&Value::Object(whole)).to_string()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort();
            Value::Object(keys.into_iter().map(|key| (key.clone(), sorted(&object[key]))).collect::<Map<_, _>>())
        }
        Value::Array(list) => list.iter().map(sorted).collect(),
        Value::Number(number) => match number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15) {
            Some(whole) => Value::from(whole as i64),
            None => value.clone(),
        },
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(effect: Effect) -> Tool {
        let schema = json!({"type": "object", "properties": {"room": {}, "level": {"default": 100}}});
        Tool::new("light_on", "", schema.as_object().cloned()).effect(effect)
    }

    fn call(arguments: &str) -> ToolCall {
        ToolCall { id: Some("a".into()), name: "light_on".into(), arguments: Arguments::from_text(arguments) }
    }

    #[test]
    fn equal_arguments_are_one_call_however_they_are_written() {
        let tools = Tools::new([tool(Effect::Write)]).unwrap();
        let mut ledger = Ledger::default();
        ledger.succeeded(&tools, &call(r#"{"room": "kitchen", "level": 100}"#), "on");
        for same in [r#"{"level": 100.0, "room": "kitchen"}"#, r#"{"room": "kitchen"}"#] {
            assert_eq!(ledger.earlier(&tools, &call(same)), Some("on"), "{same}");
        }
        for other in [r#"{"room": "kitchen", "level": 50}"#, r#"{"room": "hall"}"#, "[1"] {
            assert_eq!(ledger.earlier(&tools, &call(other)), None, "{other}");
        }
    }

    #[test]
    fn what_only_reads_or_may_repeat_is_executed_again() {
        let mut repeats = tool(Effect::Write);
        repeats.policy.repeat = true;
        for tool in [tool(Effect::Read), repeats] {
            let tools = Tools::new([tool]).unwrap();
            let mut ledger = Ledger::default();
            ledger.succeeded(&tools, &call("{}"), "on");
            assert_eq!(ledger.earlier(&tools, &call("{}")), None);
        }
    }

    #[test]
    fn a_conversation_has_what_was_done_since_its_last_question() {
        let tools = Tools::new([tool(Effect::Write)]).unwrap();
        let mut messages = vec![
            Message::user("Light."),
            Message::calls(vec![call(r#"{"room": "hall"}"#)]),
            Message::tool(
                "a",
                "light_on",
                "on\n[This call was made before and gave the same result. Do not make it again: answer with what is known.]",
            ),
        ];
        assert_eq!(Ledger::of(&messages, &tools).earlier(&tools, &call(r#"{"room": "hall"}"#)), Some("on"));
        messages.push(Message::user("Again."));
        assert_eq!(Ledger::of(&messages, &tools).earlier(&tools, &call(r#"{"room": "hall"}"#)), None);
        messages.truncate(2);
        messages.push(Message::tool("a", "light_on", "error: no such room"));
        assert_eq!(Ledger::of(&messages, &tools).earlier(&tools, &call(r#"{"room": "hall"}"#)), None);
    }

    #[test]
    fn what_was_read_is_known_until_something_changes() {
        let tools = Tools::new([tool(Effect::Read), Tool::new("lock", "", None)]).unwrap();
        let mut ledger = Ledger::default();
        assert!(!ledger.has_read(&tools, &call("{}")));
        ledger.succeeded(&tools, &call("{}"), "on");
        assert!(ledger.has_read(&tools, &call(r#"{"level": 100}"#)));
        assert!(!ledger.has_read(&tools, &call(r#"{"level": 50}"#)));
        ledger.succeeded(&tools, &ToolCall { name: "lock".into(), ..call("{}") }, "locked");
        assert!(!ledger.has_read(&tools, &call("{}")));
    }

    #[test]
    fn limits_go_by_effect_unless_the_tool_has_its_own() {
        let limit = |tool: &Tool, executed: usize, seen| {
            let mut ledger = Ledger::default();
            (0..executed).for_each(|_| ledger.count(&call("{}")));
            ledger.limit(tool, seen, None)
        };
        assert_eq!(limit(&tool(Effect::Read), 99, false), None);
        assert_eq!((limit(&tool(Effect::Write), 7, false), limit(&tool(Effect::Write), 8, true)), (None, Some(8)));
        let destructive = tool(Effect::Destructive);
        assert_eq!((limit(&destructive, 1, false), limit(&destructive, 5, true)), (Some(1), None));
        let mut own = tool(Effect::Read);
        own.policy.max_calls = Some(2);
        assert_eq!((limit(&own, 1, false), limit(&own, 2, false)), (None, Some(2)));
    }
}
