//! Routes a request to its response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Buf;
use tierce_commands::acl::Rights;
use tierce_commands::caller::Caller;
use tierce_commands::clients::Client;
use tierce_commands::kernel::Kernel;
use tierce_json::{Strings, request};
use tierce_wire::resp::OwnedArgs;
use tokio::time::{timeout, timeout_at};

use crate::credentials::{self, Proven};
use crate::events::{self, Subject};
use crate::execute::{self, Allowed, Calls};
use crate::failure::{Failure, json};
use crate::shared::{KernelHandle, Shared};
use crate::waiting::busy;
use crate::{guard, health, metrics};

/// Service of all connections.
pub(crate) type Routes = Router;

/// Contents of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One command.
    One,
    /// Several commands, which run one after the other.
    Pipeline,
    /// Several commands in one transaction.
    Transaction,
    /// Last argument of the command in the path.
    Argument,
}

/// Creates the service of all connections.
pub(crate) fn routes(shared: Arc<Shared>) -> Routes {
    let guard = middleware::from_fn_with_state(Arc::clone(&shared), guard::check);
    Router::new()
        .route("/", post(|state, request| commands(state, request, Form::One)))
        .route("/pipeline", post(|state, request| commands(state, request, Form::Pipeline)))
        .route("/multi-exec", post(|state, request| commands(state, request, Form::Transaction)))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|state, request| commands(state, request, Form::Argument))
        .layer(guard)
        .with_state(shared)
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    health::readiness(shared.kernel().map(|kernel| &***kernel)).into_response()
}

async fn metrics(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    measure(&shared, &head).await.unwrap_or_else(IntoResponse::into_response)
}

async fn measure(shared: &Shared, request: &Parts) -> Result<Response, Failure> {
    let Some(kernel) = shared.kernel() else { return metrics::response(None) };
    let client = request.extensions.get::<Arc<Client>>().ok_or_else(no_connection)?;
    // A wrong token may still be a password, so guesses of both share one rate limit. A right one waits as well:
    // otherwise many requests at once would find it, before the first wrong one is counted.
    let credentials = credentials::present(kernel, client, &request.headers).await?;
    if metrics::has_token(&request.headers, shared.config.settings().http_metrics_token()) {
        credentials::note_token(kernel, client, credentials);
    } else {
        refuse_in_protected_mode(kernel, client)?;
        let rights = credentials::check(kernel, client, credentials)?;
        metrics::check_rights(kernel, &rights)?;
    }
    metrics::response(Some(kernel))
}

fn no_connection() -> Failure {
    Failure::closing(StatusCode::SERVICE_UNAVAILABLE, "ERR there is no connection")
}

fn refuse_in_protected_mode(kernel: &Kernel, client: &Client) -> Result<(), Failure> {
    if !kernel.is_protected_from(client) {
        return Ok(());
    }
    let text = "DENIED protected mode is on and no password is set: only clients on this machine are accepted";
    Err(Failure::closing(StatusCode::FORBIDDEN, text))
}

async fn commands(State(shared): State<Arc<Shared>>, request: Request, form: Form) -> Response {
    if form == Form::Argument
        && let Some(subject) = Subject::of(&request)
    {
        let subscribed = subscribe(&shared, request, subject).await;
        return subscribed.unwrap_or_else(IntoResponse::into_response);
    }
    match answer(&shared, request, form).await {
        Ok(body) => json(StatusCode::OK, body),
        Err(failure) => failure.into_response(),
    }
}

/// Answers with a stream of events, until the client or the server ends it.
async fn subscribe(
    shared: &Arc<Shared>,
    request: Request,
    subject: Subject,
) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let (kernel, client, _) = admit(shared, &head).await?;
    let settings = shared.config.settings();
    let (max, limit) = (settings.http_max_body(), settings.http_timeout());
    drop(settings);
    // Clients send a body, which has no meaning.
    read(&head.headers, body, max, limit).await?;
    let auth = credentials::of_auth(kernel, &head.headers)?;
    let call = events::Call::of(subject, head.uri.path(), head.uri.query().unwrap_or_default())?;
    match timeout(limit, events::open(shared, kernel, &client, auth, call)).await {
        Ok(opened) => opened,
        Err(_) => Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ERR the server is busy")),
    }
}

/// Returns the sender of a request, with its rights, once the server is ready.
async fn admit<'s>(
    shared: &'s Shared,
    head: &Parts,
) -> Result<(&'s KernelHandle, Arc<Client>, Rights), Failure> {
    let unready = |text: &str| Failure::closing(StatusCode::SERVICE_UNAVAILABLE, text);
    let kernel = shared.kernel().ok_or_else(|| unready("LOADING the server loads its data"))?;
    if shared.is_ending() {
        return Err(unready("ERR the server is shutting down"));
    }
    // Routes with a method of their own come here with that one alone.
    if ![Method::GET, Method::POST, Method::PUT].contains(&head.method) {
        return Err(Failure::closing(StatusCode::METHOD_NOT_ALLOWED, "ERR use GET or POST"));
    }
    let client = head.extensions.get::<Arc<Client>>().cloned();
    let client = client.ok_or_else(no_connection)?;
    refuse_in_protected_mode(kernel, &client)?;
    // Before the body: unauthenticated clients cannot fill the memory.
    let proven = head.extensions.get::<Proven>().ok_or_else(no_connection)?;
    let rights = credentials::identify(kernel, &client, proven, &head.headers).await?;
    Ok((kernel, client, rights))
}

async fn answer(shared: &Arc<Shared>, request: Request, form: Form) -> Result<Vec<u8>, Failure> {
    let (head, body) = request.into_parts();
    let (kernel, client, rights) = admit(shared, &head).await?;
    let strings = strings(&head.headers)?;
    let settings = shared.config.settings();
    let limit = settings.http_timeout();
    let body = read(&head.headers, body, settings.http_max_body(), limit).await?;
    drop(settings);
    let (bytes, uri) = (body.remaining(), head.uri);
    let until = Instant::now() + limit;
    let parsed = shared.waiting.convert(bytes, move || parse(form, &uri, body), None);
    let commands = timeout_at(until.into(), parsed).await.map_err(|_| busy())???;
    client.set_user(rights.user());
    let caller = Caller::with_rights(client, rights, true);
    let is_plain_get =
        head.method == Method::GET && !head.headers.contains_key(header::AUTHORIZATION);
    let allowed = if is_plain_get { Allowed::Reading } else { Allowed::Everything };
    let together = form == Form::Transaction;
    let form = tierce_json::Form { is_array: form == Form::Pipeline || together, strings };
    let calls = Calls { commands, bytes, allowed, together, form, until };
    execute::run(shared, kernel, caller, calls).await
}

/// Returns the string encoding that a client asks for.
fn strings(headers: &HeaderMap) -> Result<Strings, Failure> {
    match headers.get("upstash-encoding").map(|value| value.as_bytes()) {
        None => Ok(Strings::Text),
        Some(value) if value.eq_ignore_ascii_case(b"base64") => Ok(Strings::Base64),
        Some(_) => Err(Failure::malformed("ERR Upstash-Encoding can be base64 only")),
    }
}

/// Parses the commands of a request.
fn parse(form: Form, uri: &Uri, mut body: impl Buf) -> Result<Vec<OwnedArgs>, Failure> {
    let body = body.copy_to_bytes(body.remaining());
    match form {
        Form::One => Ok(vec![request::command(&body)?]),
        Form::Pipeline | Form::Transaction => Ok(request::commands(&body)?),
        Form::Argument => {
            let query = uri.query().unwrap_or_default();
            Ok(vec![request::of_path(uri.path(), query, &body)?])
        }
    }
}

/// Returns the whole body, in the parts in which it came.
async fn read(
    headers: &HeaderMap,
    body: Body,
    max: usize,
    limit: Duration,
) -> Result<impl Buf + Send + use<>, Failure> {
    let too_long = || {
        let text = format!("ERR the body is longer than {max} bytes: see http-max-body");
        Failure::closing(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if announced.and_then(|len| len.parse().ok()).is_some_and(|len: u64| len > max as u64) {
        return Err(too_long());
    }
    match timeout(limit, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok(body.aggregate()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(error)) => {
            let text = format!("ERR the body cannot be read: {error}");
            Err(Failure::closing(StatusCode::BAD_REQUEST, text))
        }
        Err(_) => {
            let text = "ERR the body takes too long: see http-timeout";
            Err(Failure::closing(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}
