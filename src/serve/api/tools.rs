//! The tools of the server itself, which its page offers: those of MCP servers. Nothing runs by itself; a person asks for it.

use super::super::job::object;
use super::super::updates::Cancel;
use super::{Refusal, Shared, blocking, body};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use callwright::agent::exec::Approval;
use callwright::hash::sha256;
use callwright::message::{Arguments, ToolCall};
use callwright::session::call_hash;
use callwright::tool::misfits;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The tools, as a request has them.
pub(super) async fn list(State(server): Shared) -> Json<Value> {
    Json(json!({"tools": server.options.tools.as_ref().map_or(json!([]), |own| own.now().to_json())}))
}

/// The header with the token of [`OwnTools`](crate::serve::OwnTools).
const TOKEN: &str = "x-callwright-token";

/// Runs a call, `{"name", "arguments"}`, and answers with its `result`, or its `error` for the model. A call that needs
/// approval has its hash as `approve`; without it, the answer says why it needs approval, and has the hash.
pub(super) async fn call(State(server): Shared, request: Request) -> Result<Json<Value>, Refusal> {
    if server.is_ending() {
        return Err(Refusal::unavailable("the server is ending"));
    }
    let given = request.headers().get(TOKEN).map(|token| sha256(token.as_bytes()));
    // Hashes are compared, so that the time tells nothing of the token.
    if server.options.tools.as_ref().is_some_and(|own| given != Some(sha256(&own.token))) {
        let message = "tools run only from the page at the address that the server printed when it started";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "no_token", message));
    }
    let received = body(&server, request.into_body()).await?;
    let places = server.options.tools.as_ref().map(|own| Arc::clone(&own.places));
    let Ok(place) = places.map(Semaphore::try_acquire_owned).transpose() else {
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_calls", "too many calls run already");
        return Err(Refusal { retry_after: Some(1), ..refusal });
    };
    // Dropped with this handler, when the client leaves.
    let cancel = Cancel::default();
    server.watch(&cancel);
    let raised = cancel.raised();
    let result = blocking(move || {
        // A call has its place until it has ended, also where nobody waits for it.
        let _place = place;
        let body = object(&received.bytes)?;
        let name = body.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| Refusal::invalid("name is missing; expected a tool's name"))?.to_owned();
        let tools = server.options.tools.as_ref().map(|own| own.now()).unwrap_or_default();
        let (Some(own), Some(tool)) = (&server.options.tools, tools.get(&name)) else {
            let message = format!("this server runs no tool {name:?}");
            return Err(Refusal::new(StatusCode::NOT_FOUND, "unknown_tool", message));
        };
        let arguments = arguments(body.get("arguments")).map_err(Refusal::invalid)?;
        let value = Value::Object(arguments.clone());
        let wrong = tool.schema().map_or(Ok(Vec::new()), |schema| misfits(&schema, &value))?;
        if let Some(first) = wrong.first() {
            return Err(Refusal::invalid(format!("arguments: {first}")));
        }
        let call = ToolCall { id: None, name, arguments: Arguments::Object(arguments) };
        let hash = call_hash(&call);
        if let (Approval::Undecided, why) = own.executor.approval(&tools, &call, None)
            && body.get("approve").and_then(Value::as_str) != Some(&hash)
        {
            return Ok(Json(json!({"needs_approval": {"why": why, "hash": hash}})));
        }
        let result = own.executor.run_approved(&tools, &[call], &[None], &raised, &mut |_, _| ()).pop();
        Ok(Json(match result {
            Some(Ok(text)) => json!({"result": text}),
            Some(Err(failure)) => json!({"error": failure.to_string()}),
            None => json!({"error": "the tool ended without a result"}),
        }))
    })
    .await;
    drop(cancel);
    result
}

/// Arguments as an object, or as the text of one.
fn arguments(given: Option<&Value>) -> Result<Map<String, Value>, &'static str> {
    let wrong = "arguments is no object, nor the text of one";
    match given {
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| wrong),
        _ => Err(wrong),
    }
}
