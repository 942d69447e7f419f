//! Location of a log: `s3://name/prefix`, `gs://name/prefix`, `az://container/prefix` or `file:///directory`.
//!
//! Credentials, region and endpoint come from the environment, as for the store's own tools. The client library does
//! not retry requests: this crate must see every unknown outcome.

use std::fmt::Debug;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Once};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use url::{Host, Url};

use crate::aws_files;
use crate::credentials::Credentials;
use crate::directory::Directory;
use crate::error::{Error, Result};

/// A parsed location: a store, and the prefix of a log group in it.
#[derive(Debug, Clone)]
pub struct Location {
    url: String,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    /// Set for `file://` only.
    pub(crate) directory: Option<Arc<Directory>>,
    /// `None` if requests are not signed.
    credentials: Option<Credentials>,
}

/// The client for a bucket, and the credentials that sign its requests.
type Client = (Arc<dyn ObjectStore>, Option<Credentials>);

impl Location {
    /// Parses a location and creates its client. No request is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::Location`], with what to change: an unknown scheme, no name, an endpoint that is plain HTTP on another
    /// machine, a file where a directory should be.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong = |reason: String| Error::Location { url: url.into(), reason };
        let parsed = Url::parse(url).map_err(|error| {
            wrong(format!("{error}; expected s3://name/prefix, gs://, az:// or file:///directory"))
        })?;
        if parsed.query().is_some() || parsed.fragment().is_some() || !parsed.username().is_empty()
        {
            return Err(wrong("options and credentials come from the environment".into()));
        }
        if parsed.scheme() == "file" {
            let (store, prefix, directory) = directory(&parsed).map_err(wrong)?;
            let directory = Some(Arc::new(directory));
            return Ok(Self { url: url.into(), store, prefix, directory, credentials: None });
        }
        let name = parsed.host_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| wrong("the name of the bucket is missing".into()))?;
        let prefix = Path::from_url_path(parsed.path())
            .map_err(|error| wrong(format!("the prefix: {error}")))?;
        install_tls();
        let client = match parsed.scheme() {
            "s3" => s3(name),
            "gs" => gs(name),
            "az" => az(name),
            other => Err(format!("{other}:// is not known; use s3://, gs://, az:// or file://")),
        };
        let (store, credentials) = client.map_err(wrong)?;
        Ok(Self { url: url.into(), store, prefix, directory: None, credentials })
    }

    /// Looks for credentials before a request needs them. It takes some seconds if there are none.
    ///
    /// # Errors
    ///
    /// [`Error::Credentials`], with what to set.
    pub async fn check_credentials(&self) -> Result<()> {
        match &self.credentials {
            Some(credentials) => credentials.check(&self.url).await,
            None => Ok(()),
        }
    }

    /// Returns the location as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Installs a TLS provider: reqwest is built without one, and uses that of the process.
fn install_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the process already has one, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

fn s3(name: &str) -> Result<Client, String> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(name);
    for (setting, value) in aws_files::read(|name| std::env::var(name).ok())? {
        let key = setting.parse().map_err(|error| format!("{setting}: {error}"))?;
        builder = builder.with_config(key, value);
    }
    let endpoint = builder
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    let options = client(endpoint.as_deref(), "AWS_ENDPOINT_URL")?;
    let is_signed = !is_true(builder.get_config_value(&AmazonS3ConfigKey::SkipSignature));
    let store = builder.with_client_options(options).with_retry(no_retries()).build();
    let store = store.map_err(|error| error.to_string())?;
    let credentials = Credentials::new(
        store.credentials(),
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run with an instance role",
    );
    Ok((Arc::new(store), Some(credentials).filter(|_| is_signed)))
}

fn gs(name: &str) -> Result<Client, String> {
    let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(name);
    let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
    let options = client(endpoint.as_deref(), "GOOGLE_BASE_URL")?;
    let is_signed = !is_true(builder.get_config_value(&GoogleConfigKey::SkipSignature));
    let store = builder.with_client_options(options).with_retry(no_retries()).build();
    let store = store.map_err(|error| error.to_string())?;
    let credentials = Credentials::new(
        store.credentials(),
        "set GOOGLE_SERVICE_ACCOUNT to the file of its key, or run with an instance's service account",
    );
    Ok((Arc::new(store), Some(credentials).filter(|_| is_signed)))
}

fn az(name: &str) -> Result<Client, String> {
    let builder = MicrosoftAzureBuilder::from_env().with_container_name(name);
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    let options = client(endpoint.as_deref(), "AZURE_ENDPOINT")?;
    let is_signed = !is_true(builder.get_config_value(&AzureConfigKey::SkipSignature));
    let store = builder.with_client_options(options).with_retry(no_retries()).build();
    let store = store.map_err(|error| error.to_string())?;
    let credentials = Credentials::new(
        store.credentials(),
        "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or run with a managed identity",
    );
    Ok((Arc::new(store), Some(credentials).filter(|_| is_signed)))
}

fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| value == "true")
}

/// Opens a directory, whose files and directories are synced. Not for NFS, where creating a link may report a failure
/// and still succeed. The directory is created with the first object, so that a wrong name in a tool leaves nothing
/// behind.
fn directory(url: &Url) -> Result<(Arc<dyn ObjectStore>, Path, Directory), String> {
    let path: PathBuf = url
        .to_file_path()
        .map_err(|()| "expected file:///directory with a full path".to_owned())?;
    if path.exists() && !path.is_dir() {
        return Err(format!("{} is not a directory", path.display()));
    }
    let prefix = Path::from_absolute_path(&path).map_err(|error| error.to_string())?;
    Ok((Arc::new(LocalFileSystem::new().with_fsync(true)), prefix, Directory::new(path)))
}

/// Returns the options of the HTTP client: TLS, except for endpoints on this machine.
fn client(endpoint: Option<&str>, variable: &str) -> Result<ClientOptions, String> {
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    if let Some(endpoint) = endpoint.filter(|_| is_plain)
        && !is_loopback(endpoint)
    {
        return Err(format!(
            "{variable} is {endpoint}: without TLS, anyone on the way can read and change the data. \
             Plain HTTP is allowed for 127.0.0.1, ::1 and localhost only"
        ));
    }
    Ok(ClientOptions::new()
        .with_allow_http(is_plain)
        .with_connect_timeout(Duration::from_secs(5))
        .with_timeout(Duration::from_secs(30)))
}

fn is_loopback(endpoint: &str) -> bool {
    match Url::parse(endpoint).ok().and_then(|url| url.host().map(|host| host.to_owned())) {
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

#[cfg(test)]
mod tests {
    use tierce_harness::TempDir;

    use super::*;
    use crate::{Group, Store};

    #[test]
    fn plain_http_is_for_this_machine_alone() {
        for (endpoint, allowed) in [
            (None, true),
            (Some("https://s3.example.com"), true),
            (Some("http://127.0.0.1:9000"), true),
            (Some("http://[::1]:9000"), true),
            (Some("http://localhost:9000"), true),
            (Some("http://localhost.example.com"), false),
            (Some("http://127.0.0.1@example.com"), false),
            (Some("http://10.0.0.1:9000"), false),
        ] {
            assert_eq!(client(endpoint, "X").is_ok(), allowed, "{endpoint:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_location_is_said() {
        for (url, part) in [
            ("name/prefix", "expected s3://"),
            ("ftp://name/prefix", "ftp:// is not known"),
            ("s3:///prefix", "name of the bucket is missing"),
            ("s3://key@name/prefix", "come from the environment"),
            ("s3://name/prefix?region=x", "come from the environment"),
            ("file://relative/path", "full path"),
        ] {
            let error = Location::parse(url).expect_err(url).to_string();
            assert!(error.contains(part) && error.contains(url), "{error}");
        }
    }

    #[test]
    fn a_directory_is_made_with_its_first_object() {
        let dir = TempDir::new();
        let root = dir.path().join("a b%20c/ü");
        let url = Url::from_file_path(&root).expect("a path").to_string();
        for url in [url.clone(), url.replacen("file:", "FILE:", 1)] {
            let location = Location::parse(&url).expect("a location");
            let store = Store::new(&location);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let end = Group::open(&store).await.expect("an empty log").end().clone();
                assert!(end.number == 0 && !root.exists(), "{end:?}");
                for number in [7, 3] {
                    let name = format!("floor/{number:020}");
                    store.ensure(&name, Default::default()).await.expect("an object");
                }
                let listed = store.list("floor", Some("00000000000000000005")).await;
                assert_eq!(listed.expect("a list").len(), 1);
            });
            assert!(root.join("floor/00000000000000000007").exists());
            std::fs::remove_dir_all(&root).expect("removed");
        }
        std::fs::write(dir.path().join("file"), "").expect("a file");
        let url = Url::from_file_path(dir.path().join("file")).expect("a path");
        let error = Location::parse(url.as_str()).expect_err("a file").to_string();
        assert!(error.contains("is not a directory"), "{error}");
    }

    #[test]
    fn the_prefix_is_what_follows_the_name() {
        let location = Location::parse("s3://name/some/prefix/").expect("a location");
        assert_eq!(location.prefix.as_ref(), "some/prefix");
    }
}
