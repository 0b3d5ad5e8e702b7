//! The tools of a request, as the functions that a model is offered.
//!
//! Agents send tools that only their vendor's servers run, and tools that take free text. A request does not fail over one that is
//! not known: it is left out, and a note names its type.

mod lark;

use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The parameter of a function that stands for a tool that takes free text.
pub(super) const INPUT: &str = "input";

/// The functions that a model is offered.
#[derive(Default)]
pub(super) struct Offered {
    pub functions: Vec<Value>,
    pub names: Names,
    taken: HashSet<String>,
    left_out: BTreeSet<String>,
    /// The names of those that are left out, where they have one.
    absent: HashSet<String>,
    notes: Vec<String>,
}

/// The tools that have another name or form for the client than for the model, by the model's names.
#[derive(Debug, Clone, Default)]
pub(super) struct Names(HashMap<String, Named>);

/// A tool as its client knows it.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub name: String,
    pub namespace: Option<String>,
    /// Whether it takes free text.
    pub custom: bool,
}

impl Names {
    /// What the client calls a tool; `None` if that is what the model calls it, and it is a function.
    pub(super) fn of(&self, name: &str) -> Option<&Named> {
        self.0.get(name)
    }

    /// Returns whether the tool of that name takes free text.
    pub(super) fn is_custom(&self, name: &str) -> bool {
        self.of(name).is_some_and(|named| named.custom)
    }

    /// What the model calls a tool of the client's.
    pub(super) fn for_model(&self, name: &str, namespace: Option<&str>) -> String {
        let same = |named: &Named| named.name == name && named.namespace.as_deref() == namespace;
        let found = self.0.iter().find(|(_, named)| same(named));
        found.map_or_else(|| name.to_owned(), |(own, _)| own.clone())
    }
}

/// The arguments of a whole call as a value. A name that is there twice, and a number of any size, are read as a client reads those
/// of a stream.
pub(super) fn arguments_of(text: &str) -> Value {
    // An input is an object. This is how Anthropic's own documentation shows another text to a model.
    serde_json::from_str::<Map<String, Value>>(text).map_or_else(|_| json!({"INVALID_JSON": text}), Value::Object)
}

/// The free text in the arguments of a call.
pub(super) fn input_of(arguments: &str) -> String {
    let read: Option<Value> = serde_json::from_str(arguments).ok();
    match read.as_ref().and_then(|read| read.get(INPUT)) {
        Some(Value::String(text)) => text.clone(),
        _ => arguments.to_owned(),
    }
}

impl Offered {
    /// Adds tools of OpenAI's APIs: `function`, `custom`, and those in a `namespace`. Any other type is left out.
    pub(super) fn add(&mut self, tools: &[Value]) {
        tools.iter().for_each(|tool| self.one(tool, None));
    }

    fn one(&mut self, tool: &Value, namespace: Option<&str>) {
        match tool.get("type").and_then(Value::as_str) {
            Some("custom") => {
                let inner = tool.get("custom").filter(|inner| inner.is_object()).unwrap_or(tool);
                match inner.get("name").and_then(Value::as_str) {
                    Some(name) => {
                        let function = self.custom(name, inner);
                        self.function(function, namespace, true);
                    }
                    None => self.leave_out("custom without a name", None),
                }
            }
            Some("namespace") => {
                let name = tool.get("name").and_then(Value::as_str);
                let inner = tool.get("tools").and_then(Value::as_array);
                inner.into_iter().flatten().for_each(|tool| self.one(tool, name.or(namespace)));
            }
            Some("function") | None => self.function(tool.clone(), namespace, false),
            Some(_) if tool.get("function").is_some_and(Value::is_object) => {
                self.function(tool.clone(), namespace, false)
            }
            Some(kind) => self.leave_out(kind, tool.get("name").and_then(Value::as_str)),
        }
    }

    /// A function with one text, for a tool that takes free text.
    fn custom(&mut self, name: &str, tool: &Value) -> Value {
        let format = tool.get("format").cloned().unwrap_or_default();
        let grammar = format.get("grammar").filter(|inner| inner.is_object()).unwrap_or(&format);
        let text = |name: &str| grammar.get(name).and_then(Value::as_str);
        let mut input = json!({"type": "string"});
        if let (Some(syntax), Some(definition)) = (text("syntax"), text("definition")) {
            input["description"] = json!(format!("It fits this grammar ({syntax}):\n{definition}"));
            let regex = match syntax {
                "regex" => Some(definition.to_owned()),
                _ => lark::to_regex(definition),
            };
            match regex {
                Some(regex) => input["pattern"] = json!(format!("^(?:{regex})$")),
                None => self.notes.push(format!(
                    "the grammar of the custom tool {name:?} is shown to the model and not enforced: only a regex is, or a Lark \
                     grammar that does not recurse"
                )),
            }
        }
        json!({"type": "function", "function": {
            "name": name,
            "description": tool.get("description").cloned().unwrap_or(json!("")),
            "parameters": {"type": "object", "properties": {INPUT: input}, "required": [INPUT],
                "additionalProperties": false},
        }})
    }

    fn function(&mut self, mut tool: Value, namespace: Option<&str>, custom: bool) {
        let inner = if tool.get("function").is_some_and(Value::is_object) { &mut tool["function"] } else { &mut tool };
        let Some(name) = inner.get("name").and_then(Value::as_str).map(str::to_owned) else {
            // What is wrong with it is said where tools are read.
            return self.functions.push(tool);
        };
        let mut own = name.clone();
        if let Some(namespace) = namespace.filter(|_| self.taken.contains(&own)) {
            own = format!("{namespace}_{name}");
            inner["name"] = json!(own);
        }
        self.taken.insert(own.clone());
        if custom || namespace.is_some() {
            self.names.0.insert(own, Named { name, namespace: namespace.map(str::to_owned), custom });
        }
        self.functions.push(tool);
    }

    /// Leaves out a tool of a type that only its vendor's servers run.
    pub(super) fn leave_out(&mut self, kind: &str, name: Option<&str>) {
        self.left_out.insert(kind.to_owned());
        self.absent.extend(name.map(str::to_owned));
    }

    /// A tool choice with the names that the model reads; `None` where it is about tools that are left out.
    pub(super) fn choice(&mut self, choice: &Value) -> Option<Value> {
        let Value::Object(fields) = choice else {
            if self.functions.is_empty() && choice == "required" && !self.left_out.is_empty() {
                self.notes.push("tool_choice is not used: the tools are left out".to_owned());
                return None;
            }
            return Some(choice.clone());
        };
        match fields.get("type").and_then(Value::as_str) {
            Some("function") | None => match self.chosen(fields) {
                Some(name) if self.absent.contains(&name) => {
                    self.notes.push(format!("tool_choice is not used: the tool {name:?} is left out"));
                    None
                }
                Some(name) => Some(json!({"type": "function", "function": {"name": name}})),
                None => Some(choice.clone()),
            },
            Some("custom") => Some(json!({"type": "function", "function": {"name": self.chosen(fields)}})),
            Some("allowed_tools") => {
                let inner = fields.get("allowed_tools").and_then(Value::as_object).unwrap_or(fields);
                let listed = inner.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
                let tools: Vec<Value> = listed
                    .iter()
                    .filter_map(Value::as_object)
                    .filter_map(|tool| self.chosen(tool))
                    .filter(|name| !self.absent.contains(name))
                    .map(|name| json!({"type": "function", "function": {"name": name}}))
                    .collect();
                if tools.is_empty() && !listed.is_empty() {
                    self.notes.push("tool_choice is not used: the tools that it allows are left out".to_owned());
                    return None;
                }
                Some(json!({"type": "allowed_tools", "allowed_tools": {"mode": inner.get("mode"), "tools": tools}}))
            }
            Some(kind) => {
                self.notes.push(format!("tool_choice is not used: tools of type {kind} are left out"));
                None
            }
        }
    }

    /// What the model calls the function or the custom tool that an object names.
    fn chosen(&self, fields: &Map<String, Value>) -> Option<String> {
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or("function");
        if !matches!(kind, "function" | "custom") {
            return None;
        }
        let inner = fields.get(kind).and_then(Value::as_object).unwrap_or(fields);
        let name = inner.get("name").and_then(Value::as_str)?;
        let namespace = inner.get("namespace").and_then(Value::as_str);
        Some(self.names.for_model(name, namespace))
    }

    /// What is worth knowing about the tools.
    pub(super) fn into_notes(self) -> Vec<String> {
        let mut notes = self.notes;
        if !self.left_out.is_empty() {
            let kinds: Vec<&str> = self.left_out.iter().map(String::as_str).collect();
            notes.push(format!(
                "tools: left out, as only their vendor's servers run tools of these types: {}",
                kinds.join(", ")
            ));
        }
        notes
    }
}
