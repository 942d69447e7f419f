//! Clients over encrypted connections, with the certificates in `tests/certificates`.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::{Launch, PATIENCE};

/// An encrypted stream.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Returns the path of a file among the certificates.
#[must_use]
pub fn certificate_file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../certificates")).join(name)
}

/// Configures a client that trusts the authority `ca` and shows this certificate, if any.
///
/// # Panics
/// If there is no such certificate.
#[must_use]
pub fn tls_config(identity: Option<&str>) -> Arc<ClientConfig> {
    let certificate =
        |name: &str| CertificateDer::from_pem_file(certificate_file(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.crt")).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    Arc::new(match identity {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let key = certificate_file(&format!("{name}.key"));
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            let chain = vec![certificate(&format!("{name}.crt"))];
            builder.with_client_auth_cert(chain, key).expect("they fit")
        }
    })
}

/// Connects. The handshake takes place with the first bytes.
///
/// # Panics
/// If there is no listener.
#[must_use]
pub fn tls_stream(address: SocketAddr, config: &Arc<ClientConfig>) -> TlsStream {
    let stream = TcpStream::connect(address).unwrap_or_else(|e| panic!("{address}: {e}"));
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket option");
    let name = ServerName::try_from("localhost").expect("a name");
    let client = ClientConnection::new(Arc::clone(config), name).expect("a client");
    StreamOwned::new(client, stream)
}

impl Launch {
    /// Adds the server's certificate, and the authority of the clients' certificates.
    #[must_use]
    pub fn with_certificates(self) -> Self {
        let file = |name| certificate_file(name).display().to_string();
        self.with("tls-cert-file", &file("server.crt"))
            .with("tls-key-file", &file("server.key"))
            .with("tls-ca-cert-file", &file("ca.crt"))
    }
}
