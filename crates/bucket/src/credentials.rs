//! Checks that credentials exist before the first request needs them.
//!
//! If the client library finds no others, it asks the metadata service of the instance. Outside a cloud that ends in a
//! timeout, or in an error with an address that is in no configuration.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use object_store::CredentialProvider;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{Error, Result};

/// The metadata service is asked for this long. Its answers take milliseconds.
const ASKED_FOR: Duration = Duration::from_secs(5);

/// Pause between two attempts: an instance that has just booted may not have its role yet.
const PAUSE: Duration = Duration::from_millis(500);

/// Address of the metadata service in all three clouds. An error there means only that this is no such instance.
const INSTANCE: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];

/// Source of a store's credentials.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    provider: Arc<dyn Provider>,
    /// Settings to recommend if there are no credentials.
    advice: &'static str,
}

/// A credential provider, of any type of credentials.
trait Provider: Debug + Send + Sync {
    fn ask(&self) -> BoxFuture<'_, object_store::Result<()>>;
}

impl<C: Debug + Send + Sync + 'static> Provider for Arc<dyn CredentialProvider<Credential = C>> {
    fn ask(&self) -> BoxFuture<'_, object_store::Result<()>> {
        async { self.get_credential().await.map(drop) }.boxed()
    }
}

impl Credentials {
    pub(crate) fn new<C: Debug + Send + Sync + 'static>(
        provider: &Arc<dyn CredentialProvider<Credential = C>>,
        advice: &'static str,
    ) -> Self {
        Self { provider: Arc::new(Arc::clone(provider)), advice }
    }

    /// Asks until there are credentials, for at most [`ASKED_FOR`].
    pub(crate) async fn check(&self, url: &str) -> Result<()> {
        let (until, mut cause) = (Instant::now() + ASKED_FOR, String::new());
        loop {
            match timeout_at(until, self.provider.ask()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => cause = error.to_string(),
                Err(_) => {}
            }
            if Instant::now() + PAUSE >= until {
                break;
            }
            sleep(PAUSE).await;
        }
        let is_of_instance = INSTANCE.iter().any(|address| cause.contains(address));
        let cause = if is_of_instance { String::new() } else { cause };
        Err(Error::Credentials { url: url.into(), advice: self.advice, cause })
    }
}

#[cfg(test)]
mod tests {
    use object_store::StaticCredentialProvider;

    use super::*;

    /// A provider without credentials.
    #[derive(Debug)]
    struct Without(&'static str);

    #[async_trait::async_trait]
    impl CredentialProvider for Without {
        type Credential = ();

        async fn get_credential(&self) -> object_store::Result<Arc<()>> {
            Err(object_store::Error::Generic { store: "S3", source: self.0.into() })
        }
    }

    fn said(provider: Arc<dyn CredentialProvider<Credential = ()>>) -> Option<String> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true);
        let check = async {
            let checked = Credentials::new(&provider, "set A").check("s3://name/prefix").await;
            checked.err().map(|error| error.to_string())
        };
        runtime.build().expect("a runtime").block_on(check)
    }

    #[test]
    fn what_to_set_is_said_and_why_if_that_helps() {
        assert_eq!(said(Arc::new(StaticCredentialProvider::new(()))), None);
        let off_a_cloud = Without("PUT http://169.254.169.254/latest/api/token: 403");
        let expected = "no credentials for s3://name/prefix: set A";
        assert_eq!(said(Arc::new(off_a_cloud)).as_deref(), Some(expected));
        let other = said(Arc::new(Without("the token has expired"))).unwrap_or_default();
        assert!(other.starts_with(expected) && other.contains("the token has expired"), "{other}");
    }
}
