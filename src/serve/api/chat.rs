//! OpenAI's chat completions.

use super::super::job::{Chat, ServerFields, Work};
use super::super::offered::{INPUT, Names, Offered, input_of};
use super::super::updates::{Answer, Call, Finish, Update};
use super::{Asked, Dialect, Refusal, Shared, Sse, Whole, ask, data, new_id, now, streamed, whole};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use callwright::generate::{TokenProbability, Usage};
use serde_json::{Map, Value, json};

pub(super) async fn completions(State(server): Shared, request: Request) -> Result<Response, Refusal> {
    let (running, (fields, names)) = ask(&server, request, read_with_names).await?;
    let form = Form { id: new_id("chatcmpl-"), created: now(), model: running.model, names };
    let with_tokens = fields.logprobs.is_some();
    if fields.stream {
        let tokens = vec![with_tokens.then(Vec::new); fields.answers];
        let inputs = vec![None; fields.answers];
        let stream = Stream { form, include_usage: fields.include_usage, tokens, inputs, ended: Vec::new() };
        return streamed(running.inbox, fields.answers, stream).await;
    }
    let answers = whole(running.inbox, fields.answers).await?;
    Ok(Json(form.whole(&answers, with_tokens)).into_response())
}

/// Reads a request, and what its tools are for the client.
fn read_with_names(mut body: Map<String, Value>) -> Result<(Asked, (ServerFields, Names)), Refusal> {
    let is_function = |tool: &Value| tool.get("type").is_none_or(|kind| kind == "function");
    let Some(tools) = body.get("tools").and_then(Value::as_array).filter(|tools| !tools.iter().all(is_function)) else {
        return read(body).map(|(asked, fields)| (asked, (fields, Names::default())));
    };
    let mut offered = Offered::default();
    offered.add(tools);
    body.shift_remove("tools");
    if !offered.functions.is_empty() {
        body.insert("tools".to_owned(), json!(std::mem::take(&mut offered.functions)));
    }
    if let Some(choice) = body.shift_remove("tool_choice").and_then(|choice| offered.choice(&choice)) {
        body.insert("tool_choice".to_owned(), choice);
    }
    let messages = body.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten();
    for call in messages.filter_map(|message| message.get_mut("tool_calls")?.as_array_mut()).flatten() {
        if let Some(custom) = call.get("custom").cloned() {
            let arguments = json!({INPUT: custom["input"]}).to_string();
            *call = json!({"id": call["id"], "type": "function",
                "function": {"name": custom["name"], "arguments": arguments}});
        }
    }
    let (mut asked, fields) = read(body)?;
    let names = std::mem::take(&mut offered.names);
    if let Work::Chat(chat) = &mut asked.work {
        chat.notes.extend(offered.into_notes());
    }
    Ok((asked, (fields, names)))
}

/// Reads a request whose tools are functions.
fn read(mut body: Map<String, Value>) -> Result<(Asked, ServerFields), Refusal> {
    let mut fields = ServerFields::take(&mut body)?;
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    let mut chat = Chat::read(body, std::mem::take(&mut fields.own))?;
    chat.logprobs = fields.logprobs;
    Ok((Asked { answers: fields.answers, ..Asked::chat(chat, model) }, fields))
}

fn call(call: &Call, names: &Names) -> Value {
    if names.is_custom(&call.name) {
        let custom = json!({"name": call.name, "input": input_of(&call.arguments)});
        return json!({"id": call.id, "type": "custom", "custom": custom});
    }
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
    names: Names,
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
            json!({"index": index, "message": message(answer, &self.names), "logprobs": logprobs, "finish_reason": finish})
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

fn message(answer: &Answer, names: &Names) -> Value {
    let calls: Vec<Value> = answer.calls.iter().map(|one| call(one, names)).collect();
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
    /// Of each answer, the arguments of a call that takes free text, which is in them once they are whole.
    inputs: Vec<Option<(usize, String)>>,
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
    type Event = Sse;

    fn begin(&mut self) -> Vec<Sse> {
        let begin = json!({"role": "assistant", "content": ""});
        (0..self.tokens.len()).map(|number| data(&self.chunk(number, &begin, None))).collect()
    }

    fn update(&mut self, number: usize, update: Update) -> Vec<Sse> {
        let delta = match update {
            Update::Text(text) => json!({"content": text}),
            Update::Reasoning(text) => json!({"reasoning_content": text}),
            Update::Call { index, id, name } if self.form.names.is_custom(&name) => {
                self.inputs[number] = Some((index, String::new()));
                json!({"tool_calls": [
                    {"index": index, "id": id, "type": "custom", "custom": {"name": name, "input": ""}}
                ]})
            }
            Update::Call { index, id, name } => json!({"tool_calls": [
                {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
            ]}),
            Update::Arguments { index, delta } => {
                if let Some((_, arguments)) = self.inputs[number].as_mut().filter(|(open, _)| *open == index) {
                    arguments.push_str(&delta);
                    return Vec::new();
                }
                json!({"tool_calls": [{"index": index, "function": {"arguments": delta}}]})
            }
            Update::CallEnd => {
                let Some((index, arguments)) = self.inputs[number].take() else { return Vec::new() };
                json!({"tool_calls": [{"index": index, "custom": {"input": input_of(&arguments)}}]})
            }
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
