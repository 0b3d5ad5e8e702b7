//! Who may use the server.
//!
//! A server on this machine is in reach of every web page that its user opens. So a request that a page of another
//! origin makes is refused, unless that origin is allowed, and so is a host name that is not this server's (a page can
//! have its own name resolve to this machine's address). Other machines need a key. A flood of headers is refused, too.

use super::line::Line;
use super::refusal::Refusal;
use super::{ServeOptions, Server};
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode, Uri, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Paths that need no key: the state of the server, and the page, which asks for one.
const OPEN: [&str; 2] = ["/health", "/"];

/// Headers of a request.
const HEADERS: usize = 100;

/// Who may use the server.
pub(super) struct Guard {
    key: Option<String>,
    cors: Vec<String>,
    host_names: Vec<String>,
}

impl Guard {
    pub(super) fn new(options: &ServeOptions) -> Guard {
        Guard { key: options.api_key.clone(), cors: options.cors.clone(), host_names: options.host_names.clone() }
    }

    /// Whether a request may go on.
    fn check(&self, target: &Uri, version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
        if headers.len() > HEADERS {
            let message = format!("{} headers are more than the {HEADERS} of a request", headers.len());
            return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_many_headers", message));
        }
        let host = one(headers, &header::HOST)?;
        if host.is_none() && version == Version::HTTP_11 {
            let message = "the header host is missing";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_header", message));
        }
        // A request may name the host in its first line, too.
        let named = host.into_iter().chain(target.authority().map(Authority::as_str));
        for host in named {
            let is_own = host_name(host).is_some_and(|name| self.key.is_some() || self.is_own(name));
            if !is_own {
                let message = format!(
                    "the host {host:?} is not known to be this server: use its address or localhost, or start it with --allow-host NAME"
                );
                return Err(Refusal::new(StatusCode::FORBIDDEN, "unknown_host", message));
            }
        }
        if let Some(origin) = one(headers, &header::ORIGIN)?
            && !self.allows(origin)
            && !host.is_some_and(|host| is_of(origin, host))
        {
            let message = format!("pages of {origin:?} may not use this server; --cors {origin} allows it");
            return Err(Refusal::new(StatusCode::FORBIDDEN, "origin_not_allowed", message));
        }
        let Some(key) = &self.key else { return Ok(()) };
        if OPEN.contains(&target.path()) {
            return Ok(());
        }
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let given = text(header::AUTHORIZATION).and_then(bearer).or_else(|| text(HeaderName::from_static("x-api-key")));
        if bool::from(given.unwrap_or_default().trim().as_bytes().ct_eq(key.as_bytes())) {
            return Ok(());
        }
        let message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
    }

    /// Returns whether a client may call this server so. An address cannot be made to resolve to another one.
    fn is_own(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.host_names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    fn allows(&self, origin: &str) -> bool {
        self.cors.iter().any(|allowed| allowed == "*" || allowed == origin)
    }
}

/// The value of a header that a request has once, as text.
fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str().ok().filter(|text| !text.trim().is_empty() && values.next().is_none()) {
        Some(text) => Ok(Some(text)),
        None => {
            let message = format!("the header {name} is empty, unreadable or given twice");
            Err(Refusal::new(StatusCode::FORBIDDEN, "bad_header", message))
        }
    }
}

/// The name or address in `HOST[:PORT]`, an IPv6 address without its brackets; `None` for anything else.
fn host_name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(address, _)| address.parse::<Ipv6Addr>().is_ok())?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    (!name.is_empty() && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))).then_some(name)
}

/// Returns whether an origin is that of the pages of a host.
fn is_of(origin: &str, host: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

/// The key in `Bearer KEY`.
fn bearer(value: &str) -> Option<&str> {
    value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key)
}

/// Lets a request through or refuses it, answers what browsers ask before one, and counts it.
pub(super) async fn check(State(server): State<Arc<Server>>, mut request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let allowed = origin.filter(|origin| origin.to_str().is_ok_and(|origin| server.guard.allows(origin)));
    let target = request.uri().clone();
    let line = server.options.log.and_then(|write| Line::new(write, request.method().as_str(), target.path()));
    let line = line.map(Arc::new);
    if let Some(line) = &line {
        request.extensions_mut().insert(Arc::clone(line));
    }
    let mut response = if request.method() == Method::OPTIONS && allowed.is_some() {
        StatusCode::NO_CONTENT.into_response()
    } else if let Err(refusal) = server.guard.check(&target, request.version(), request.headers()) {
        refusal.at(target.path())
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    if let Some(origin) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*, Authorization"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let status = response.status().as_u16();
    line.inspect(|line| line.status(status));
    server.metrics.request(status);
    response
}
