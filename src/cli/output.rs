//! Writes a run's events: as text, as one JSON document, or as lines of JSON.

use super::say;
use super::screen::{self, Screen};
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use callwright::message::messages_to_json;
use callwright::parse::event::Event as Parsed;
use callwright::parse::message_to_json;
use callwright::session::{Event, FinishReason, Note, NoteKind, Outcome, Reply, Session, ToolResult};
use callwright::session::{Fallback, Retry};
use callwright::setting::Front;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::io::{IsTerminal, Stdout, Write};
use std::time::Instant;

/// The kinds of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Print text as it is generated, and a line for each call
    Text,
    /// Print one JSON document at the end: messages, usage, finish_reason, diagnostics
    Json,
    /// Print each event as a line of JSON
    Events,
}

const REASONING: Style = Style::new().dimmed();
const CALL: Style = AnsiColor::Cyan.on_default().bold();
const ARGUMENTS: Style = AnsiColor::Cyan.on_default();
const TROUBLE: Style = AnsiColor::Yellow.on_default();
const RESULT_STYLE: Style = AnsiColor::Green.on_default();

/// The number of characters of a result to show.
const RESULT: usize = 200;

/// Writes events to standard output.
pub struct Printer {
    output: Output,
    out: Screen<Stdout>,
    colour: bool,
    /// Whether the current line has text.
    line_open: bool,
    /// Whether reasoning is shown at the moment.
    thinking: bool,
    /// The first error of writing; the event handler cannot return errors.
    failed: Option<std::io::Error>,
    began: Instant,
}

impl Printer {
    pub fn new(output: Output) -> Printer {
        let colour = screen::colour(&std::io::stdout());
        Printer {
            output,
            out: screen::data(),
            colour,
            line_open: false,
            thinking: false,
            failed: None,
            began: Instant::now(),
        }
    }

    /// Shows an event; false when the reader closed the output.
    pub fn event(&mut self, event: &Event) -> bool {
        let written = match self.output {
            Output::Text => self.text(event),
            Output::Json => Ok(()),
            Output::Events => event_json(event).map_err(Into::into).and_then(|line| writeln!(self.out, "{line}")),
        };
        if let Err(error) = written.and_then(|()| self.out.flush()) {
            self.failed.get_or_insert(error);
        }
        self.failed.is_none()
    }

    fn say(&mut self, style: Style, text: &str) -> std::io::Result<()> {
        let style = if self.colour { style } else { Style::new() };
        write!(self.out, "{style}{text}{style:#}")
    }

    /// Shows reasoning on a terminal only: it is not part of the answer.
    fn think(&mut self, delta: &str) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        self.thinking = true;
        say(format_args!("{REASONING}{delta}{REASONING:#}"));
    }

    fn text(&mut self, event: &Event) -> std::io::Result<()> {
        let more = matches!(event, Event::Parsed(Parsed::Reasoning { .. } | Parsed::Repair(_)));
        if !more && std::mem::take(&mut self.thinking) {
            say(format_args!("\n"));
        }
        match event {
            Event::Parsed(Parsed::Text { delta }) => {
                self.say(Style::new(), delta)?;
                self.line_open = !delta.ends_with('\n');
            }
            Event::Parsed(Parsed::CallStart { name, .. }) => {
                self.end_line()?;
                self.say(CALL, &format!("→ {name}"))?;
                self.out.write_all(b" ")?;
                self.line_open = true;
            }
            Event::Parsed(Parsed::CallArguments { delta, .. }) => {
                // A call stays on one line, whatever white space its arguments have.
                let line = delta.replace(['\n', '\r'], " ");
                self.say(ARGUMENTS, &line)?;
            }
            Event::Parsed(Parsed::CallEnd { complete, valid, .. }) => {
                let trouble = match (complete, valid) {
                    (false, _) => " (incomplete)",
                    (true, false) => " (invalid)",
                    (true, true) => "",
                };
                self.say(TROUBLE, trouble)?;
                writeln!(self.out)?;
                self.line_open = false;
            }
            Event::Parsed(Parsed::Reasoning { delta }) => self.think(delta),
            Event::ToolResult(result) => self.result(result)?,
            Event::Retry(retry) if retry.step == Retry::Dropped => {
                self.aside(&format!("not executed again: {}", retry.tool))?;
            }
            Event::Retry(retry) if matches!(retry.step, Retry::Regenerated | Retry::Repeated) => {
                let what = if retry.step == Retry::Repeated { "repeated" } else { "regenerated" };
                self.aside(&format!("{what} {}", retry.arguments.as_deref().unwrap_or(&retry.tool)))?;
            }
            Event::Fallback(step) => {
                let more = step.arguments.as_ref().unwrap_or(&step.message);
                let what = match step.outcome {
                    Fallback::Asked => "is asked",
                    Fallback::Called => "made the call",
                    Fallback::Failed => "made no call that fits",
                    Fallback::Unavailable => "is unavailable",
                    _ => "may not be asked",
                };
                self.aside(&format!("fallback {} {what}: {more}", step.model))?;
            }
            // Why is in a note or an error, after the turn.
            Event::WithoutTools(_) => self.aside("answering without tools")?,
            // The log goes on below the answer. The rest is reported after the turn.
            Event::Usage(_) | Event::Done(_) => self.end_line()?,
            _ => {}
        }
        Ok(())
    }

    /// A tool's result on one line.
    fn result(&mut self, result: &ToolResult) -> std::io::Result<()> {
        self.end_line()?;
        let line: String = result.content.trim().replace(['\n', '\r'], " ");
        let mut shown: String = line.chars().take(RESULT).collect();
        if shown.len() < line.len() {
            shown.push('…');
        }
        self.say(if result.ok { RESULT_STYLE } else { TROUBLE }, &format!("← {} {shown}", result.name))?;
        self.say(TROUBLE, if result.already_done { " (not executed again)" } else { "" })?;
        writeln!(self.out)
    }

    /// Reports what was done about a call, apart from the answer.
    fn aside(&mut self, text: &str) -> std::io::Result<()> {
        self.end_line()?;
        say(format_args!("{REASONING}… {}{REASONING:#}\n", text.replace(char::is_control, " ")));
        Ok(())
    }

    fn end_line(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.line_open) { writeln!(self.out) } else { Ok(()) }
    }

    /// Ends the output after the last event.
    pub fn finish(mut self, session: &Session, reply: &Reply) -> Result<()> {
        self.summary(json!({"type": "summary", "finish_reason": reply.finish_reason, "usage": reply.usage}));
        self.document(|| {
            let mut messages = messages_to_json(session.messages());
            if let Some(last) = messages.as_array_mut().and_then(|list| list.last_mut()) {
                *last = message_to_json(&reply.message, &reply.calls);
            }
            // A client that sees the finish reason `tool_calls` looks for calls to run.
            let whole = reply.calls.iter().any(|call| call.is_whole());
            let finish_reason = match reply.finish_reason {
                FinishReason::ToolCalls if !whole => FinishReason::Stop,
                reason => reason,
            };
            let mut document = json!({
                "messages": messages,
                "usage": reply.usage,
                "finish_reason": finish_reason,
                "diagnostics": diagnostics(session, &reply.notes),
            });
            let decision = [
                ("call_probability", reply.call_probability.map(|probability| json!(probability))),
                ("decided", reply.decided.map(|decided| json!(decided))),
            ];
            for (key, value) in decision {
                if let Some(value) = value {
                    document[key] = value;
                }
            }
            document
        })
    }

    /// Ends the output of a run with tools.
    pub fn finish_run(mut self, session: &Session, outcome: &Outcome) -> Result<()> {
        let (status, finish_reason) = (outcome.status, outcome.finish_reason);
        let usage = outcome.usage();
        self.summary(json!({"type": "summary", "status": status, "finish_reason": finish_reason, "usage": usage}));
        self.document(|| {
            json!({
                "messages": messages_to_json(session.messages()),
                "usage": outcome.usage(),
                "status": outcome.status,
                "finish_reason": outcome.finish_reason,
                "error": outcome.failure.as_deref().map(|text| Front::Program.message(text)),
                "diagnostics": diagnostics(session, &outcome.notes),
            })
        })
    }

    /// Ends the lines of events with the sum of the run.
    fn summary(&mut self, mut line: Value) {
        if self.output != Output::Events || self.failed.is_some() {
            return;
        }
        line["seconds"] = json!(self.began.elapsed().as_millis() as f64 / 1e3);
        self.failed = writeln!(self.out, "{}", timed(line)).and_then(|()| self.out.flush()).err();
    }

    fn document(mut self, document: impl FnOnce() -> Value) -> Result<()> {
        if self.output == Output::Json && self.failed.is_none() {
            writeln!(self.out, "{:#}", document())?;
        }
        self.failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// An event as JSON; messages of the library have the names of the command line's options.
fn event_json(event: &Event) -> serde_json::Result<String> {
    let value = serde_json::to_value(event)?;
    let named = match event {
        Event::Constraint(_) | Event::Context(_) | Event::History(_) | Event::Done(_) => {
            in_fields(value, &["message", "error"])
        }
        _ => value,
    };
    Ok(timed(named).to_string())
}

/// An event with the time.
fn timed(mut event: Value) -> Value {
    event["time"] = json!(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string());
    event
}

fn diagnostics(session: &Session, notes: &[Note]) -> Value {
    let applied = session.entry().map(|entry| Note::plain(NoteKind::Model, entry.to_owned())).into_iter();
    applied.chain(notes.iter().cloned()).map(|note| in_fields(json!(note), &["message"])).collect()
}

/// A JSON object whose `fields` have the names of the command line's options.
pub fn in_fields(mut object: Value, fields: &[&str]) -> Value {
    for field in fields {
        if let Some(Value::String(text)) = object.get_mut(field) {
            *text = Front::Program.message(text).into_owned();
        }
    }
    object
}
