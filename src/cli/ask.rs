//! Questions about calls to the person at the terminal: may a tool run, and what is a call's result?

use super::lines::TypedAhead;
use super::say;
use callwright::agent::exec::{Approval, Question};
use callwright::message::ToolCall;
use rustyline::error::ReadlineError;
use rustyline::{Behavior, Config, DefaultEditor};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A call as text for a question: no part of it moves the cursor or changes the order in which it is shown.
fn shown(call: &ToolCall) -> String {
    plain(&format!("{} {}", call.name, call.arguments.to_text()))
}

/// A text without what moves the cursor or changes the order in which it is shown.
fn plain(text: &str) -> String {
    let disguises = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.replace(disguises, " ")
}

/// What a person may answer.
const ANSWERS: &str =
    "y runs it; n does not; n REASON does not, and tells the model why; a allows the tool for this run";

/// The tools that the person has allowed for the whole run.
#[derive(Default)]
pub struct Asked(Mutex<HashSet<String>>);

impl Asked {
    /// Asks at the terminal whether a call may be executed.
    pub fn confirm(&self, question: &Question<'_>, cancel: &AtomicBool, typed: &TypedAhead) -> Approval {
        let mut always = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if always.contains(&question.call.name) {
            return Approval::Given;
        }
        let about = question.tool.description.lines().next().unwrap_or_default();
        let about = if about.is_empty() { String::new() } else { format!(", {about}") };
        let (name, runs, why) = (&question.call.name, question.runs, question.why);
        let asks = format!("{name} ({runs}{about}) needs approval: {why}.");
        say(format_args!("{}\n{ANSWERS}\n", plain(&asks)));
        typed.take_in();
        let asked = format!("Run {}? [y/N] ", shown(question.call));
        loop {
            let Some(answer) = line(&asked, cancel) else { return Approval::Denied(None) };
            match answer.trim() {
                "y" | "Y" | "yes" | "Yes" => return Approval::Given,
                "a" | "A" | "always" => {
                    always.insert(question.call.name.clone());
                    return Approval::Given;
                }
                "" | "n" | "N" | "no" | "No" => return Approval::Denied(None),
                reason if reason.starts_with("n ") || reason.starts_with("no ") || reason.starts_with("no, ") => {
                    let (_, reason) = reason.split_once(' ').unwrap_or_default();
                    return Approval::Denied(Some(reason.trim().to_owned()));
                }
                // Any other text may be meant for the model.
                _ => say(format_args!("{ANSWERS}; the conversation goes on after that\n")),
            }
        }
    }
}

/// Asks at the terminal for the result of a call without a command; none after Ctrl-D or Ctrl-C.
pub fn result(call: &ToolCall, cancel: &AtomicBool, typed: &TypedAhead) -> Option<String> {
    typed.take_in();
    line(&format!("Result of {}: ", shown(call)), cancel)
}

/// Asks at the terminal for the values that a server wants; none if the person declines.
pub fn form(
    server: &str,
    message: &str,
    schema: &Value,
    cancel: &AtomicBool,
    typed: &TypedAhead,
) -> Option<Map<String, Value>> {
    typed.take_in();
    say(format_args!("{}\n", plain(&format!("The MCP server {server:?} asks: {message}"))));
    let mut values = Map::new();
    let properties = schema["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        let required = schema["required"].as_array().is_some_and(|names| names.contains(&Value::from(name.as_str())));
        let kind = property["type"].as_str().unwrap_or("string");
        let about = property["description"].as_str().or(property["title"].as_str()).unwrap_or_default();
        let among: Vec<&str> = property["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut hints = vec![if among.is_empty() { kind.to_owned() } else { among.join(" | ") }];
        hints.extend((!about.is_empty()).then(|| about.to_owned()));
        hints.extend((!required).then(|| "may be left empty".to_owned()));
        let asked = plain(&format!("{name} ({}): ", hints.join("; ")));
        loop {
            let text = line(&asked, cancel)?;
            if text.is_empty() && !required {
                break;
            }
            let value = match kind {
                "string" => Some(Value::from(text.as_str())),
                "boolean" => match text.trim() {
                    "y" | "yes" | "true" => Some(Value::Bool(true)),
                    "n" | "no" | "false" => Some(Value::Bool(false)),
                    _ => None,
                },
                "integer" => serde_json::from_str(&text).ok().filter(|value: &Value| value.is_i64() || value.is_u64()),
                _ => serde_json::from_str(&text).ok(),
            };
            match value.filter(|_| among.is_empty() || among.contains(&text.as_str())) {
                Some(value) => {
                    values.insert(name.clone(), value);
                    break;
                }
                None => say(format_args!("{}; Ctrl-D declines\n", plain(&format!("expected {}", hints[0])))),
            }
        }
    }
    let given = plain(&Value::Object(values.clone()).to_string());
    let answer = line(&format!("Send {given} to {}? [y/N] ", plain(server)), cancel)?;
    matches!(answer.trim(), "y" | "Y" | "yes" | "Yes").then_some(values)
}

/// Reads a line from the terminal itself, as standard output may be a file.
fn line(question: &str, cancel: &AtomicBool) -> Option<String> {
    let config = Config::builder().behavior(Behavior::PreferTerm).build();
    let answer = DefaultEditor::with_config(config).and_then(|mut editor| editor.readline(question));
    if matches!(answer, Err(ReadlineError::Interrupted)) {
        cancel.store(true, Ordering::Relaxed);
    }
    answer.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use callwright::message::Arguments;

    #[test]
    fn what_is_asked_about_is_what_is_seen() {
        let arguments = Arguments::from_text("{\"path\": \"/tmp/\u{202e}fdp\u{2066}.\u{200f}sh\"}");
        let call = ToolCall { id: None, name: "open\u{1b}[2K".to_owned(), arguments };
        assert_eq!(shown(&call), "open [2K {\"path\":\"/tmp/ fdp . sh\"}");
    }
}
