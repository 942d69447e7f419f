//! Several commands that are sent as one request.

use super::encode_checked;
use crate::error::Error;

/// Commands that are sent without others in between.
///
/// ```
/// use tierce_client::{Config, resp::{Client, Pipeline, Value}};
/// # let server = tierce_client::testing::FakeServer::resp();
/// # let address = server.address();
///
/// let client = Client::connect(address, Config::default())?;
/// let pipeline = Pipeline::new().command(&["SET", "n", "12"])?.command(&["GET", "n"])?;
/// let replies = client.pipeline(&pipeline).wait()?;
/// assert_eq!(replies, [Value::Simple(b"OK".to_vec()), Value::Bulk(b"12".to_vec())]);
/// # Ok::<(), tierce_client::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    bytes: Vec<u8>,
    len: usize,
}

impl Pipeline {
    /// Makes an empty pipeline.
    pub fn new() -> Pipeline {
        Pipeline::default()
    }

    /// Adds a command.
    ///
    /// # Errors
    /// If it cannot be sent: [`Error::Unsupported`].
    pub fn command<A: AsRef<[u8]>>(mut self, args: &[A]) -> Result<Pipeline, Error> {
        encode_checked(args, &mut self.bytes)?;
        self.len += 1;
        Ok(self)
    }

    /// Returns the number of commands.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no commands.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn append_to(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.is_empty() {
            return Err(Error::Unsupported("a pipeline without commands".to_owned()));
        }
        out.extend_from_slice(&self.bytes);
        Ok(())
    }
}
