//! Locations of files: local paths and URLs of object stores.
//!
//! DataFusion asks its registry for the store of a URL. [`Stores`] keeps stores and builds missing ones on
//! demand, from the environment and from `OPTIONS ('aws.region' '…')`. The DataFusion shell builds S3 stores
//! itself, since finding credentials of profiles and single sign-on requires the AWS SDK; [`Stores::prepare`]
//! does the same. No store lists hidden files ([`VisibleFiles`]).

use std::fmt;
use std::mem;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, config_err, exec_datafusion_err};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use datafusion_cli::object_storage::{
    AwsOptions, get_cos_object_store_builder, get_oss_object_store_builder, get_s3_object_store_builder,
};
use futures::TryStreamExt as _;
use glob::{MatchOptions, Pattern, glob_with};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{ClientConfigKey, ObjectMeta, ObjectStore, ObjectStoreExt as _, parse_url_opts};
use parking_lot::Mutex;
use url::{Position, Url};
use vortex_core::io::{LocalFile, ObjectFile, ReadAt};
use vortex_datafusion::{is_hidden, listing_url};

use crate::failure::{Failure, Outcome};
use crate::formats::Format;
use crate::visible::VisibleFiles;

/// Environment variables that configure stores.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// The object stores of this process, which count requests for `\object_store_profiling`.
pub(crate) struct Stores {
    known: Arc<InstrumentedObjectStoreRegistry>,
    /// The store of local files, whose requests are not counted.
    local: Mutex<Arc<dyn ObjectStore>>,
}

impl Stores {
    /// Creates stores on top of a registry that counts requests to those that are not local.
    pub(crate) fn new(known: Arc<InstrumentedObjectStoreRegistry>) -> Arc<Self> {
        let local = VisibleFiles::of(Arc::new(LocalFileSystem::new()));
        Arc::new(Self { known, local: Mutex::new(local) })
    }

    /// Makes sure that there is a store for a URL; if options are given, a new one is created.
    pub(crate) async fn prepare(&self, url: &Url, options: &[(String, String)]) -> Result<()> {
        let options: Vec<_> = options.iter().filter_map(|(key, value)| store_option(key, value)).collect();
        if options.is_empty() && self.get_store(url).is_ok() {
            return Ok(());
        }
        let store: Arc<dyn ObjectStore> = match url.scheme() {
            "s3" => {
                check_endpoint(&options)?;
                let aws = s3_options(aws_options(&options)?);
                Arc::new(get_s3_object_store_builder(url, &aws, false).await?.build()?)
            }
            "oss" => Arc::new(get_oss_object_store_builder(url, &aws_options(&options)?)?.build()?),
            "cos" => Arc::new(get_cos_object_store_builder(url, &aws_options(&options)?)?.build()?),
            _ => build(url, &options)?,
        };
        self.register_store(url, store);
        Ok(())
    }

    /// The files at places: for a folder or a glob, all Vortex files there; any other place is taken as a file.
    /// Folders that cannot be read are failures, which do not prevent others from being searched.
    pub(crate) async fn files(&self, places: &[PathBuf]) -> Outcome<(Vec<PathBuf>, Vec<Failure>)> {
        let (mut files, mut failures) = (Vec::new(), Vec::new());
        for path in places {
            let Some(place) = path.to_str() else {
                // A name that is not Unicode is no pattern.
                find_below(path, &path.display().to_string(), &mut files, &mut failures)?;
                continue;
            };
            match as_url(place) {
                Some(_) => match listing_url(place).map_err(|error| Failure::at(place, error))? {
                    url if url.is_collection() => {
                        let found = self.list(&url).await.map_err(|failure| Failure::at(place, failure))?;
                        some_of(place, found, &mut files)?;
                    }
                    _ => files.push(path.clone()),
                },
                // A file may have such a name.
                None if place.contains(['*', '?', '[']) && !path.exists() => {
                    some_of(place, matching(place)?, &mut files)?;
                }
                None => find_below(path, place, &mut files, &mut failures)?,
            }
        }
        Ok((files, failures))
    }

    async fn list(&self, place: &ListingTableUrl) -> Outcome<Vec<PathBuf>> {
        let folder = place.get_url();
        self.prepare(folder, &[]).await?;
        let listed: Vec<_> = self.get_store(folder)?.list(Some(place.prefix())).try_collect().await?;
        let place = |object: ObjectMeta| {
            let mut url = folder.clone();
            // A name in a store may contain what means something else in a URL.
            url.path_segments_mut().ok()?.pop_if_empty().extend(place.strip_prefix(&object.location)?);
            is_match(place, &object).then(|| PathBuf::from(String::from(url)))
        };
        Ok(listed.into_iter().filter_map(place).collect())
    }

    /// Opens one file: a local path, or a URL.
    pub(crate) async fn open(&self, path: &Path) -> Outcome<Arc<dyn ReadAt>> {
        let place = path.display().to_string();
        let place = place.as_str();
        let Some(url) = path.to_str().and_then(as_url) else { return open_local(path, place) };
        if url.scheme() == "file" {
            let path =
                url.to_file_path().map_err(|()| Failure::error(format!("{place}: not a local path")))?;
            return open_local(&path, place);
        }
        let open = async {
            self.prepare(&url, &[]).await?;
            let path = StorePath::from_url_path(url.path()).map_err(object_store::Error::from)?;
            let store = self.get_store(&url)?;
            let meta = match store.head(&path).await {
                Err(object_store::Error::NotFound { .. }) => {
                    return Err(Failure::error(format!("no file at {place}")));
                }
                meta => meta?,
            };
            Ok::<_, Failure>(Arc::new(ObjectFile::new(store, meta)) as Arc<dyn ReadAt>)
        };
        open.await.map_err(|failure| Failure::at(place, failure))
    }
}

/// Whether an object is at a place: below the folder, and if there is a pattern, with a path that matches it
/// name by name.
pub(crate) fn is_match(place: &ListingTableUrl, object: &ObjectMeta) -> bool {
    let Some(below) = place.strip_prefix(&object.location) else { return false };
    let Some(glob) = place.get_glob() else { return true };
    glob.matches_with(&below.collect::<Vec<_>>().join("/"), by_name())
}

/// `*` matches within one folder.
fn by_name() -> MatchOptions {
    MatchOptions { require_literal_separator: true, ..MatchOptions::new() }
}

/// Whether a path that matches a pattern has a hidden name where the pattern has none that begins like one.
fn is_hidden_match(path: &Path, pattern: &str) -> bool {
    let first = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    let (folder, names) = pattern.split_at(pattern[..first].rfind('/').map_or(0, |at| at + 1));
    if names.split('/').any(is_hidden) {
        return false;
    }
    let mut below = path.strip_prefix(folder).unwrap_or(path).components();
    below.any(|name| matches!(name, Component::Normal(name) if is_hidden(&name.to_string_lossy())))
}

/// The files whose paths match a pattern. (The library panics if it is told to leave out hidden files, and there is a
/// name that is not Unicode.)
fn matching(pattern: &str) -> Outcome<Vec<PathBuf>> {
    let at_pattern = |error: &dyn fmt::Display| Failure::at(pattern, Failure::error(error));
    let mut files = Vec::new();
    for path in glob_with(pattern, by_name()).map_err(|error| at_pattern(&error))? {
        let path = path.map_err(|error| at_pattern(&error))?;
        if !path.is_dir() && !is_hidden_match(&path, pattern) {
            files.push(path);
        }
    }
    // The library passes over names that are not Unicode.
    let (folder, name) = pattern.rsplit_once('/').unwrap_or((".", pattern));
    let name = Pattern::new(name).map_err(|error| at_pattern(&error))?;
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let is_unicode = entry.file_name().to_str().is_some();
        if !is_unicode && name.matches(&entry.file_name().to_string_lossy()) && !entry.path().is_dir() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Adds the Vortex files in a folder; any other path is taken as a file.
fn find_below(path: &Path, place: &str, files: &mut Vec<PathBuf>, failures: &mut Vec<Failure>) -> Outcome {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let (mut found, before) = (Vec::new(), failures.len());
    walk(path, &mut found, failures);
    match some_of(place, found, files) {
        // The files may be in folders that cannot be read.
        Err(_) if failures.len() > before => Ok(()),
        outcome => outcome,
    }
}

/// Adds the Vortex files among those found at a place.
fn some_of(place: &str, mut found: Vec<PathBuf>, files: &mut Vec<PathBuf>) -> Outcome {
    let extension = Format::Vortex.extension();
    found.retain(|file| file.extension().is_some_and(|it| it.eq_ignore_ascii_case(extension)));
    if found.is_empty() {
        return Err(Failure::error(format!("{place}: no file there ends in .{extension}")));
    }
    found.sort_unstable();
    files.append(&mut found);
    Ok(())
}

/// Finds the files in a folder and its subfolders that are not hidden. Links to folders are followed, unless they lead back.
fn walk(folder: &Path, files: &mut Vec<PathBuf>, failures: &mut Vec<Failure>) {
    walk_within(&mut Vec::new(), folder, files, failures);
}

/// The same, in a folder within these.
fn walk_within(
    around: &mut Vec<PathBuf>,
    folder: &Path,
    files: &mut Vec<PathBuf>,
    failures: &mut Vec<Failure>,
) {
    let mut read = || {
        let place = folder.canonicalize()?;
        if around.contains(&place) {
            return Ok(());
        }
        around.push(place);
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if is_hidden(&entry.file_name().to_string_lossy()) {
                continue;
            }
            if entry.path().is_dir() {
                walk_within(around, &entry.path(), files, failures);
            } else {
                files.push(entry.path());
            }
        }
        around.pop();
        Ok::<_, std::io::Error>(())
    };
    if let Err(error) = read() {
        failures.push(Failure::at(folder.display(), error));
    }
}

fn open_local(path: &Path, place: &str) -> Outcome<Arc<dyn ReadAt>> {
    if std::fs::metadata(path).map_err(|error| Failure::at(place, error))?.is_dir() {
        return Err(Failure::error(format!("{place}: is a folder, not a file")));
    }
    Ok(Arc::new(LocalFile::open(path).map_err(|error| Failure::at(place, error))?))
}

/// A place as a URL, unless it is a path.
fn as_url(place: &str) -> Option<Url> {
    place.contains("://").then(|| Url::parse(place).ok()).flatten()
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
fn check_endpoint(options: &[(String, String)]) -> Result<()> {
    let given = options.iter().find(|(name, _)| name == "endpoint").map(|(_, value)| value.clone());
    let endpoint =
        given.or_else(|| AmazonS3Builder::from_env().get_config_value(&AmazonS3ConfigKey::Endpoint));
    let Some(endpoint) = endpoint else { return Ok(()) };
    match Url::parse(&endpoint) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        _ => config_err!(
            "the endpoint of S3 (AWS_ENDPOINT, AWS_ENDPOINT_URL or aws.endpoint) is `{endpoint}`, not a URL such as http://localhost:9000"
        ),
    }
}

/// Options that the shell library does not derive from others: HTTP is allowed if the endpoint says so, and requests that
/// are not signed need no credentials.
fn s3_options(mut aws: AwsOptions) -> AwsOptions {
    let environment = AmazonS3Builder::from_env();
    let set = |key| environment.get_config_value(&key);
    let endpoint = aws.endpoint.clone().or_else(|| set(AmazonS3ConfigKey::Endpoint));
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
    aws
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
        let store = VisibleFiles::of(store);
        match url.scheme() {
            "file" => Some(mem::replace(&mut *self.local.lock(), store)),
            _ => self.known.register_store(url, store),
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
    use super::*;

    fn stores() -> Arc<Stores> {
        Stores::new(Arc::new(InstrumentedObjectStoreRegistry::new()))
    }

    #[test]
    fn paths_are_no_urls() {
        assert!(as_url("data/a.vortex").is_none());
        assert!(as_url("/data/a:b.vortex").is_none());
        assert!(as_url("s3://bucket/a.vortex").is_some());
    }

    #[tokio::test]
    async fn what_a_listing_finds_is_what_is_opened() {
        let (stores, memory) = (stores(), Arc::new(object_store::memory::InMemory::new()));
        stores.register_store(&Url::parse("gs://bucket").unwrap(), Arc::clone(&memory) as _);
        let names = ["a b", "a%20b", "k=a%2Fb/x", "a#b", "q?", "*", "\u{e4}", "plain"];
        for (len, name) in names.iter().enumerate() {
            let path = StorePath::parse(format!("mix/{name}.vortex")).unwrap();
            memory.put(&path, vec![0; len + 1].into()).await.unwrap();
        }
        let (files, failures) = stores.files(&["gs://bucket/mix/".into()]).await.unwrap();
        assert!(failures.is_empty());
        let mut sizes = Vec::new();
        for file in &files {
            sizes.push(stores.open(file).await.unwrap().len().await.unwrap());
        }
        sizes.sort_unstable();
        assert_eq!(sizes, (1..=names.len() as u64).collect::<Vec<_>>(), "{files:?}");
        assert!(files.contains(&"gs://bucket/mix/plain.vortex".into()), "{files:?}");
    }

    #[test]
    fn hidden_names_match_patterns_that_begin_like_them() {
        for (path, pattern, expected) in [
            ("a.vortex", "*", false),
            ("._a.vortex", "*.vortex", true),
            ("._a.vortex", "._*", false),
            ("_a.vortex", "*.vortex", true),
            ("_a.vortex", "_*", false),
            ("_a=1/b.vortex", "*/*.vortex", false),
            ("/home/.x/a.vortex", "/home/.x/*.vortex", false),
            ("/home/.x/._a.vortex", "/home/.x/*.vortex", true),
            ("d/.x/a.vortex", "d/*/a.vortex", true),
            ("d/.x/a.vortex", "d/**/*.vortex", true),
            ("../a.vortex", "../*.vortex", false),
            ("./a.vortex", "./*.vortex", false),
        ] {
            assert_eq!(is_hidden_match(Path::new(path), pattern), expected, "{path} {pattern}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_named() {
        let (mut files, mut failures) = (Vec::new(), Vec::new());
        walk(Path::new("no/such"), &mut files, &mut failures);
        let [Failure::Error(message)] = failures.as_slice() else { panic!("{failures:?}") };
        assert!(message.starts_with("no/such: ") && files.is_empty(), "{message}");
    }

    #[test]
    fn stores_are_built_on_demand_and_kept() {
        let url = Url::parse("https://example.com/a/b.vortex").unwrap();
        let stores = stores();
        let first = stores.get_store(&url).unwrap();
        assert!(Arc::ptr_eq(&first, &stores.get_store(&url).unwrap()));
        assert!(stores.get_store(&Url::parse("gopher://example.com/").unwrap()).is_err());
    }

    #[test]
    fn web_addresses_of_buckets_are_read_as_web_servers() {
        let stores = stores();
        for host in ["b.s3.eu-north-1.amazonaws.com", "s3.amazonaws.com", "a.blob.core.windows.net"] {
            let url = Url::parse(&format!("https://{host}/b/c.vortex")).unwrap();
            let store = stores.get_store(&url).unwrap().to_string();
            assert!(store.contains("HttpStore"), "{host}: {store}");
        }
    }

    #[tokio::test]
    async fn options_configure_a_store() {
        let stores = stores();
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

    #[test]
    fn options_of_the_format_are_not_for_the_store() {
        assert_eq!(store_option("format.prune", "true"), None);
        assert_eq!(store_option("vortex.prune", "true"), None);
        assert_eq!(store_option("prune", "true"), None);
        assert_eq!(store_option("aws.region", "x"), Some(("region".into(), "x".into())));
    }
}
