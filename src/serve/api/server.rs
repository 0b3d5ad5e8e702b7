//! What the server says of itself.

use super::super::pool::Slot;
use super::{Refusal, Shared, blocking};
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use callwright::format::Format;
use serde_json::{Value, json};
use std::sync::Arc;

/// What the page may do: it has its own style, script and icon, and asks this server.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page for people.
pub(super) async fn page() -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Html(include_str!("../page.html"))).into_response()
}

/// The names of the formats that the field `callwright.format` of a request may have.
pub(super) async fn formats() -> Json<Value> {
    Json(json!({"formats": Format::names().collect::<Vec<&str>>()}))
}

/// Whether requests are taken.
pub(super) async fn health(State(server): Shared) -> Response {
    if server.is_ending() {
        return Refusal::unavailable("the server is ending").into_response();
    }
    Json(json!({"status": "ok"})).into_response()
}

pub(super) async fn metrics(State(server): Shared) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], server.metrics.text(&server.pool)).into_response()
}

pub(super) async fn models(State(server): Shared) -> Result<Json<Value>, Refusal> {
    listed(server, one).await
}

pub(super) async fn model(State(server): Shared, Path(id): Path<String>) -> Result<Json<Value>, Refusal> {
    named(server, id, one).await
}

/// The models as LM Studio lists them.
pub(super) async fn studio_models(State(server): Shared) -> Result<Json<Value>, Refusal> {
    listed(server, studio).await
}

pub(super) async fn studio_model(State(server): Shared, Path(id): Path<String>) -> Result<Json<Value>, Refusal> {
    named(server, id, studio).await
}

type Show = fn(&super::Server, &Slot) -> Value;

async fn listed(server: Arc<super::Server>, show: Show) -> Result<Json<Value>, Refusal> {
    blocking(move || {
        let models: Vec<Value> = server.pool.slots().iter().map(|slot| show(&server, slot)).collect();
        Ok(Json(json!({"object": "list", "data": models})))
    })
    .await
}

async fn named(server: Arc<super::Server>, id: String, show: Show) -> Result<Json<Value>, Refusal> {
    blocking(move || {
        let slot = server.pool.slots().iter().find(|slot| slot.id == id);
        slot.map(|slot| Json(show(&server, slot))).ok_or_else(|| {
            let message = format!("This server has no model {id:?}. It has: {}", server.pool.names().join(", "));
            Refusal::new(StatusCode::NOT_FOUND, "model_not_found", message)
        })
    })
    .await
}

/// A model in OpenAI's form, with its context by the names that vLLM, llama-server and OpenRouter have for it.
fn one(server: &super::Server, slot: &Slot) -> Value {
    let about = server.pool.about(slot, server);
    json!({
        "id": slot.id,
        "object": "model",
        "created": slot.created,
        "owned_by": "callwright",
        "loaded": server.pool.is_loaded(slot),
        "context_length": about.context,
        "max_model_len": about.context,
        "meta": {"n_ctx": about.context, "n_ctx_train": about.trained, "size": about.size},
    })
}

fn studio(server: &super::Server, slot: &Slot) -> Value {
    let about = server.pool.about(slot, server);
    let loaded = server.pool.is_loaded(slot);
    json!({
        "id": slot.id,
        "object": "model",
        "type": if about.embeds { "embeddings" } else { "llm" },
        "publisher": "callwright",
        "arch": about.architecture,
        "compatibility_type": "gguf",
        "quantization": about.quantization,
        "state": if loaded { "loaded" } else { "not-loaded" },
        "max_context_length": about.context,
        "loaded_context_length": about.context.filter(|_| loaded),
    })
}

pub(super) async fn unknown(method: Method, uri: Uri) -> Response {
    let message = format!("{method} {} is no path of this server; the API begins at /v1", uri.path());
    Refusal::new(StatusCode::NOT_FOUND, "unknown_path", message).at(uri.path())
}

/// Says which methods a path takes, where a request has another one.
pub(super) async fn methods(method: Method, uri: Uri, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let Some(allow) = response.headers().get(header::ALLOW) else { return response };
    let taken = allow.to_str().unwrap_or_default().replace(',', ", ");
    let message = format!("{} does not take {method}; it takes {taken}", uri.path());
    let mut refused = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message).at(uri.path());
    refused.headers_mut().insert(header::ALLOW, allow.clone());
    refused
}
