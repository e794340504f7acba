//! What stores of objects are, and how their objects are called, by the name that a store reports for itself: stores
//! tell nothing else about themselves, and those that wrap another one hide its type, but may include its name in their
//! own.

use object_store::ObjectStore;
use object_store::path::Path;

/// A readable name of an object: for local files, the absolute path; for objects in buckets, the URL
/// (`s3://bucket/a.vortex`). Of other stores, the location is all that is known, unless a store around one of a web
/// server calls it `HttpStore(https://example.com)`.
pub fn object_name(store: &dyn ObjectStore, location: &Path) -> String {
    named(&store.to_string(), location)
}

fn named(store: &str, location: &Path) -> String {
    match LocalStore::named(store) {
        Some(LocalStore { has_all: true, .. }) if cfg!(unix) => return format!("/{location}"),
        Some(_) => return location.to_string(),
        None => {}
    }
    match (bucket(store), within(store, "HttpStore(")) {
        (Some((scheme, bucket)), _) => format!("{scheme}://{bucket}/{location}"),
        (None, Some(server)) => format!("{server}/{location}"),
        (None, None) => location.to_string(),
    }
}

/// The scheme of the URL and the name of the bucket of a store of this name, or of one in it.
fn bucket(store: &str) -> Option<(&'static str, &str)> {
    const BEFORE: [(&str, &str); 3] =
        [("AmazonS3(", "s3"), ("GoogleCloudStorage(", "gs"), (", container: ", "az")];
    BEFORE.into_iter().find_map(|(before, scheme)| Some((scheme, within(store, before)?)))
}

/// What the name of a store has between `before` and a parenthesis or a space.
fn within<'a>(store: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = store.split_once(before)?;
    Some(rest.split_once([')', ' '])?.0)
}

/// A store of local files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LocalStore {
    /// Whether there is another store around it. Locations mean the same there, but requests may take longer.
    pub(super) is_wrapped: bool,
    /// Whether locations start at the root of the file system.
    has_all: bool,
}

impl LocalStore {
    /// The local store that a store of this name is or wraps, if any.
    pub(super) fn named(store: &str) -> Option<Self> {
        let (around, root) = store.split_once("LocalFileSystem(")?;
        Some(Self { is_wrapped: !around.is_empty(), has_all: root.starts_with("file:///)") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_in_a_bucket_is_called_by_its_url() {
        let of = |store| named(store, &Path::from("a/b.vortex"));
        assert_eq!(of("AmazonS3(lake)"), "s3://lake/a/b.vortex");
        assert_eq!(of("LimitStore(4, GoogleCloudStorage(lake))"), "gs://lake/a/b.vortex");
        assert_eq!(of("MicrosoftAzure { account: us, container: lake }"), "az://lake/a/b.vortex");
        assert_eq!(of("Counted(HttpStore(https://host:1))"), "https://host:1/a/b.vortex");
        for other in ["HttpStore", "PrefixObjectStore(lake)", "InMemory", "AmazonS3("] {
            assert_eq!(of(other), "a/b.vortex");
        }
    }
}
