//! OpenAI's completions: the continuation of a text, without a chat template.

use super::super::job::{ServerFields, Text, Work};
use super::super::updates::{Answer, Update};
use super::chat::{finish_reason, usage};
use super::{Asked, Dialect, Refusal, Shared, Sse, Whole, ask, data, new_id, now, one, streamed};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use callwright::generate::TokenProbability;
use serde_json::{Map, Value, json};

pub(super) async fn completions(State(server): Shared, request: Request) -> Result<Response, Refusal> {
    let (running, fields) = ask(&server, request, read).await?;
    let form = Form {
        id: new_id("cmpl-"),
        created: now(),
        model: running.model,
        include_usage: fields.include_usage,
        offset: 0,
    };
    if fields.stream {
        return streamed(running.inbox, 1, form).await;
    }
    let Whole { answer, tokens } = one(running.inbox).await?;
    let mut whole = form.choice(&answer.content, Some(finish_reason(answer.finish)));
    if fields.logprobs.is_some() {
        whole["choices"][0]["logprobs"] = logprobs(&tokens, 0);
    }
    form.end(&mut whole, &answer);
    Ok(Json(whole).into_response())
}

fn read(mut body: Map<String, Value>) -> Result<(Asked, ServerFields), Refusal> {
    let fields = ServerFields::take(&mut body)?;
    fields.one_answer()?;
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    let text = Text { logprobs: fields.logprobs, ..Text::read(body)? };
    Ok((Asked { work: Work::Text(Box::new(text)), answers: 1, model }, fields))
}

struct Form {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
    /// How much text the tokens so far have.
    offset: usize,
}

/// Probabilities in the form of OpenAI's completions. `offset` is where the first token is in the text.
fn logprobs(tokens: &[TokenProbability], offset: usize) -> Value {
    let ends = tokens.iter().scan(offset, |at, token| {
        *at += token.token.token.len();
        Some(*at)
    });
    let offsets = std::iter::once(offset).chain(ends).take(tokens.len());
    let best = |token: &TokenProbability| -> Value {
        token.top_logprobs.iter().map(|one| (one.token.clone(), json!(one.logprob))).collect::<Map<_, _>>().into()
    };
    json!({
        "text_offset": offsets.collect::<Vec<_>>(),
        "tokens": tokens.iter().map(|token| &token.token.token).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|token| token.token.logprob).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(best).collect::<Vec<_>>(),
    })
}

impl Form {
    fn choice(&self, text: &str, finish_reason: Option<&str>) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason}],
        })
    }

    fn end(&self, object: &mut Value, answer: &Answer) {
        object["usage"] = usage(&answer.usage);
        object["callwright"] = json!(answer.more);
    }
}

impl Dialect for Form {
    type Event = Sse;

    fn begin(&mut self) -> Vec<Sse> {
        Vec::new()
    }

    fn update(&mut self, _: usize, update: Update) -> Vec<Sse> {
        match update {
            Update::Text(text) => vec![data(&self.choice(&text, None))],
            Update::Done(answer) => {
                let mut last = self.choice("", Some(finish_reason(answer.finish)));
                self.end(&mut last, &answer);
                if !self.include_usage
                    && let Some(last) = last.as_object_mut()
                {
                    last.shift_remove("usage");
                }
                vec![data(&last), Sse::default().data("[DONE]")]
            }
            Update::Token(token) => {
                let mut chunk = self.choice("", None);
                chunk["choices"][0]["logprobs"] = logprobs(std::slice::from_ref(&token), self.offset);
                self.offset += token.token.token.len();
                vec![data(&chunk)]
            }
            Update::Failed(refusal) => vec![data(&refusal.openai()), Sse::default().data("[DONE]")],
            _ => Vec::new(),
        }
    }
}
