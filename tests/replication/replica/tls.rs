//! An encrypted link to the primary (`tls-replication`).

use std::io::Read;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tierce_harness::{Launch, certificate_file};

use super::{info, wait_for_log};
use crate::launch;
use crate::replication::fake_primary::{Encrypted, Follower, ID, Primary, file, stream};

/// Returns the TLS configuration of a primary with this certificate. It requires certificates of
/// the authority `ca`.
fn server_config(name: &str) -> Arc<ServerConfig> {
    let certificate =
        |name: &str| CertificateDer::from_pem_file(certificate_file(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.crt")).expect("an authority");
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let key = PrivateKeyDer::from_pem_file(certificate_file(&format!("{name}.key")));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("authorities"))
        .with_single_cert(vec![certificate(&format!("{name}.crt"))], key.expect("a key"));
    Arc::new(config.expect("they fit"))
}

/// Makes a replica that shows this certificate.
fn encrypted(replica: Launch, name: &str) -> Launch {
    let file = |end: &str| certificate_file(&format!("{name}.{end}")).display().to_string();
    replica
        .with_certificates()
        .with("tls-client-cert-file", &file("crt"))
        .with("tls-client-key-file", &file("key"))
        .with("tls-replication", "yes")
}

#[test]
fn the_link_may_be_encrypted() {
    // The certificate is for another address, which does not matter.
    let primary = Primary::at("127.0.0.2");
    let server = encrypted(primary.replica(), "client").start();
    let config = server_config("server");
    let mut follower = primary.accept().encrypted(&config);
    assert_eq!(follower.psync(), "PSYNC ? -1");
    // More than one record holds.
    let keys: Vec<String> = (0..5000).map(|n| format!("k{n}")).collect();
    let strings: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    follower.send(format!("+FULLRESYNC {ID} 10\r\n"));
    follower.send_file(&file(&strings));
    let commands = stream(&["SET k w", "INCR n"]).repeat(2000);
    follower.send(&commands);
    follower.wait_for(10 + commands.len() as u64);
    let mut c = server.connect();
    c.check("MGET k n k4999", r#"["w", "2000", "v"]"#);
    assert_eq!(info(&mut c, "master_link_status"), "up");
    // An end without close_notify, in the middle of a record or not, counts as an end.
    drop(follower.stream.sock);
    let mut follower = primary.accept().encrypted(&config);
    assert_eq!(follower.psync(), format!("PSYNC {ID} {}", 11 + commands.len()));
}

#[test]
fn a_link_that_cannot_be_encrypted_says_why() {
    let primary = Primary::new();
    let server = encrypted(primary.replica(), "client").start();
    let mut c = server.connect();
    let shake = |follower: &mut Follower<Encrypted>| {
        // Either side may find out first.
        let mut byte = [0];
        let _ = follower.stream.read(&mut byte);
    };
    // A primary of an authority that is not trusted.
    shake(&mut primary.accept().encrypted(&server_config("stranger")));
    wait_for_log(&server, "not made: invalid peer certificate: UnknownIssuer");
    // A primary without encryption.
    let mut plain = primary.accept();
    plain.send("-ERR unknown command\r\n");
    wait_for_log(&server, "not made: what came is not TLS");
    drop(plain);
    // A primary that closes at once.
    let mut closed = primary.accept();
    closed.stream.shutdown(std::net::Shutdown::Write).expect("an open connection");
    closed.wait_for_end();
    wait_for_log(&server, "not made: the primary closed the connection");
    // A primary that does not trust this replica.
    let file = |end: &str| certificate_file(&format!("stranger.{end}")).display().to_string();
    let set = "CONFIG SET tls-client-cert-file {crt} tls-client-key-file {key}";
    c.check(&set.replace("{crt}", &file("crt")).replace("{key}", &file("key")), "+OK");
    shake(&mut primary.accept().encrypted(&server_config("server")));
    wait_for_log(&server, "the connection failed: received fatal alert");
    c.check("CONFIG SET tls-client-cert-file '' tls-client-key-file ''", "+OK");
    let mut follower = primary.accept().encrypted(&server_config("server"));
    assert_eq!(follower.psync(), "PSYNC ? -1");
}

#[test]
fn what_a_link_is_encrypted_with_is_checked_before() {
    let server = launch().start();
    let mut c = server.connect();
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'tls-replication') - Unable to update TLS \
                   configuration. tls-ca-cert-file is needed for tls-replication, unless there is a tls-ca-cert-dir";
    c.check("CONFIG SET tls-replication yes", refused);
    let errors = encrypted(launch(), "client").with("tls-client-key-file", "").run().errors;
    let missing = "tls-client-key-file is needed for the certificate that the primary gets to see";
    assert!(errors.contains(missing), "{errors}");
    let errors = encrypted(launch(), "client").with("tls-client-cert-file", "/none").run().errors;
    assert!(errors.contains("tls-client-cert-file /none: "), "{errors}");
}
