//! What /metrics reports, in the text format of Prometheus.

use super::pool::Pool;
use super::updates::{Answer, Finish};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// One label with its value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Label(&'static str, String);

impl EncodeLabelSet for Label {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        use prometheus_client::encoding::EncodeLabel;
        (self.0, self.1.as_str()).encode(encoder.encode_label())
    }
}

/// Counters of the whole server; clones share them.
#[derive(Clone)]
pub(super) struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    requests: Family<Label, Counter>,
    answers: Family<Label, Counter>,
    repairs: Family<Label, Counter>,
    calls: Family<Label, Counter>,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    completion_tokens: Counter,
    forced_tokens: Counter,
    restarts: Counter,
    first_token: Histogram,
    waiting: Family<Label, Gauge>,
    running: Family<Label, Gauge>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("callwright");
        let inner = Inner {
            requests: Family::default(),
            answers: Family::default(),
            repairs: Family::default(),
            calls: Family::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            completion_tokens: Counter::default(),
            forced_tokens: Counter::default(),
            restarts: Counter::default(),
            first_token: Histogram::new(exponential_buckets(0.005, 2.0, 14)),
            waiting: Family::default(),
            running: Family::default(),
            registry: Registry::default(),
        };
        registry.register("requests", "Requests, by HTTP status", inner.requests.clone());
        registry.register("answers", "Answers, by finish reason", inner.answers.clone());
        registry.register("repairs", "Repaired departures from a format, by kind", inner.repairs.clone());
        registry.register("tool_calls", "Calls: valid, invalid, or incomplete", inner.calls.clone());
        registry.register("prompt_tokens", "Tokens of prompts", inner.prompt_tokens.clone());
        registry.register("cached_tokens", "Tokens of prompts that were in the KV cache", inner.cached_tokens.clone());
        registry.register("completion_tokens", "Tokens generated", inner.completion_tokens.clone());
        registry.register("forced_tokens", "Tokens that a grammar forced", inner.forced_tokens.clone());
        registry.register("worker_restarts", "Threads restarted after an error", inner.restarts.clone());
        registry.register(
            "time_to_first_token_seconds",
            "Time until a prompt was decoded, without waiting",
            inner.first_token.clone(),
        );
        registry.register("requests_waiting", "Requests that wait, by model", inner.waiting.clone());
        registry.register("requests_running", "Requests that are being answered, by model", inner.running.clone());
        Metrics(Arc::new(Inner { registry, ..inner }))
    }
}

impl Metrics {
    /// A request was answered with this HTTP status.
    pub(super) fn request(&self, status: u16) {
        self.0.requests.get_or_create(&Label("status", status.to_string())).inc();
    }

    /// A worker was restarted.
    pub(super) fn restarted(&self) {
        self.0.restarts.inc();
    }

    /// An answer is over.
    pub(super) fn answered(&self, answer: &Answer) {
        let inner = &self.0;
        let reason = match answer.finish {
            Finish::Stop => "stop",
            Finish::ToolCalls => "tool_calls",
            Finish::Length => "length",
        };
        inner.answers.get_or_create(&Label("finish_reason", reason.to_owned())).inc();
        let list = |name: &str| answer.more.get(name).and_then(serde_json::Value::as_array).into_iter().flatten();
        for kind in list("repairs").filter_map(|note| note["repair"]["kind"].as_str()) {
            inner.repairs.get_or_create(&Label("kind", kind.to_owned())).inc();
        }
        let valid = answer.calls.iter().filter(|call| call.valid).count();
        let counts = [
            ("valid", valid),
            ("invalid", answer.calls.len() - valid),
            ("incomplete", list("invalid_tool_calls").count()),
        ];
        for (state, count) in counts {
            inner.calls.get_or_create(&Label("state", state.to_owned())).inc_by(count as u64);
        }
        let usage = &answer.usage;
        inner.prompt_tokens.inc_by(usage.prompt_tokens as u64);
        inner.cached_tokens.inc_by(usage.cached_tokens as u64);
        inner.completion_tokens.inc_by(usage.completion_tokens as u64);
        inner.forced_tokens.inc_by(usage.forced_tokens as u64);
        inner.first_token.observe(usage.prompt_time.as_secs_f64());
    }

    /// All of it as text.
    pub(super) fn text(&self, pool: &Pool) -> String {
        for (model, waiting, running) in pool.load() {
            let label = Label("model", model);
            self.0.waiting.get_or_create(&label).set(waiting as i64);
            self.0.running.get_or_create(&label).set(running as i64);
        }
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &self.0.registry);
        text
    }
}
