//! Certificates and keys in PEM files.

use std::fs;
use std::path::{Path, PathBuf};

use pkcs8::{EncryptedPrivateKeyInfo, SecretDocument};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::TlsError;
use crate::config::DirectiveId;

/// Maximum size of a file; a bundle of all public authorities has a quarter of it.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum number of files of a directory of authorities.
pub(crate) const FILES_MAX: usize = 4096;

/// Reads the certificates of a file, at least one.
pub(super) fn certificates(
    directive: DirectiveId,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(directive, path)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(directive, path, in_words(&error)))?;
    if certificates.is_empty() {
        return Err(wrong(directive, path, "there is no certificate in PEM".into()));
    }
    Ok(certificates)
}

/// Returns the files of a directory that contain certificates, in the order of their names.
pub(super) fn with_certificates(
    directive: DirectiveId,
    directory: &Path,
) -> Result<Vec<PathBuf>, TlsError> {
    let unreadable = |error: std::io::Error| wrong(directive, directory, error.to_string());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() && has_certificate(&path) {
            paths.push(path);
        }
        if paths.len() > FILES_MAX {
            let reason = format!("there are more than {FILES_MAX} files with certificates");
            return Err(wrong(directive, directory, reason));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns true if a readable file has a certificate. Directories of authorities have other files, too.
fn has_certificate(path: &Path) -> bool {
    let is_small = fs::metadata(path).is_ok_and(|metadata| metadata.len() <= FILE_BYTES_MAX);
    is_small
        && fs::read(path).is_ok_and(|pem| {
            CertificateDer::pem_slice_iter(&pem).next().is_some_and(|first| first.is_ok())
        })
}

/// Reads the private key of a file, decrypting it if needed. `password_of` is the directive with the password.
pub(super) fn private_key(
    directive: DirectiveId,
    path: &Path,
    password: &[u8],
    password_of: DirectiveId,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read(directive, path)?;
    if let Some(encrypted) = EncryptedKey::find(&pem) {
        return encrypted
            .decrypt(password, password_of.name())
            .map_err(|reason| wrong(directive, path, reason));
    }
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| wrong(directive, path, in_words(&error)))
}

/// Private key in PKCS #8, encrypted with a password.
struct EncryptedKey(String);

impl EncryptedKey {
    const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
    const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";

    fn find(pem: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(pem);
        let begin = text.find(Self::BEGIN)?;
        let end = begin + text[begin..].find(Self::END)? + Self::END.len();
        Some(Self(text[begin..end].to_owned()))
    }

    fn decrypt(
        &self,
        password: &[u8],
        password_of: &str,
    ) -> Result<PrivateKeyDer<'static>, String> {
        if password.is_empty() {
            return Err(format!("the key is encrypted, and {password_of} is empty"));
        }
        let (_, der) = SecretDocument::from_pem(&self.0).map_err(|error| error.to_string())?;
        let info = EncryptedPrivateKeyInfo::try_from(der.as_bytes())
            .map_err(|error| format!("the encryption is unknown: {error}"))?;
        let key = info.decrypt(password).map_err(|_| {
            format!("the key cannot be decrypted; it has another password than {password_of}")
        })?;
        Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
    }
}

/// Reads a regular file of at most `FILE_BYTES_MAX`.
fn read(directive: DirectiveId, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error: std::io::Error| wrong(directive, path, error.to_string());
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(wrong(directive, path, "this is no file".into()));
    }
    if metadata.len() > FILE_BYTES_MAX {
        let reason = format!("larger than {FILE_BYTES_MAX} bytes");
        return Err(wrong(directive, path, reason));
    }
    fs::read(path).map_err(unreadable)
}

fn in_words(error: &PemError) -> String {
    match error {
        PemError::NoItemsFound => "there is nothing of the kind in PEM".into(),
        other => other.to_string(),
    }
}

fn wrong(directive: DirectiveId, path: &Path, reason: String) -> TlsError {
    TlsError::File { directive: directive.name(), path: path.to_owned(), reason }
}
