//! The certificates that this server shows to others, for INFO.

use std::path::PathBuf;

use parking_lot::RwLock;

/// Certificate, or chain of certificates, in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// File that contains it.
    pub path: PathBuf,
    /// Serial number of the first certificate, in hexadecimal digits.
    pub serial: String,
    /// Earliest end of a certificate in the file, in Unix seconds.
    pub end_s: i64,
}

/// Certificates in use: those for clients, and those for the link to a primary.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Shown {
    /// For clients.
    pub to_clients: Option<Certificate>,
    /// For the primary.
    pub to_primary: Option<Certificate>,
}

impl Shown {
    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = &Certificate> {
        self.to_clients.iter().chain(&self.to_primary)
    }
}

/// Certificates in use at this moment.
#[derive(Default, Debug)]
pub struct Certificates(RwLock<Shown>);

impl Certificates {
    /// Notes the certificates from now on.
    pub fn set(&self, shown: Shown) {
        *self.0.write() = shown;
    }

    /// Returns the certificates in use.
    pub fn get(&self) -> Shown {
        self.0.read().clone()
    }
}
