//! Errors of refused requests.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tierce_json::Error;

/// Status and text for `{"error": text}`.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    text: String,
    /// True if the rest of the request is not read.
    closes: bool,
}

impl Failure {
    /// Creates the error of a request that has been read.
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), closes: false }
    }

    /// Creates the error of one that has not: its connection ends.
    pub(crate) fn closing(status: StatusCode, text: impl Into<String>) -> Self {
        Self { closes: true, ..Self::new(status, text) }
    }

    /// Creates the error of a malformed request.
    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Creates the error from a command's error reply.
    pub(crate) fn of_command(text: &str) -> Self {
        let status = match text.split(' ').next() {
            Some("NOAUTH" | "WRONGPASS") => StatusCode::UNAUTHORIZED,
            Some("NOPERM") => StatusCode::FORBIDDEN,
            Some(
                "LOADING" | "BUSY" | "MISCONF" | "OOM" | "TRYAGAIN" | "NOREPLICAS" | "UNCONFIRMED",
            ) => StatusCode::SERVICE_UNAVAILABLE,
            // Error of a subscriber, which is a client of the server.
            _ if text.starts_with("ERR max number of clients") => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Malformed(text) => Self::malformed(text),
            Error::OfCommand(text) => Self::of_command(&text),
            Error::NotShown => {
                let text = "ERR the reply cannot be shown as JSON";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self { status, text, closes } = self;
        let body = tierce_json::error(&text);
        let mut response = json(status, body);
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            // Not Basic: browsers would ask their user, and then send the password with requests of any page.
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Returns a response with JSON.
pub(crate) fn json(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = (status, body).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
