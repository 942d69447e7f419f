//! Authentication: the user that a request's `Authorization` header names.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tierce_commands::acl::{self, Attempt, Rights};
use tierce_commands::clients::Client;
use tierce_commands::kernel::Kernel;
use tierce_engine::clock;
use tokio::time::{sleep, timeout};

use crate::failure::Failure;

/// Last valid Authorization header on a connection. Requests with it need not wait behind other clients' wrong
/// passwords; it is still checked each time.
#[derive(Clone, Default)]
pub(crate) struct Proven(Arc<Mutex<Option<HeaderValue>>>);

impl Proven {
    fn has(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION);
        given.is_some() && self.0.lock().as_ref() == given
    }

    fn note(&self, headers: &HeaderMap, is_right: bool) {
        let given = headers.get(header::AUTHORIZATION).filter(|_| is_right);
        *self.0.lock() = given.cloned();
    }
}

/// Name and password.
pub(crate) struct Credentials {
    user: Vec<u8>,
    password: Vec<u8>,
}

/// Returns the rights of a request's user, or of the default user if there is no password.
pub(crate) async fn identify(
    kernel: &Kernel,
    client: &Client,
    proven: &Proven,
    headers: &HeaderMap,
) -> Result<Rights, Failure> {
    let checked = if proven.has(headers) {
        check_by(Kernel::authenticate_again, kernel, client, of_header(kernel, headers)?)
    } else {
        check(kernel, client, present(kernel, client, headers).await?)
    };
    proven.note(headers, checked.is_ok());
    checked
}

fn of_header(kernel: &Kernel, headers: &HeaderMap) -> Result<Option<Credentials>, Failure> {
    Credentials::of(headers, |name| kernel.acl.users.get(name).is_some())
}

/// Maximum time that a request waits for its password check. A client that disconnects meanwhile is not noticed;
/// connections are few.
const TURN_SECONDS_MAX: u64 = 10;

/// Returns the credentials of a request, once they may be checked: after many wrong passwords they wait, as with AUTH.
pub(crate) async fn present(
    kernel: &Kernel,
    client: &Client,
    headers: &HeaderMap,
) -> Result<Option<Credentials>, Failure> {
    let credentials = of_header(kernel, headers)?;
    let Some(Credentials { user, .. }) = &credentials else { return Ok(None) };
    let limit = kernel.config.settings().http_timeout().min(Duration::from_secs(TURN_SECONDS_MAX));
    match timeout(limit, turn(kernel, client, user)).await {
        Ok(()) => Ok(credentials),
        Err(_) => {
            let text = "TRYAGAIN too many wrong passwords from this address or for this user";
            Err(Failure::closing(StatusCode::TOO_MANY_REQUESTS, text))
        }
    }
}

/// Waits until a password of `user` may be checked.
async fn turn(kernel: &Kernel, client: &Client, user: &[u8]) {
    let mut attempt = Attempt::default();
    let mut now_ms = clock::unix_ms();
    while let Some(until_ms) = attempt.waits_until(&kernel.acl.guesses, client.host(), user, now_ms)
    {
        sleep(Duration::from_millis((until_ms - now_ms).max(1) as u64)).await;
        now_ms = clock::unix_ms();
    }
}

/// Returns the rights of credentials, or of the default user if there is no password.
pub(crate) fn check(
    kernel: &Kernel,
    client: &Client,
    credentials: Option<Credentials>,
) -> Result<Rights, Failure> {
    check_by(Kernel::authenticate, kernel, client, credentials)
}

fn check_by(
    authenticate: impl FnOnce(&Kernel, &Client, &[u8], &[u8], i64) -> Option<Rights>,
    kernel: &Kernel,
    client: &Client,
    credentials: Option<Credentials>,
) -> Result<Rights, Failure> {
    let Some(Credentials { user, password }) = credentials else {
        if kernel.is_open() {
            return Ok(Rights::of_default_user(&kernel.acl.users));
        }
        let text = "NOAUTH Authentication required.";
        return Err(Failure::closing(StatusCode::UNAUTHORIZED, text));
    };
    authenticate(kernel, client, &user, &password, clock::unix_ms()).ok_or_else(|| {
        kernel.log_wrong_password(client, "http", b"http", &user, acl::Origin::TopLevel);
        let text = "WRONGPASS invalid username-password pair or user is disabled.";
        Failure::closing(StatusCode::UNAUTHORIZED, text)
    })
}

/// Notes that the token of `/metrics` was right, so that the next request from there does not wait for wrong guesses
/// from elsewhere.
pub(crate) fn note_token(kernel: &Kernel, client: &Client, credentials: Option<Credentials>) {
    if let Some(Credentials { user, .. }) = credentials {
        kernel.acl.guesses.note_known(client.host(), &user, clock::unix_ms());
    }
}

/// Returns the token of the header Authorization, if its scheme is `Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = parts(headers)?;
    scheme.eq_ignore_ascii_case(b"bearer").then_some(token)
}

/// Returns the arguments of AUTH that correspond to the credentials of a request, if it has any.
pub(crate) fn of_auth(
    kernel: &Kernel,
    headers: &HeaderMap,
) -> Result<Option<[Vec<u8>; 2]>, Failure> {
    let credentials = of_header(kernel, headers)?;
    Ok(credentials.map(|Credentials { user, password }| [user, password]))
}

fn parts(headers: &HeaderMap) -> Option<(&[u8], &[u8])> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let blank = value.iter().position(|&byte| byte == b' ')?;
    Some((&value[..blank], value[blank..].trim_ascii()))
}

impl Credentials {
    /// Parses a header: `Basic`, or `Bearer` with the password of the default user, or with `user:password` if there is
    /// such a user.
    fn of(headers: &HeaderMap, is_user: impl Fn(&[u8]) -> bool) -> Result<Option<Self>, Failure> {
        if !headers.contains_key(header::AUTHORIZATION) {
            return Ok(None);
        }
        let malformed = || {
            let text = "ERR the header Authorization is neither Bearer nor Basic";
            Failure::closing(StatusCode::UNAUTHORIZED, text)
        };
        if headers.get_all(header::AUTHORIZATION).iter().count() > 1 {
            return Err(malformed());
        }
        let (scheme, token) = parts(headers).ok_or_else(malformed)?;
        if scheme.eq_ignore_ascii_case(b"basic") {
            let pair = STANDARD.decode(token).map_err(|_| malformed())?;
            let (user, password) = split(&pair).ok_or_else(malformed)?;
            return Ok(Some(Self { user: user.into(), password: password.into() }));
        }
        if !scheme.eq_ignore_ascii_case(b"bearer") {
            return Err(malformed());
        }
        let (user, password) =
            split(token).filter(|(user, _)| is_user(user)).unwrap_or((acl::DEFAULT, token));
        Ok(Some(Self { user: user.into(), password: password.into() }))
    }
}

fn split(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = pair.iter().position(|&byte| byte == b':')?;
    Some((&pair[..colon], &pair[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use tierce_commands::clients::Origin;
    use tierce_config::{Config, LogLevel, Settings};
    use tierce_engine::Engine;
    use tierce_engine::durability::Durability;
    use tierce_engine::log::Log;
    use tierce_keyspace::{Keyspace, Options};

    use super::*;

    fn of(value: &str) -> Option<(String, String)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().expect("a value"));
        let credentials = Credentials::of(&headers, |name| name == b"ann").ok()??;
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Some((text(credentials.user), text(credentials.password)))
    }

    fn pair(user: &str, password: &str) -> Option<(String, String)> {
        Some((user.to_owned(), password.to_owned()))
    }

    #[test]
    fn a_token_is_the_password_of_the_default_user_unless_it_begins_with_another() {
        assert_eq!(of("Bearer secret"), pair("default", "secret"));
        assert_eq!(of("bearer ann:se:cret"), pair("ann", "se:cret"));
        assert_eq!(of("Bearer bob:secret"), pair("default", "bob:secret"));
        assert_eq!(of("Basic YW5uOnNlY3JldA=="), pair("ann", "secret"));
        assert_eq!(of("Basic Ym9iOg=="), pair("bob", ""));
    }

    #[test]
    fn a_header_is_proven_until_it_is_wrong_or_another_comes() {
        let headers = |value: &str| {
            HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().expect("a value"))])
        };
        let (proven, right) = (Proven::default(), headers("Bearer right"));
        assert!(!proven.has(&right) && !proven.has(&HeaderMap::new()));
        proven.note(&right, true);
        assert!(proven.has(&right));
        assert!(!proven.has(&headers("Bearer other")) && !proven.has(&HeaderMap::new()));
        proven.note(&right, false);
        assert!(!proven.has(&right));
        proven.note(&HeaderMap::new(), true);
        assert!(!proven.has(&HeaderMap::new()));
    }

    #[test]
    fn who_is_proven_does_not_speed_up_guessing() {
        let log = Log::open(None, LogLevel::Nothing).unwrap();
        let keyspace = Arc::new(Keyspace::new(Options::default()).unwrap());
        let config = Arc::new(Config::new(Settings::default()));
        let engine = Arc::new(Engine::new(config, keyspace, Durability::without_log(), log));
        let kernel = Kernel::new(engine, tierce_commands::table(), 0);
        let (client, proven) = (Client::new(Origin::default(), 0), Proven::default());
        let headers =
            HeaderMap::from_iter([(header::AUTHORIZATION, "Bearer any".parse().unwrap())]);
        // Without a clock: nothing waits here.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let identify = || runtime.block_on(identify(&kernel, &client, &proven, &headers));
        assert!(identify().is_ok() && proven.has(&headers));
        let now_ms = clock::unix_ms() + 3_600_000;
        let guesses = &kernel.acl.guesses;
        for _ in 0..20 {
            guesses.note_wrong(client.host(), acl::DEFAULT, now_ms);
        }
        assert!((0..3).all(|_| identify().is_ok()));
        let guess = Attempt::default().waits_until(guesses, client.host(), acl::DEFAULT, now_ms);
        assert_eq!(guess, Some(now_ms + 1_000));
    }

    #[test]
    fn other_schemes_are_none() {
        for value in ["Digest a", "Basic !", "Basic YQ==", "Bearer", ""] {
            assert_eq!(of(value), None, "{value}");
        }
    }
}
