//! The address of a server.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Prefix of an address that is a path.
const UNIX_PREFIX: &str = "unix:";

/// Address of a server.
///
/// ```
/// use tierce_client::Address;
///
/// let tcp: Address = "127.0.0.1:1082".into();
/// let unix: Address = "unix:/run/tierce.sock".into();
/// assert_eq!(tcp.to_string(), "127.0.0.1:1082");
/// assert_eq!(unix, Address::Unix("/run/tierce.sock".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `host:port`. The thread that connects resolves a name before each connection, and uses its
    /// first address.
    Tcp(String),
    /// The path of a Unix socket. Written as `unix:/path`, or as a path that begins with a slash.
    Unix(PathBuf),
}

impl From<&str> for Address {
    fn from(text: &str) -> Address {
        match text.strip_prefix(UNIX_PREFIX) {
            Some(path) => Address::Unix(path.into()),
            None if text.starts_with('/') => Address::Unix(text.into()),
            None => Address::Tcp(text.to_owned()),
        }
    }
}

impl From<String> for Address {
    fn from(text: String) -> Address {
        Address::from(text.as_str())
    }
}

impl From<&Address> for Address {
    fn from(address: &Address) -> Address {
        address.clone()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Tcp(address.to_string())
    }
}

impl FromStr for Address {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Address, Infallible> {
        Ok(text.into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Unix(path) => write!(f, "{UNIX_PREFIX}{}", path.display()),
        }
    }
}
