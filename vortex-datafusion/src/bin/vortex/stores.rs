//! Object stores, by URL.
//!
//! DataFusion asks its registry for the store of a URL. [`Stores`] keeps stores and builds missing ones on
//! demand, from the environment and from `OPTIONS ('aws.region' '…')`. The DataFusion shell builds S3 stores
//! itself, since finding credentials of profiles and single sign-on requires the AWS SDK; [`Stores::prepare`]
//! does the same. No store lists hidden files ([`VisibleFiles`]).

use std::fmt;
use std::mem;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, config_err, exec_datafusion_err};
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use datafusion_cli::object_storage::{
    AwsOptions, get_cos_object_store_builder, get_oss_object_store_builder, get_s3_object_store_builder,
};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::{ClientConfigKey, ObjectStore, parse_url_opts};
use parking_lot::Mutex;
use url::{Position, Url};

use crate::subfolders::Subfolders;
use crate::visible::VisibleFiles;

/// Environment variables that configure stores.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// The object stores of this process, which count requests for `\object_store_profiling`.
pub(crate) struct Stores {
    known: Arc<InstrumentedObjectStoreRegistry>,
    /// The store of local files, whose requests are not counted.
    local: Mutex<Arc<dyn ObjectStore>>,
    /// The subfolders of local folders that count.
    subfolders: Arc<Subfolders>,
}

impl Stores {
    /// Creates stores on top of a registry that counts requests to those that are not local.
    pub(crate) fn new(known: Arc<InstrumentedObjectStoreRegistry>) -> Arc<Self> {
        let subfolders = Arc::default();
        let local = VisibleFiles::local(Arc::new(LocalFileSystem::new()), &subfolders);
        Arc::new(Self { known, local: Mutex::new(local), subfolders })
    }

    /// Which subfolders of local folders have files that are listed with them: all at first.
    pub(crate) fn subfolders(&self) -> &Subfolders {
        &self.subfolders
    }

    /// Creates stores whose requests nobody asks for.
    pub(crate) fn uncounted() -> Arc<Self> {
        Self::new(Arc::new(InstrumentedObjectStoreRegistry::new()))
    }

    /// Makes sure that there is a store for a URL; if options are given, a new one is created.
    pub(crate) async fn prepare(&self, url: &Url, options: &[(String, String)]) -> Result<()> {
        let options: Vec<_> = options.iter().filter_map(|(key, value)| store_option(key, value)).collect();
        if options.is_empty() && self.get_store(url).is_ok() {
            return Ok(());
        }
        let store: Arc<dyn ObjectStore> = match url.scheme() {
            "s3" => {
                let aws = s3_options(aws_options(&options)?)?;
                Arc::new(get_s3_object_store_builder(url, &aws, false).await?.build()?)
            }
            "oss" => Arc::new(get_oss_object_store_builder(url, &aws_options(&options)?)?.build()?),
            "cos" => Arc::new(get_cos_object_store_builder(url, &aws_options(&options)?)?.build()?),
            _ => build(url, &options)?,
        };
        self.register_store(url, store);
        Ok(())
    }
}

/// An option for the store, under the store's name for it: `aws.region` is `region`.
fn store_option(key: &str, value: &str) -> Option<(String, String)> {
    let (namespace, name) = key.split_once('.')?;
    let name = match namespace {
        "aws" | "azure" | "google" | "http" => name.to_owned(),
        "gcp" => name.replace("application_credentials_path", "application_credentials"),
        _ => return None,
    };
    Some((name, value.to_owned()))
}

fn aws_options(options: &[(String, String)]) -> Result<AwsOptions> {
    use datafusion::config::ExtensionOptions as _;
    let mut aws = AwsOptions::default();
    options.iter().try_for_each(|(name, value)| aws.set(&format!("aws.{name}"), value))?;
    Ok(aws)
}

/// Refuses an endpoint that is no address of a server: the library that signs requests would panic.
fn check_endpoint(endpoint: &str) -> Result<()> {
    match Url::parse(endpoint) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        _ => config_err!(
            "the endpoint of S3 (AWS_ENDPOINT, AWS_ENDPOINT_URL or aws.endpoint) is `{endpoint}`, not a URL such as http://localhost:9000"
        ),
    }
}

/// Options that the shell library does not derive from others: HTTP is allowed if the endpoint says so, and requests
/// that are not signed need no credentials.
fn s3_options(mut aws: AwsOptions) -> Result<AwsOptions> {
    let environment = AmazonS3Builder::from_env();
    let set = |key| environment.get_config_value(&key);
    let endpoint = aws.endpoint.clone().or_else(|| set(AmazonS3ConfigKey::Endpoint));
    endpoint.as_deref().map_or(Ok(()), check_endpoint)?;
    let is_http = endpoint.is_some_and(|url| url.starts_with("http://"));
    if is_http && aws.allow_http.is_none() && std::env::var_os("AWS_ALLOW_HTTP").is_none() {
        aws.allow_http = Some(true);
    }
    let skips = set(AmazonS3ConfigKey::SkipSignature).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if aws.skip_signature.unwrap_or(skips) {
        aws.skip_signature = Some(true);
        // Otherwise, the library would look for credentials, and fail without.
        aws.access_key_id.get_or_insert_default();
        aws.secret_access_key.get_or_insert_default();
    }
    Ok(aws)
}

/// A store configured by the environment and options; later values take precedence.
fn build(url: &Url, options: &[(String, String)]) -> Result<Arc<dyn ObjectStore>> {
    // Others may be of bytes that are no Unicode.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| PREFIXES.iter().any(|it| name.starts_with(it)));
    let mut all: Vec<(String, String)> =
        environment.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    all.extend(options.iter().cloned());
    let is_http = |(key, value): &(String, String)| key.ends_with("endpoint") && value.starts_with("http://");
    if url.scheme() == "http" || all.iter().any(is_http) {
        // Options that say otherwise are later.
        all.insert(0, ("allow_http".into(), "true".into()));
    }
    if matches!(url.scheme(), "http" | "https") {
        // A plain server, also if its name is that of a store: what is behind it need not be a bucket.
        return http_store(url, &all);
    }
    let (store, _) = parse_url_opts(url, all)
        .map_err(|error| exec_datafusion_err!("no object store for `{url}`: {error}"))?;
    Ok(Arc::from(store))
}

fn http_store(url: &Url, options: &[(String, String)]) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = HttpBuilder::new().with_url(&url[..Position::BeforePath]);
    for (key, value) in options {
        if let Ok(key) = key.parse::<ClientConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    Ok(Arc::new(builder.build()?))
}

impl ObjectStoreRegistry for Stores {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        match url.scheme() {
            "file" => {
                let store = VisibleFiles::local(store, &self.subfolders);
                Some(mem::replace(&mut *self.local.lock(), store))
            }
            "http" | "https" => self.known.register_store(url, VisibleFiles::of_server(store, url)),
            _ => self.known.register_store(url, VisibleFiles::of(store)),
        }
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.known.deregister_store(url)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        if url.scheme() == "file" {
            return Ok(Arc::clone(&self.local.lock()));
        }
        if let Ok(store) = self.known.get_store(url) {
            return Ok(store);
        }
        if matches!(url.scheme(), "s3" | "oss" | "cos" | "stdin") {
            // Building it requires waiting for credentials, which `prepare` does.
            return Err(DataFusionError::Execution(format!("the store of `{url}` is not open yet")));
        }
        self.register_store(url, build(url, &[])?);
        self.known.get_store(url)
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;
    use vortex_core::io::object_name;

    use super::*;

    #[test]
    fn stores_are_built_on_demand_and_kept() {
        let url = Url::parse("https://example.com/a/b.vortex").unwrap();
        let stores = Stores::uncounted();
        let first = stores.get_store(&url).unwrap();
        assert!(Arc::ptr_eq(&first, &stores.get_store(&url).unwrap()));
        assert!(stores.get_store(&Url::parse("gopher://example.com/").unwrap()).is_err());
    }

    #[test]
    fn objects_of_web_servers_are_called_by_their_urls_without_passwords() {
        let stores = Stores::uncounted();
        let url = Url::parse("http://me:secret@example.com:8080/a/b.vortex").unwrap();
        let store = stores.get_store(&url).unwrap();
        assert_eq!(object_name(&store, &Path::from("a/b.vortex")), "http://example.com:8080/a/b.vortex");
    }

    #[test]
    fn web_addresses_of_buckets_are_read_as_web_servers() {
        let stores = Stores::uncounted();
        for host in ["b.s3.eu-north-1.amazonaws.com", "s3.amazonaws.com", "a.blob.core.windows.net"] {
            let url = Url::parse(&format!("https://{host}/b/c.vortex")).unwrap();
            let store = stores.get_store(&url).unwrap().to_string();
            assert!(store.contains("HttpStore"), "{host}: {store}");
        }
    }

    #[tokio::test]
    async fn options_configure_a_store() {
        let stores = Stores::uncounted();
        let azure = Url::parse("az://container/a.vortex").unwrap();
        let options = [("azure.account_name".to_owned(), "someone".to_owned())];
        stores.prepare(&azure, &options).await.unwrap();
        assert!(stores.get_store(&azure).unwrap().to_string().contains("someone"));
        let s3 = Url::parse("s3://bucket/a.vortex").unwrap();
        let options = [("access_key_id", "k"), ("secret_access_key", "s"), ("region", "eu-north-1")]
            .map(|(name, value)| (format!("aws.{name}"), value.to_owned()));
        stores.prepare(&s3, &options).await.unwrap();
        assert!(stores.get_store(&s3).unwrap().to_string().contains("bucket"));
    }

    #[tokio::test]
    async fn objects_in_buckets_are_called_by_their_urls() {
        let stores = Stores::uncounted();
        for (url, options) in [
            ("s3://lake/a/b.vortex", &["aws.access_key_id", "aws.secret_access_key", "aws.region"][..]),
            ("gs://lake/a/b.vortex", &[]),
            ("az://lake/a/b.vortex", &["azure.account_name"]),
        ] {
            let url = Url::parse(url).unwrap();
            let options: Vec<_> = options.iter().map(|key| (key.to_string(), "some".to_owned())).collect();
            stores.prepare(&url, &options).await.unwrap();
            let store = stores.get_store(&url).unwrap();
            assert_eq!(object_name(&store, &Path::from("a/b.vortex")), url.as_str());
        }
    }

    #[test]
    fn options_of_the_format_are_not_for_the_store() {
        assert_eq!(store_option("format.prune", "true"), None);
        assert_eq!(store_option("vortex.prune", "true"), None);
        assert_eq!(store_option("prune", "true"), None);
        assert_eq!(store_option("aws.region", "x"), Some(("region".into(), "x".into())));
    }
}
