//! Checks host and origin of a request before anything else.
//!
//! A web page that a user of this machine visits can make the browser send requests here. Three rules refuse them:
//!
//! - **Host**: an address, `localhost` or a name in `http-hosts`. So a page cannot bypass this by resolving its own
//!   name to this machine (DNS rebinding).
//! - **Origin**, which browsers send with every scripted request except a plain GET: must be in `http-origins`.
//! - **Sec-Fetch-Site**, which browsers send with requests for images, forms and the like: not from another site.
//!
//! Old browsers send neither with the GET of an image. So a GET without credentials may only read (`routes`).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tierce_config::Settings;

use crate::failure::Failure;
use crate::shared::Shared;

/// Methods and headers allowed for scripts of allowed pages, and the seconds for which browsers may cache this.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, upstash-encoding, upstash-sync-token, \
        upstash-telemetry-platform, upstash-telemetry-runtime, upstash-telemetry-sdk",
);
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Passes a request on, or refuses it.
pub(crate) async fn check(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let settings = shared.config.settings();
    if let Err(failure) = verify(&settings, &request) {
        return failure.into_response();
    }
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = match request.method() == Method::OPTIONS {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

fn verify(settings: &Settings, request: &Request) -> Result<(), Failure> {
    let headers = request.headers();
    let host = only(headers, header::HOST.as_str())?.unwrap_or_default();
    if !settings.allows_http_host(without_port(host)) {
        let text = "ERR this host name is not allowed: see http-hosts";
        return Err(Failure::closing(StatusCode::MISDIRECTED_REQUEST, text));
    }
    match only(headers, header::ORIGIN.as_str())? {
        Some(origin) if settings.allows_http_origin(origin.as_bytes()) => return Ok(()),
        Some(_) => {
            let text = "ERR web pages of this origin are not allowed: see http-origins";
            return Err(Failure::closing(StatusCode::FORBIDDEN, text));
        }
        None => {}
    }
    match only(headers, "sec-fetch-site")? {
        None | Some("none" | "same-origin") => Ok(()),
        Some(_) => {
            let text = "ERR requests of other web sites are not allowed: see http-origins";
            Err(Failure::closing(StatusCode::FORBIDDEN, text))
        }
    }
}

/// Returns a header that must not be repeated.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Failure> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str().ok());
    match (value, values.next()) {
        (None, _) => Ok(None),
        (Some(Some(value)), None) => Ok(Some(value)),
        _ => Err(Failure::closing(StatusCode::BAD_REQUEST, format!("ERR bad header {name}"))),
    }
}

/// Returns a host without its port. An IPv6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    let end = host.rfind(']').unwrap_or(0);
    host[end..].find(':').map_or(host, |at| &host[..end + at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_taken_off_hosts() {
        for (host, name) in [
            ("localhost:80", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            (":80", ""),
            ("", ""),
            ("a:b:c", "a"),
        ] {
            assert_eq!(without_port(host), name, "{host}");
        }
    }
}
