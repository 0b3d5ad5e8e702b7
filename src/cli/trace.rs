//! A run as OpenTelemetry spans, in OTLP's JSON, by the semantic conventions for generative AI
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>); and what its models took, as a table.
//!
//! It has no text of the conversation: only names, ids, numbers and times.

use super::notice;
use anyhow::Result;
use callwright::Error;
use callwright::files::{self, Readers};
use callwright::hash::sha256;
use callwright::parse::event::Event as Parsed;
use callwright::session::{Event, ModelUsage, Session};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where the spans of a run go.
#[derive(Args)]
pub struct TraceOptions {
    /// Write the run to FILE as OpenTelemetry spans, in OTLP's JSON: model calls, tools, repairs and approvals, without texts
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    trace: Option<PathBuf>,

    /// Send these spans to the OpenTelemetry collector at URL, such as http://localhost:4318
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "URL", help_heading = "Output", value_parser = collector)]
    otlp: Option<String>,
}

/// Returns the address that takes spans.
#[cfg(feature = "remote")]
fn collector(url: &str) -> Result<String, String> {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("not an address that begins with http:// or https://".to_owned());
    }
    let url = url.trim_end_matches('/');
    Ok(if url.ends_with("/v1/traces") { url.to_owned() } else { format!("{url}/v1/traces") })
}

/// The keys of events that are kept: the others have texts.
const KEPT: [&str; 14] = [
    "id", "tool", "name", "kind", "step", "fault", "failures", "model", "attempt", "outcome", "reason", "decision",
    "hash", "why",
];

/// Collects the spans of a run.
pub struct Trace {
    file: Option<PathBuf>,
    #[cfg(feature = "remote")]
    collector: Option<String>,
    model: String,
    /// The spans of the runs before this one.
    earlier: Vec<Value>,
    run: Run,
}

/// What is known of the run so far.
struct Run {
    trace: String,
    root: String,
    began: Duration,
    spans: Vec<Value>,
    /// What happened between the spans.
    events: Vec<Value>,
    /// What happened in the answer that is being written.
    answer: Vec<Value>,
    /// Whether that answer has calls.
    called: bool,
    tokens: (usize, usize),
}

impl TraceOptions {
    /// Begins to collect the spans of a run, if they are wanted. The spans that a `resumed` run has in its file are kept.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](callwright::ErrorKind::Io) if the file cannot be written.
    pub fn begin(&self, session: &Session, resumed: bool) -> Result<Option<Trace>> {
        #[cfg(feature = "remote")]
        let sent = self.otlp.is_some();
        #[cfg(not(feature = "remote"))]
        let sent = false;
        if self.trace.is_none() && !sent {
            return Ok(None);
        }
        let text = self.trace.as_ref().filter(|_| resumed).and_then(|path| std::fs::read(path).ok());
        let before: Value = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let earlier = before.pointer("/resourceSpans/0/scopeSpans/0/spans").and_then(Value::as_array);
        let trace = Trace {
            file: self.trace.clone(),
            #[cfg(feature = "remote")]
            collector: self.otlp.clone(),
            model: session.engine().model().name.clone(),
            earlier: earlier.cloned().unwrap_or_default(),
            run: Run::new(),
        };
        trace.write()?;
        Ok(Some(trace))
    }
}

impl Run {
    fn new() -> Run {
        Run {
            trace: id(32),
            root: id(16),
            began: now(),
            spans: Vec::new(),
            events: Vec::new(),
            answer: Vec::new(),
            called: false,
            tokens: (0, 0),
        }
    }

    /// Adds a span that ends now.
    fn span(&mut self, name: String, seconds: Duration, error: Option<&str>, attributes: Value, events: Vec<Value>) {
        let end = now();
        let mut span = json!({
            "traceId": self.trace,
            "spanId": id(16),
            "parentSpanId": self.root,
            "name": name,
            // Internal: callwright runs the model and the tools itself.
            "kind": 1,
            "startTimeUnixNano": nanoseconds(end.saturating_sub(seconds).max(self.began)),
            "endTimeUnixNano": nanoseconds(end),
            "attributes": attributes_of(&attributes),
            "events": events,
        });
        if let Some(error) = error {
            span["status"] = json!({"code": 2, "message": error});
        }
        self.spans.push(span);
    }
}

impl Trace {
    /// Takes an event of the run.
    pub fn event(&mut self, event: &Event) {
        let run = &mut self.run;
        match event {
            Event::Usage(step) => {
                let usage = &step.usage;
                let model = step.model.as_ref().unwrap_or(&self.model);
                let attributes = json!({
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "callwright",
                    "gen_ai.request.model": model,
                    "gen_ai.usage.input_tokens": usage.prompt_tokens,
                    "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                    "gen_ai.usage.output_tokens": usage.completion_tokens,
                    "gen_ai.response.finish_reasons": [if std::mem::take(&mut run.called) { "tool_calls" } else { "stop" }],
                });
                run.tokens.0 += usage.prompt_tokens;
                run.tokens.1 += usage.completion_tokens;
                let events = std::mem::take(&mut run.answer);
                run.span(format!("chat {model}"), usage.prompt_time + usage.completion_time, None, attributes, events);
            }
            // Where a call is not executed, it has the result of another one.
            Event::ToolResult(result) if result.same_as.is_none() && !result.already_done => {
                let failure = json!(result.failure);
                let mut attributes = json!({
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": result.name,
                    "gen_ai.tool.call.id": result.id,
                    "gen_ai.tool.type": "function",
                });
                if !failure.is_null() {
                    attributes["error.type"] = failure.clone();
                }
                let took = Duration::try_from_secs_f64(result.seconds).unwrap_or_default();
                run.span(format!("execute_tool {}", result.name), took, failure.as_str(), attributes, Vec::new());
            }
            Event::Parsed(Parsed::CallEnd { .. }) => run.called = true,
            Event::Parsed(Parsed::Repair(_)) => run.answer.push(span_event(event)),
            Event::Approval(_) | Event::Retry(_) | Event::Fallback(_) | Event::WithoutTools(_) => {
                run.events.push(span_event(event));
            }
            Event::Done(done) => {
                let reason = attributes_of(&json!({"gen_ai.response.finish_reasons": [done.finish_reason]}));
                let last = run
                    .spans
                    .iter_mut()
                    .rfind(|span| span["name"].as_str().is_some_and(|name| name.starts_with("chat ")));
                let attributes = last.and_then(|span| span["attributes"].as_array_mut());
                let place = attributes.and_then(|all| all.iter_mut().find(|one| one["key"] == reason[0]["key"]));
                place.into_iter().for_each(|place| *place = reason[0].clone());
                let attributes = json!({
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.provider.name": "callwright",
                    "gen_ai.request.model": self.model,
                    "gen_ai.usage.input_tokens": run.tokens.0,
                    "gen_ai.usage.output_tokens": run.tokens.1,
                    "callwright.status": done.status,
                });
                let events = std::mem::take(&mut run.events);
                run.span(
                    "invoke_agent".to_owned(),
                    now().saturating_sub(run.began),
                    done.error.as_deref(),
                    attributes,
                    events,
                );
                // The others are in it.
                if let Some(Value::Object(root)) = run.spans.last_mut() {
                    root["spanId"] = json!(run.root);
                    root.shift_remove("parentSpanId");
                }
            }
            _ => {}
        }
    }

    /// Writes and sends the spans of the run that has ended, and begins another one. What fails is only noted.
    pub fn end(&mut self) {
        let Run { spans, .. } = std::mem::replace(&mut self.run, Run::new());
        #[cfg(feature = "remote")]
        if let Some(url) = &self.collector
            && let Err(error) = callwright::remote::post(url, &document(&spans))
        {
            notice(&format!("the spans of the run were not taken: {error}"));
        }
        self.earlier.extend(spans);
        if let Err(error) = self.write() {
            notice(&error.to_string());
        }
    }

    fn write(&self) -> Result<(), Error> {
        let Some(path) = &self.file else { return Ok(()) };
        let text = format!("{}\n", document(&self.earlier));
        files::write(path, text.as_bytes(), Readers::Owner).map_err(|error| Error::io("write", path, &error))
    }
}

/// Spans as OTLP's JSON.
fn document(spans: &[Value]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource = attributes_of(&json!({"service.name": "callwright", "service.version": version}));
    let scope = json!({"name": "callwright", "version": version});
    json!({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"scope": scope, "spans": spans}]}]})
}

/// An event of a span: its type, and what it has that is no text.
fn span_event(event: &Event) -> Value {
    let all = serde_json::to_value(event).unwrap_or_default();
    let kept = all.as_object().into_iter().flatten().filter(|(key, _)| KEPT.contains(&key.as_str()));
    let kept: Map<String, Value> = kept.map(|(key, value)| (format!("callwright.{key}"), value.clone())).collect();
    json!({"timeUnixNano": nanoseconds(now()), "name": all["type"], "attributes": attributes_of(&Value::Object(kept))})
}

/// The members of an object as OTLP writes attributes; those without a value are left out.
fn attributes_of(members: &Value) -> Vec<Value> {
    fn typed(value: &Value) -> Option<Value> {
        Some(match value {
            Value::Null | Value::Object(_) => return None,
            Value::Bool(flag) => json!({"boolValue": flag}),
            Value::Number(number) if number.is_f64() => json!({"doubleValue": number}),
            // 64 bits do not fit JSON's numbers everywhere.
            Value::Number(number) => json!({"intValue": number.to_string()}),
            Value::String(text) => json!({"stringValue": text}),
            Value::Array(list) => json!({"arrayValue": {"values": list.iter().filter_map(typed).collect::<Vec<_>>()}}),
        })
    }
    let members = members.as_object().into_iter().flatten();
    members.filter_map(|(key, value)| Some(json!({"key": key, "value": typed(value)?}))).collect()
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn nanoseconds(time: Duration) -> String {
    time.as_nanos().to_string()
}

/// An id of so many digits that no other span has.
fn id(digits: usize) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut id = sha256(format!("{} {} {count}", std::process::id(), now().as_nanos()));
    id.truncate(digits);
    id
}

/// Adds what a run took to what the runs before it took.
pub fn add(all: &mut Vec<ModelUsage>, more: &[ModelUsage]) {
    for spent in more {
        match all.iter_mut().find(|known| known.model == spent.model) {
            Some(known) => {
                known.answers += spent.answers;
                known.usage += spent.usage;
            }
            None => all.push(spent.clone()),
        }
    }
}

/// A table of what each model took.
pub fn stats(models: &[ModelUsage]) -> String {
    if models.is_empty() {
        return "nothing was generated yet".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["MODEL", "ANSWERS", "PROMPT", "CACHED", "GENERATED", "SECONDS", "TOKENS/S"]);
    for ModelUsage { model, answers, usage, .. } in models {
        let writing = usage.completion_time.as_secs_f64();
        let speed =
            if writing > 0.0 { format!("{:.0}", usage.completion_tokens as f64 / writing) } else { String::new() };
        let seconds = format!("{:.2}", (usage.prompt_time + usage.completion_time).as_secs_f64());
        let tokens =
            [usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens].map(|tokens| tokens.to_string());
        let [prompt, cached, generated] = tokens;
        table.add_row([model.clone(), answers.to_string(), prompt, cached, generated, seconds, speed]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
