//! OpenAI's completions: the continuation of a text, without a chat template.

use super::super::job::{ServerFields, Text, Work};
use super::super::updates::{Answer, Update};
use super::chat::{finish_reason, usage};
use super::{Asked, Dialect, Refusal, Shared, Sse, ask, data, new_id, now, streamed, whole};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

pub(super) async fn completions(State(server): Shared, request: Request) -> Result<Response, Refusal> {
    let (running, fields) = ask(&server, request, read).await?;
    let form = Form { id: new_id("cmpl-"), created: now(), model: running.model, include_usage: fields.include_usage };
    if fields.stream {
        return streamed(running.inbox, form).await;
    }
    let answer = whole(running.inbox).await?;
    let mut whole = form.choice(&answer.content, Some(finish_reason(answer.finish)));
    form.end(&mut whole, &answer);
    Ok(Json(whole).into_response())
}

fn read(mut body: Map<String, Value>) -> Result<(Asked, ServerFields), Refusal> {
    let fields = ServerFields::take(&mut body)?;
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    let text = Text::read(body)?;
    Ok((Asked { work: Work::Text(Box::new(text)), model }, fields))
}

struct Form {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
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
    fn begin(&mut self) -> Vec<Sse> {
        Vec::new()
    }

    fn update(&mut self, update: Update) -> Vec<Sse> {
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
            Update::Failed(refusal) => vec![data(&refusal.openai()), Sse::default().data("[DONE]")],
            _ => Vec::new(),
        }
    }
}
