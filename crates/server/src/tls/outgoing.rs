//! The TLS configuration of the link to a primary.
//!
//! As in Redis, a certificate is trusted because of its authority, with any names in it: replicas connect to addresses
//! from Sentinel, and such certificates often have no names.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::{
    CA_CERT_FILE, CERT_FILE, KEY_FILE, KEY_FILE_PASS, TlsError, authorities, files, parts,
};
use crate::config::{DirectiveId, Settings};

pub(crate) const REPLICATION: DirectiveId = DirectiveId::of("tls-replication");
pub(super) const CLIENT_CERT_FILE: DirectiveId = DirectiveId::of("tls-client-cert-file");
pub(super) const CLIENT_KEY_FILE: DirectiveId = DirectiveId::of("tls-client-key-file");
pub(super) const CLIENT_KEY_FILE_PASS: DirectiveId = DirectiveId::of("tls-client-key-file-pass");

/// Returns the TLS configuration of the connection to the primary; `None` if that is unencrypted.
///
/// # Errors
/// If a file or a directive is wrong.
pub fn outgoing(settings: &Settings) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    if !settings.is_on(REPLICATION) {
        return Ok(None);
    }
    let (provider, versions) = parts(settings)?;
    let roots = Arc::new(authorities(settings)?);
    if roots.is_empty() {
        let why = "tls-replication, unless there is a tls-ca-cert-dir";
        return Err(TlsError::Missing { directive: CA_CERT_FILE.name(), why });
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let verifier = verifier.build().map_err(|error| TlsError::Refused(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| TlsError::Refused(format!("tls-protocols and ciphers: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OfAnyName(verifier)));
    let Some(identity) = identity(settings) else {
        return Ok(Some(Arc::new(builder.with_no_client_auth())));
    };
    let [certificate, key, password] = identity;
    let path = |directive: DirectiveId| {
        let why = "the certificate that the primary gets to see";
        settings.path(directive).ok_or(TlsError::Missing { directive: directive.name(), why })
    };
    let chain = files::certificates(certificate, &path(certificate)?)?;
    let private = files::private_key(key, &path(key)?, settings.text(password), password)?;
    let config = builder.with_client_auth_cert(chain, private).map_err(|error| {
        let (certificate, key) = (certificate.name(), key.name());
        TlsError::Refused(format!("{certificate} and {key} do not fit together: {error}"))
    })?;
    Ok(Some(Arc::new(config)))
}

/// Returns the directives of the certificate shown to the primary: those for connections to other servers, or else
/// those for clients.
fn identity(settings: &Settings) -> Option<[DirectiveId; 3]> {
    [
        [CLIENT_CERT_FILE, CLIENT_KEY_FILE, CLIENT_KEY_FILE_PASS],
        [CERT_FILE, KEY_FILE, KEY_FILE_PASS],
    ]
    .into_iter()
    .find(|[certificate, key, _]| {
        settings.is_not_empty(*certificate) || settings.is_not_empty(*key)
    })
}

/// Verifier that trusts the certificates of some authorities, for any name.
#[derive(Debug)]
struct OfAnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for OfAnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is checked last: everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
