//! OpenAI's chat completions.

use super::super::job::{Chat, ServerFields};
use super::super::updates::{Answer, Call, Finish, Update};
use super::{Asked, Dialect, Refusal, Shared, Sse, Whole, ask, data, new_id, now, streamed, whole};
use crate::generate::{TokenProbability, Usage};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

pub(super) async fn completions(State(server): Shared, request: Request) -> Result<Response, Refusal> {
    let (running, fields) = ask(&server, request, read).await?;
    let form = Form { id: new_id("chatcmpl-"), created: now(), model: running.model };
    let with_tokens = fields.logprobs.is_some();
    if fields.stream {
        let tokens = vec![with_tokens.then(Vec::new); fields.answers];
        let stream = Stream { form, include_usage: fields.include_usage, tokens, ended: Vec::new() };
        return streamed(running.inbox, fields.answers, stream).await;
    }
    let answers = whole(running.inbox, fields.answers).await?;
    Ok(Json(form.whole(&answers, with_tokens)).into_response())
}

/// Reads a request.
pub(super) fn read(mut body: Map<String, Value>) -> Result<(Asked, ServerFields), Refusal> {
    let mut fields = ServerFields::take(&mut body)?;
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    let mut chat = Chat::read(body, std::mem::take(&mut fields.own))?;
    chat.logprobs = fields.logprobs;
    Ok((Asked { answers: fields.answers, ..Asked::chat(chat, model) }, fields))
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

    fn whole(&self, answers: &[Whole], with_tokens: bool) -> Value {
        let mut whole = self.object("chat.completion");
        let choices = answers.iter().enumerate().map(|(index, Whole { answer, tokens })| {
            let logprobs = with_tokens.then(|| logprobs(tokens));
            let finish = finish_reason(answer.finish);
            json!({"index": index, "message": message(answer), "logprobs": logprobs, "finish_reason": finish})
        });
        whole["choices"] = choices.collect();
        whole["usage"] = usage(&sum(answers.iter().map(|whole| &whole.answer.usage)));
        match answers {
            [one] => whole["callwright"] = json!(one.answer.more),
            several => {
                for (index, one) in several.iter().enumerate() {
                    whole["choices"][index]["callwright"] = json!(one.answer.more);
                }
            }
        }
        whole
    }
}

fn message(answer: &Answer) -> Value {
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
    message
}

/// The tokens of all answers to one prompt, which counts once.
fn sum<'a>(answers: impl Iterator<Item = &'a Usage>) -> Usage {
    let mut all = answers.copied();
    let mut sum = all.next().unwrap_or_default();
    all.for_each(|usage| sum.completion_tokens += usage.completion_tokens);
    sum
}

/// A response in chunks.
struct Stream {
    form: Form,
    include_usage: bool,
    /// Of each answer, the tokens that no chunk has yet, where they are asked for.
    tokens: Vec<Option<Vec<TokenProbability>>>,
    /// The usage of the answers that are over.
    ended: Vec<Usage>,
}

impl Stream {
    fn chunk(&mut self, number: usize, delta: &Value, finish_reason: Option<&str>) -> Value {
        let tokens = self.tokens[number].as_mut().map(std::mem::take).filter(|tokens| !tokens.is_empty());
        let logprobs = tokens.map(|tokens| logprobs(&tokens));
        let choice = json!({"index": number, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason});
        let mut chunk = self.form.object("chat.completion.chunk");
        chunk["choices"] = json!([choice]);
        chunk
    }

    /// The last chunk of an answer, and after the last answer the end of the stream.
    fn end(&mut self, number: usize, answer: &Answer) -> Vec<Sse> {
        let mut last = self.chunk(number, &json!({}), Some(finish_reason(answer.finish)));
        last["callwright"] = json!(answer.more);
        let mut events = vec![data(&last)];
        self.ended.push(answer.usage);
        if self.ended.len() < self.tokens.len() {
            return events;
        }
        if self.include_usage {
            let mut chunk = self.form.object("chat.completion.chunk");
            chunk["usage"] = usage(&sum(self.ended.iter()));
            events.push(data(&chunk));
        }
        events.push(Sse::default().data("[DONE]"));
        events
    }
}

impl Dialect for Stream {
    fn begin(&mut self) -> Vec<Sse> {
        let begin = json!({"role": "assistant", "content": ""});
        (0..self.tokens.len()).map(|number| data(&self.chunk(number, &begin, None))).collect()
    }

    fn update(&mut self, number: usize, update: Update) -> Vec<Sse> {
        let delta = match update {
            Update::Text(text) => json!({"content": text}),
            Update::Reasoning(text) => json!({"reasoning_content": text}),
            Update::Call { index, id, name } => json!({"tool_calls": [
                {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
            ]}),
            Update::Arguments { index, delta } => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": delta}}]})
            }
            Update::CallEnd => return Vec::new(),
            Update::Token(token) => {
                self.tokens[number].get_or_insert_default().push(token);
                return Vec::new();
            }
            Update::Done(answer) => return self.end(number, &answer),
            Update::Failed(refusal) => return vec![data(&refusal.openai()), Sse::default().data("[DONE]")],
        };
        vec![data(&self.chunk(number, &delta, None))]
    }
}
