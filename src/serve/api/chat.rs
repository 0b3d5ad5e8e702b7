//! OpenAI's chat completions.

use super::super::job::{Chat, ServerFields, Work};
use super::super::updates::{Answer, Call, Finish, Update};
use super::{Asked, Dialect, Refusal, Shared, Sse, ask, data, new_id, now, streamed, whole};
use crate::generate::{TokenProbability, Usage};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

pub(super) async fn completions(State(server): Shared, request: Request) -> Result<Response, Refusal> {
    let (running, fields) = ask(&server, request, read).await?;
    let form = Form { id: new_id("chatcmpl-"), created: now(), model: running.model };
    if fields.stream {
        let tokens = fields.logprobs.is_some().then(Vec::new);
        let stream = Stream { form, include_usage: fields.include_usage, tokens };
        return streamed(running.inbox, stream).await;
    }
    let (answer, tokens) = whole(running.inbox).await?;
    let mut whole = form.whole(&answer);
    if fields.logprobs.is_some() {
        whole["choices"][0]["logprobs"] = logprobs(&tokens);
    }
    Ok(Json(whole).into_response())
}

/// Reads a request.
pub(super) fn read(mut body: Map<String, Value>) -> Result<(Asked, ServerFields), Refusal> {
    let mut fields = ServerFields::take(&mut body)?;
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    let mut chat = Chat::read(body, std::mem::take(&mut fields.own))?;
    chat.logprobs = fields.logprobs;
    Ok((Asked { work: Work::Chat(Box::new(chat)), model }, fields))
}

fn call(call: &Call) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

/// Probabilities in OpenAI's form: of all tokens that the model wrote, those of calls and reasoning too.
fn logprobs(tokens: &[TokenProbability]) -> Value {
    json!({"content": tokens, "refusal": null})
}

/// Tokens in OpenAI's form.
pub(super) fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}

pub(super) fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
    }
}

/// What all parts of a response have in common.
struct Form {
    id: String,
    created: u64,
    model: String,
}

impl Form {
    fn object(&self, kind: &str) -> Value {
        json!({"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": []})
    }

    fn whole(&self, answer: &Answer) -> Value {
        let calls: Vec<Value> = answer.calls.iter().map(call).collect();
        let content = match answer.content.is_empty() && !calls.is_empty() {
            true => Value::Null,
            false => json!(answer.content),
        };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if let Some(reasoning) = &answer.reasoning {
            message["reasoning_content"] = json!(reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let mut whole = self.object("chat.completion");
        whole["choices"] = json!([{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason(answer.finish),
        }]);
        whole["usage"] = usage(&answer.usage);
        whole["callwright"] = json!(answer.more);
        whole
    }
}

/// A response in chunks.
struct Stream {
    form: Form,
    include_usage: bool,
    /// The tokens that no chunk has yet, where they are asked for.
    tokens: Option<Vec<TokenProbability>>,
}

impl Stream {
    fn chunk(&mut self, delta: &Value, finish_reason: Option<&str>) -> Value {
        let tokens = self.tokens.as_mut().map(std::mem::take).filter(|tokens| !tokens.is_empty());
        let logprobs = tokens.map(|tokens| logprobs(&tokens));
        let mut chunk = self.form.object("chat.completion.chunk");
        chunk["choices"] = json!([{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}]);
        chunk
    }

    fn delta(&mut self, delta: &Value) -> Vec<Sse> {
        vec![data(&self.chunk(delta, None))]
    }
}

impl Dialect for Stream {
    fn begin(&mut self) -> Vec<Sse> {
        self.delta(&json!({"role": "assistant", "content": ""}))
    }

    fn update(&mut self, update: Update) -> Vec<Sse> {
        match update {
            Update::Text(text) => self.delta(&json!({"content": text})),
            Update::Reasoning(text) => self.delta(&json!({"reasoning_content": text})),
            Update::Call { index, id, name } => self.delta(&json!({"tool_calls": [
                {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
            ]})),
            Update::Arguments { index, delta } => {
                self.delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": delta}}]}))
            }
            Update::CallEnd => Vec::new(),
            Update::Token(token) => {
                self.tokens.get_or_insert_default().push(token);
                Vec::new()
            }
            Update::Done(answer) => {
                let mut last = self.chunk(&json!({}), Some(finish_reason(answer.finish)));
                last["callwright"] = json!(answer.more);
                let mut events = vec![data(&last)];
                if self.include_usage {
                    let mut chunk = self.form.object("chat.completion.chunk");
                    chunk["usage"] = usage(&answer.usage);
                    events.push(data(&chunk));
                }
                events.push(Sse::default().data("[DONE]"));
                events
            }
            Update::Failed(refusal) => vec![data(&refusal.openai()), Sse::default().data("[DONE]")],
        }
    }
}
