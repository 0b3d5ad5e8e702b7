//! Why a request gets no answer, in the forms of the dialects.

use crate::setting::Front;
use crate::{Error, ErrorKind};
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request gets no answer.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub status: StatusCode,
    /// A word for programs.
    pub code: &'static str,
    /// A sentence for people.
    pub message: String,
    /// After how many seconds it is worth trying again.
    pub retry_after: Option<u64>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status, code, message: message.into(), retry_after: None }
    }

    /// The client's mistake.
    pub(super) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// Something that works again later.
    pub(super) fn unavailable(message: impl Into<String>) -> Refusal {
        Refusal { retry_after: Some(1), ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message) }
    }

    /// OpenAI's kind of the error.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// OpenAI's form.
    pub(super) fn openai(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind(), "param": null, "code": self.code}})
    }

    /// Anthropic's form.
    pub(super) fn anthropic(&self) -> Value {
        let kind = match self.status {
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => self.kind(),
        };
        json!({"type": "error", "error": {"type": kind, "message": self.message}})
    }

    /// The response with a body in the form of a dialect.
    pub(super) fn response(&self, body: Value) -> Response {
        let mut response = (self.status, Json(body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.response(self.openai())
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let message = Front::Server.message(&error.to_string()).into_owned();
        match error.kind() {
            ErrorKind::ContextOverflow => Refusal::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message),
            ErrorKind::Constraint => Refusal::new(StatusCode::BAD_REQUEST, "unsupported_schema", message),
            kind if kind.is_input() => Refusal::invalid(message),
            _ => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "engine_error", message),
        }
    }
}
