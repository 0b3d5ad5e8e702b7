//! Questions about calls to the person at the terminal: may a tool run, and what is a call's result?

use super::lines::TypedAhead;
use super::say;
use callwright::message::ToolCall;
use rustyline::error::ReadlineError;
use rustyline::{Behavior, Config, DefaultEditor};
use std::sync::atomic::{AtomicBool, Ordering};

/// A call as text for a question: no part of it moves the cursor or changes the order in which it is shown.
fn shown(call: &ToolCall) -> String {
    let disguises = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    format!("{} {}", call.name, call.arguments.to_text()).replace(disguises, " ")
}

/// Asks at the terminal whether a call may be executed.
pub fn confirm(call: &ToolCall, cancel: &AtomicBool, typed: &TypedAhead) -> bool {
    let question = format!("Run {}? [y/N] ", shown(call));
    typed.take_in();
    loop {
        let Some(answer) = line(&question, cancel) else { return false };
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => return true,
            "" | "n" | "no" => return false,
            // Any other text may be meant for the model.
            _ => say(format_args!("y runs it, n does not; the conversation goes on after that\n")),
        }
    }
}

/// Asks at the terminal for the result of a call without a command; none after Ctrl-D or Ctrl-C.
pub fn result(call: &ToolCall, cancel: &AtomicBool, typed: &TypedAhead) -> Option<String> {
    typed.take_in();
    line(&format!("Result of {}: ", shown(call)), cancel)
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
