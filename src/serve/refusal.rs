//! Why a request gets no answer, in the forms of the dialects.

use super::queue::Full;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use callwright::setting::Front;
use callwright::{Error, ErrorKind};
use serde_json::{Value, json};

/// The code of a prompt that does not fit the context.
pub(super) const CONTEXT_LENGTH: &str = "context_length_exceeded";

/// Why a request gets no answer.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub status: StatusCode,
    /// A word for programs.
    pub code: &'static str,
    /// A sentence for people.
    pub message: String,
    /// The field at fault, where one is named by itself.
    pub param: Option<&'static str>,
    /// Of a prompt that does not fit: its tokens, and those of the context.
    pub tokens: Option<(u64, u64)>,
    /// After how many seconds it is worth trying again.
    pub retry_after: Option<u64>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status, code, message: message.into(), param: None, tokens: None, retry_after: None }
    }

    /// The client's mistake.
    pub(super) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// Something that works again later.
    pub(super) fn unavailable(message: impl Into<String>) -> Refusal {
        Refusal { retry_after: Some(1), ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message) }
    }

    /// Refuses a field that is there with a value of another type.
    pub(super) fn unless(is: bool, field: &'static str, expected: &str) -> Result<(), Refusal> {
        if is { Ok(()) } else { Err(Refusal::of_field(field, &format!("expected {expected}"))) }
    }

    /// A field whose value is wrong.
    pub(super) fn of_field(field: &'static str, why: &str) -> Refusal {
        Refusal { param: Some(field), ..Refusal::invalid(format!("{field}: {why}")) }
    }

    /// The same with the name that a field has in a dialect, in place of the one in chat completions.
    pub(super) fn naming(mut self, field: &str, own: &str) -> Refusal {
        if let Some(rest) = self.message.strip_prefix(field).filter(|rest| rest.starts_with([' ', '.', ':'])) {
            self.message = format!("{own}{rest}");
        }
        self
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

    /// OpenAI's form. A prompt that does not fit has the fields of llama-server, too.
    pub(super) fn openai(&self) -> Value {
        let mut error = json!({"message": self.message, "type": self.kind(), "param": self.param, "code": self.code});
        if let Some((prompt, context)) = self.tokens {
            error["n_prompt_tokens"] = json!(prompt);
            error["n_ctx"] = json!(context);
        }
        json!({"error": error})
    }

    /// Ollama's form.
    pub(super) fn ollama(&self) -> Value {
        json!({"error": self.message})
    }

    /// Anthropic's form. Its agents shorten a conversation where the error has their API's own words.
    pub(super) fn anthropic(&self) -> Value {
        let message = match self.tokens {
            Some((prompt, context)) => &format!("prompt is too long: {prompt} tokens > {context} maximum"),
            None => &self.message,
        };
        let kind = match self.status {
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => self.kind(),
        };
        json!({"type": "error", "error": {"type": kind, "message": message}})
    }

    /// The response at a path, in the form of its dialect.
    pub(super) fn at(&self, path: &str) -> Response {
        let under = |start: &str| path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let body = match () {
            () if under("/v1/messages") => self.anthropic(),
            () if under("/api") && !under("/api/v0") => self.ollama(),
            () => self.openai(),
        };
        self.response(body)
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

impl From<Full> for Refusal {
    fn from(Full { seconds }: Full) -> Refusal {
        let message = format!("too many requests wait already; try again in about {seconds} seconds");
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message);
        Refusal { retry_after: Some(seconds), ..refusal }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let message = Front::Server.message(&error.to_string()).into_owned();
        match error.kind() {
            ErrorKind::ContextOverflow => overflow(message),
            ErrorKind::Constraint => Refusal::new(StatusCode::BAD_REQUEST, "unsupported_schema", message),
            kind if kind.is_input() => Refusal::invalid(message),
            _ => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "engine_error", message),
        }
    }
}

/// A prompt that does not fit, in the words that agents look for before they shorten a conversation: those of OpenAI's API, and of
/// llama-server.
fn overflow(message: String) -> Refusal {
    let Some((prompt, context)) = tokens(&message) else {
        return Refusal::new(StatusCode::BAD_REQUEST, CONTEXT_LENGTH, message);
    };
    let message = format!(
        "This model's maximum context length is {context} tokens. However, your messages resulted in {prompt} tokens: the \
         request ({prompt} tokens) exceeds the available context size ({context} tokens). Please reduce the length of the \
         messages or of the tools. In detail: {message}"
    );
    Refusal { tokens: Some((prompt, context)), ..Refusal::new(StatusCode::BAD_REQUEST, CONTEXT_LENGTH, message) }
}

/// The tokens of the prompt and of the context, in the words of the library.
fn tokens(message: &str) -> Option<(u64, u64)> {
    let (before, after) = message.split_once(" tokens; the context holds ")?;
    let prompt = before.rsplit(' ').next()?.parse().ok()?;
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    Some((prompt, after[..digits].parse().ok()?))
}
