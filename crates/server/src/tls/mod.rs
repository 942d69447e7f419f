//! Encrypted connections: builds, from directives and files, the configuration with which the event loops accept
//! connections, and the one for the link to a primary (`outgoing`).
//!
//! All files are read at the start, again when they have changed (`start::tls_reload`), and by every CONFIG SET of a directive that
//! names one. New connections use them only if all are valid; open connections keep their configuration. Tickets are valid for the configuration that
//! issued them, so no session outlives the authorities that verified it.

mod ciphers;
mod failures;
mod files;
mod outgoing;
mod subject;
mod validity;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, GetRandomFailed, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, ServerConfig, WebPkiClientVerifier};
use rustls::ticketer::TicketRotator;
use rustls::{RootCertStore, SupportedProtocolVersion};
use tierce_net::TlsSettings;

use crate::config::{DirectiveId, Settings};

pub use self::failures::TlsFailures;
pub(crate) use self::files::FILES_MAX;
pub(crate) use self::outgoing::REPLICATION;
pub use self::outgoing::outgoing;
use self::outgoing::{CLIENT_CERT_FILE, CLIENT_KEY_FILE, CLIENT_KEY_FILE_PASS};
pub use self::subject::common_name;
pub use self::validity::ends;
pub(crate) use self::validity::shown;

pub(crate) const CERT_FILE: DirectiveId = DirectiveId::of("tls-cert-file");
const KEY_FILE: DirectiveId = DirectiveId::of("tls-key-file");
const KEY_FILE_PASS: DirectiveId = DirectiveId::of("tls-key-file-pass");
const CA_CERT_FILE: DirectiveId = DirectiveId::of("tls-ca-cert-file");
pub(crate) const CA_CERT_DIR: DirectiveId = DirectiveId::of("tls-ca-cert-dir");
const AUTH_CLIENTS: DirectiveId = DirectiveId::of("tls-auth-clients");
const PROTOCOLS: DirectiveId = DirectiveId::of("tls-protocols");
const CIPHERS: DirectiveId = DirectiveId::of("tls-ciphers");
const CIPHERSUITES: DirectiveId = DirectiveId::of("tls-ciphersuites");
const PREFER_SERVER_CIPHERS: DirectiveId = DirectiveId::of("tls-prefer-server-ciphers");
const SESSION_CACHING: DirectiveId = DirectiveId::of("tls-session-caching");
const SESSION_CACHE_TIMEOUT: DirectiveId = DirectiveId::of("tls-session-cache-timeout");
const HANDSHAKE_TIMEOUT: DirectiveId = DirectiveId::of("tls-handshake-timeout");
const HANDSHAKES_MAX: DirectiveId = DirectiveId::of("tls-handshakes-max");

/// Remaining days of a certificate from which it has to be replaced: authorities need a few days to issue one, and
/// people a few to remember.
pub const CERTIFICATE_DAYS_MIN: i64 = 14;

/// Directives that name files or directories.
pub(crate) const FILES: [DirectiveId; 6] =
    [CERT_FILE, KEY_FILE, CLIENT_CERT_FILE, CLIENT_KEY_FILE, CA_CERT_FILE, CA_CERT_DIR];

/// All directives about encryption.
pub const DIRECTIVES: [DirectiveId; 18] = [
    CERT_FILE,
    KEY_FILE,
    KEY_FILE_PASS,
    CA_CERT_FILE,
    CA_CERT_DIR,
    AUTH_CLIENTS,
    PROTOCOLS,
    CIPHERS,
    CIPHERSUITES,
    PREFER_SERVER_CIPHERS,
    SESSION_CACHING,
    SESSION_CACHE_TIMEOUT,
    HANDSHAKE_TIMEOUT,
    HANDSHAKES_MAX,
    REPLICATION,
    CLIENT_CERT_FILE,
    CLIENT_KEY_FILE,
    CLIENT_KEY_FILE_PASS,
];

/// Reason why connections cannot be encrypted as configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A required directive is empty.
    #[error("{directive} is needed for {why}")]
    Missing {
        /// Name of the directive.
        directive: &'static str,
        /// Purpose of the directive.
        why: &'static str,
    },
    /// A file is not what a directive requires.
    #[error("{directive} {}: {reason}", path.display())]
    File {
        /// Name of the directive.
        directive: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Description of the error.
        reason: String,
    },
    /// A word of a list is unknown.
    #[error("{directive}: {reason}")]
    Word {
        /// Name of the directive.
        directive: &'static str,
        /// Description of the error.
        reason: String,
    },
    /// The parts are valid, but do not fit together.
    #[error("{0}")]
    Refused(String),
}

/// Returns the settings with which encrypted connections are accepted; `None` if no port is encrypted.
///
/// # Errors
/// If a file or a directive is wrong.
pub fn load(settings: &Settings) -> Result<Option<TlsSettings>, TlsError> {
    if !is_encrypted(settings) {
        return Ok(None);
    }
    Ok(Some(TlsSettings {
        config: Arc::new(server_config(settings)?),
        handshake_ms_max: settings.count(HANDSHAKE_TIMEOUT) * 1000,
        handshakes_max: settings.count(HANDSHAKES_MAX) as usize,
    }))
}

/// Returns true if any port is encrypted.
pub(crate) fn is_encrypted(settings: &Settings) -> bool {
    let ports = [settings.tls_port(), settings.memcached_tls_port(), settings.pedrokv_tls_port()];
    ports != [0; 3] || settings.has_https()
}

/// Checks the settings of encrypted connections: the files, and their combination.
///
/// # Errors
/// If a file or a directive is wrong.
pub fn check(settings: &Settings) -> Result<(), TlsError> {
    load(settings).map(drop)
}

/// Returns ciphers and versions, for both directions.
fn parts(
    settings: &Settings,
) -> Result<(Arc<CryptoProvider>, Vec<&'static SupportedProtocolVersion>), TlsError> {
    let provider = CryptoProvider {
        cipher_suites: ciphers::suites(settings.text(CIPHERS), settings.text(CIPHERSUITES))?,
        ..ring::default_provider()
    };
    Ok((Arc::new(provider), ciphers::versions(settings.text(PROTOCOLS))?))
}

fn server_config(settings: &Settings) -> Result<ServerConfig, TlsError> {
    let (provider, versions) = parts(settings)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| TlsError::Refused(format!("tls-protocols and ciphers: {error}")))?;
    let builder = match client_verifier(settings, &provider)? {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let chain = files::certificates(CERT_FILE, &needed(settings, CERT_FILE)?)?;
    let key_path = needed(settings, KEY_FILE)?;
    let key = files::private_key(KEY_FILE, &key_path, settings.text(KEY_FILE_PASS), KEY_FILE_PASS)?;
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        TlsError::Refused(format!("tls-cert-file and tls-key-file do not fit together: {error}"))
    })?;
    config.ignore_client_order = settings.is_on(PREFER_SERVER_CIPHERS);
    set_tickets(&mut config, settings)?;
    Ok(config)
}

fn needed(settings: &Settings, id: DirectiveId) -> Result<PathBuf, TlsError> {
    let why = "encrypted connections";
    settings.path(id).ok_or(TlsError::Missing { directive: id.name(), why })
}

/// Returns the verifier of client certificates, if clients may have one.
fn client_verifier(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let auth = settings.word(AUTH_CLIENTS);
    // The named files have to be valid, even if no client is asked for a certificate.
    let roots = authorities(settings)?;
    if auth == "no" {
        return Ok(None);
    }
    if roots.is_empty() {
        let why = "tls-auth-clients yes and optional, unless there is a tls-ca-cert-dir";
        return Err(TlsError::Missing { directive: CA_CERT_FILE.name(), why });
    }
    let roots = Arc::new(roots);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    let builder = if auth == "optional" { builder.allow_unauthenticated() } else { builder };
    let verifier = builder.build().map_err(|error| TlsError::Refused(error.to_string()))?;
    Ok(Some(verifier))
}

/// Returns the certificates of the trusted authorities.
fn authorities(settings: &Settings) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let mut add = |directive: DirectiveId, path: PathBuf| {
        for certificate in files::certificates(directive, &path)? {
            roots.add(certificate).map_err(|error| TlsError::File {
                directive: directive.name(),
                path: path.clone(),
                reason: error.to_string(),
            })?;
        }
        Ok(())
    };
    if let Some(path) = settings.path(CA_CERT_FILE) {
        add(CA_CERT_FILE, path)?;
    }
    if let Some(directory) = settings.path(CA_CERT_DIR) {
        for path in files::with_certificates(CA_CERT_DIR, &directory)? {
            add(CA_CERT_DIR, path)?;
        }
    }
    Ok(roots)
}

fn set_tickets(config: &mut ServerConfig, settings: &Settings) -> Result<(), TlsError> {
    // Without tickets, sessions would be stored here, without a bound on their number.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // One is as good as two for clients with one connection at a time, and costs half.
    config.send_tls13_tickets = 0;
    let seconds = settings.count(SESSION_CACHE_TIMEOUT) as u32;
    if settings.is_on(SESSION_CACHING) && seconds > 0 {
        let rotator = TicketRotator::new(seconds, Keys::generate);
        let rotator = rotator.map_err(|error| TlsError::Refused(error.to_string()))?;
        config.ticketer = Arc::new(rotator);
        config.send_tls13_tickets = 1;
    }
    Ok(())
}

/// Keys that encrypt tickets until [`TicketRotator`] makes new ones.
#[derive(Debug)]
struct Keys(Arc<dyn ProducesTickets>);

impl Keys {
    fn generate() -> Result<Box<dyn ProducesTickets>, GetRandomFailed> {
        let keys = ring::Ticketer::new().map_err(|_| GetRandomFailed)?;
        Ok(Box::new(Self(keys)))
    }
}

impl ProducesTickets for Keys {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher)
    }
}
