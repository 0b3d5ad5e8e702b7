//! Prompts and tokens, without generating: the paths that llama-server has.

use super::super::job::{Chat, ServerFields, object};
use super::super::pool::Host;
use super::{Received, Refusal, Shared, blocking, body};
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use callwright::engine::Token;
use callwright::template::Piece;
use futures_util::stream;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;

/// The longest text to tokenize, in bytes. llama.cpp takes up to a hundred bytes of memory for each.
const TEXT: usize = 16 << 20;
/// How many tokens are written at a time.
const AT_A_TIME: usize = 4096;

/// Reads a body, finds its model, and answers with what `work` makes of both.
pub(super) async fn with_model(
    server: Arc<super::Server>,
    request: Request,
    work: impl FnOnce(Map<String, Value>, &Host, &super::Server) -> Result<Value, Refusal> + Send + 'static,
) -> Result<Json<Value>, Refusal> {
    let received = body(&server, request.into_body()).await?;
    blocking(move || {
        let (body, host) = read(&server, &received.bytes)?;
        work(body, &host, &server).map(Json)
    })
    .await
}

/// A body, and the model that it names.
fn read(server: &super::Server, bytes: &[u8]) -> Result<(Map<String, Value>, Arc<Host>), Refusal> {
    let body = object(bytes)?;
    let (slot, _) = server.pool.find(body.get("model").and_then(Value::as_str))?;
    Ok((body, server.pool.host(slot, server)?))
}

/// Returns what the first model's prompts are written with.
pub(super) async fn first_props(State(server): Shared) -> Result<Json<Value>, Refusal> {
    blocking(move || {
        let (slot, _) = server.pool.find(None)?;
        let host = server.pool.host(slot, &server)?;
        Ok(Json(props_of(&host)))
    })
    .await
}

/// The same for the model that the body names.
pub(super) async fn props(State(server): Shared, request: Request) -> Result<Json<Value>, Refusal> {
    with_model(server, request, |_, host, _| Ok(props_of(host))).await
}

fn props_of(host: &Host) -> Value {
    host.at_desk(|session| {
        let model = session.engine().model();
        let context = session.engine().context_limit();
        json!({
            "chat_template": session.template().source(),
            "bos_token": model.bos,
            "eos_token": model.eos,
            "n_ctx": context,
            "default_generation_settings": {"n_ctx": context},
        })
    })
}

/// A text → its tokens. They are written while they are sent: with its piece, a token takes many times the bytes of its text.
pub(super) async fn tokenize(State(server): Shared, request: Request) -> Result<Response, Refusal> {
    let Received { bytes, held } = body(&server, request.into_body()).await?;
    let (tokens, pieces) = blocking(move || {
        let (mut body, host) = read(&server, &bytes)?;
        drop(bytes);
        let Some(Value::String(text)) = body.shift_remove("content") else {
            return Err(Refusal::invalid("content is missing; expected a text"));
        };
        if text.len() > TEXT {
            let message = format!("content has {} bytes; {TEXT} are the most that are tokenized at a time", text.len());
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message));
        }
        let flag = |name: &str, default| body.get(name).and_then(Value::as_bool).unwrap_or(default);
        let (special, pieces) = (flag("parse_special", true), flag("with_pieces", false));
        let begin = flag("add_special", false);
        let tokens = host.at_desk(|session| {
            let engine = session.engine();
            let mut tokens = engine.tokenize(&[Piece { text, literal: !special }])?;
            // The engine adds the token that begins a sequence, where the model has one.
            let own = engine.tokenize(&[])?;
            if !begin && tokens.starts_with(&own) {
                tokens.drain(..own.len());
            }
            Ok::<Vec<Token>, Refusal>(tokens)
        })?;
        Ok((tokens, pieces.then_some(host)))
    })
    .await?;
    let parts = stream::unfold((tokens, pieces, held, Some(0)), |(tokens, pieces, held, from)| async move {
        let from = from?;
        let mut part = String::from(if from == 0 { "{\"tokens\":[" } else { "" });
        let some = &tokens[from..tokens.len().min(from + AT_A_TIME)];
        match &pieces {
            Some(host) => host.write_pieces(some, from == 0, &mut part),
            None => some.iter().enumerate().for_each(|(index, token)| {
                let comma = if from + index == 0 { "" } else { "," };
                let _ = write!(part, "{comma}{}", token.0);
            }),
        }
        let next = Some(from + some.len()).filter(|next| *next < tokens.len());
        if next.is_none() {
            part.push_str("]}");
        }
        Some((Ok::<String, Infallible>(part), (tokens, pieces, held, next)))
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response())
}

/// Tokens → their text.
pub(super) async fn detokenize(State(server): Shared, request: Request) -> Result<Json<Value>, Refusal> {
    with_model(server, request, |body, host, _| {
        let tokens: Option<Vec<Token>> =
            body.get("tokens").and_then(|tokens| serde_json::from_value(tokens.clone()).ok());
        let Some(tokens) = tokens else {
            return Err(Refusal::invalid("tokens is missing; expected a list of token ids"));
        };
        let bytes = host.at_desk(|session| {
            tokens.iter().flat_map(|token| session.engine().token_bytes(*token).to_vec()).collect::<Vec<u8>>()
        });
        Ok(json!({"content": String::from_utf8_lossy(&bytes)}))
    })
    .await
}

/// A conversation → the prompt that the model gets.
pub(super) async fn apply_template(State(server): Shared, request: Request) -> Result<Json<Value>, Refusal> {
    with_model(server, request, |mut body, host, server| {
        let own = ServerFields::take(&mut body)?.own;
        let chat = Chat::read(body, own)?;
        prompt(chat, host, server).map(|(prompt, _)| json!({"prompt": prompt}))
    })
    .await
}

/// The prompt of a conversation, and how many tokens it has.
pub(super) fn prompt(chat: Chat, host: &Host, server: &super::Server) -> Result<(String, usize), Refusal> {
    host.at_desk(|session| {
        let defaults = &server.options.defaults;
        *session.options_mut() = chat.options(host.model().entry(), defaults, server.options.max_tokens);
        session.set_tools(chat.tools);
        session.set_adopted_messages(chat.messages);
        let written = session.prompt();
        session.take_notices();
        let (prompt, tokens) = written?;
        Ok((prompt.text(), tokens.len()))
    })
}
