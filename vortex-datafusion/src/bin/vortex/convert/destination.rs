//! Where conversions write to: standard output, local paths, objects in stores.

use std::fmt;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};
use std::sync::Arc;

use datafusion::execution::object_store::ObjectStoreRegistry as _;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt as _};
use url::{Position, Url};
use vortex_datafusion::local_path;

use super::find::Found;
use crate::failure::{Failure, Outcome};
use crate::formats::Format;
use crate::stores::Stores;

/// A file to write, or a folder for several.
#[derive(Debug, Clone)]
pub(super) enum Destination {
    Stdout,
    Local(PathBuf),
    Object { store: Arc<dyn ObjectStore>, url: Url, path: StorePath },
}

impl Destination {
    /// A path, a URL, or `-`.
    pub(super) async fn find(place: &Path, stores: &Stores) -> Outcome<Self> {
        if place == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let Some(text) = place.to_str().filter(|text| text.contains("://")) else {
            return Ok(Self::Local(place.to_owned()));
        };
        let refused = |why: &str| Err(Failure::Usage(format!("{text}: {why}")));
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => return refused(&format!("is not a URL: {error}")),
        };
        match url.scheme() {
            "file" => match local_path(&url) {
                Some(path) => return Ok(Self::Local(path)),
                None => return refused("is not a local path"),
            },
            "http" | "https" => {
                return refused("web servers can only be read; write to a local file or a bucket");
            }
            _ if url.query().is_some() || url.fragment().is_some() => {
                return refused("`?` and `#` in names are written %3F and %23 in URLs");
            }
            _ => {}
        }
        let open = async {
            stores.prepare(&url, &[]).await?;
            let path = StorePath::from_url_path(url.path()).map_err(object_store::Error::from)?;
            Ok::<_, Failure>((stores.get_store(&url)?, path))
        };
        let (store, path) = open.await.map_err(|failure| Failure::at(text, failure))?;
        Ok(Self::Object { store, url, path })
    }

    /// The format that the extension stands for.
    pub(super) fn format(&self) -> Option<Format> {
        Format::of_path(&self.path()?)
    }

    /// The path, of an object in its store.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Stdout => None,
            Self::Local(path) => Some(path.clone()),
            Self::Object { url, .. } => Some(PathBuf::from(url.path())),
        }
    }

    /// Whether it is a folder, or is named like one.
    pub(super) fn is_folder(&self) -> bool {
        match self {
            Self::Stdout => false,
            Self::Local(path) => path.is_dir() || path.to_string_lossy().ends_with(MAIN_SEPARATOR),
            Self::Object { url, path, .. } => path.as_ref().is_empty() || url.path().ends_with('/'),
        }
    }

    /// Whether it could be the name of a folder that does not exist yet.
    pub(super) fn may_become_folder(&self) -> bool {
        match self {
            Self::Stdout => false,
            Self::Local(path) => !path.exists(),
            Self::Object { .. } => true,
        }
    }

    /// Whether there is a file. For objects, a request finds out.
    pub(super) async fn exists(&self) -> Outcome<bool> {
        match self {
            Self::Stdout => Ok(false),
            Self::Local(path) => Ok(path.exists()),
            Self::Object { store, path, .. } => match store.head(path).await {
                Ok(_) => Ok(true),
                Err(object_store::Error::NotFound { .. }) => Ok(false),
                Err(error) => Err(Failure::at(self, error)),
            },
        }
    }

    /// A file in this folder.
    pub(super) fn join(&self, relative: &Path) -> Self {
        match self {
            Self::Stdout => Self::Stdout,
            Self::Local(folder) => Self::Local(folder.join(relative)),
            Self::Object { store, url, path } => {
                let names: Vec<_> = relative.iter().map(|name| name.to_string_lossy()).collect();
                let (mut url, below) = (url.clone(), format!("{path}/{}", names.join("/")));
                // URLs that cannot be a base name no object.
                if let Ok(mut segments) = url.path_segments_mut() {
                    segments.pop_if_empty().extend(&names);
                }
                // Names are taken literally, unless the store has no such names.
                let path = StorePath::parse(&below).unwrap_or_else(|_| StorePath::from(below));
                Self::Object { store: Arc::clone(store), url, path }
            }
        }
    }

    /// Creates the folder, which only local files need.
    pub(super) fn make_folder(&self) -> Outcome {
        let Self::Local(folder) = self else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(|error| Failure::at(self, error))
    }

    /// Whether it is one of the files.
    pub(super) fn is_among(&self, files: &[Found]) -> bool {
        match self {
            Self::Stdout => false,
            Self::Local(path) => {
                let Ok(path) = path.canonicalize() else { return false };
                let canonical = |file: &Found| local_path(file.url.get_url())?.canonicalize().ok();
                files.iter().any(|file| canonical(file).as_ref() == Some(&path))
            }
            Self::Object { url, path, .. } => files.iter().any(|file| {
                let input: &Url = file.url.get_url();
                input[..Position::BeforePath] == url[..Position::BeforePath] && file.meta.location == *path
            }),
        }
    }

    /// Removes a file that nobody waits for; an object in the background, as long as the runtime lasts.
    pub(super) fn remove(&self) {
        match self {
            Self::Stdout => {}
            Self::Local(path) => _ = std::fs::remove_file(path),
            Self::Object { store, path, .. } => {
                let (store, path) = (Arc::clone(store), path.clone());
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { store.delete(&path).await });
                }
            }
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::Local(path) => path.display().fmt(f),
            Self::Object { url, .. } => url.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    async fn find(place: &str) -> Outcome<Destination> {
        let stores = Stores::uncounted();
        stores.register_store(&Url::parse("gs://bucket").unwrap(), Arc::new(InMemory::new()));
        Destination::find(Path::new(place), &stores).await
    }

    #[tokio::test]
    async fn names_below_a_folder_are_taken_literally() {
        for (folder, relative, expected, object) in [
            ("gs://bucket/", "a.csv", "gs://bucket/a.csv", "a.csv"),
            ("gs://bucket", "d/a.csv", "gs://bucket/d/a.csv", "d/a.csv"),
            (
                "gs://bucket/x%20y/",
                "k=a%2Fb/z#.csv",
                "gs://bucket/x%20y/k=a%252Fb/z%23.csv",
                "x y/k=a%2Fb/z#.csv",
            ),
        ] {
            let folder = find(folder).await.unwrap();
            assert!(folder.is_folder());
            let Destination::Object { url, path, .. } = folder.join(Path::new(relative)) else { panic!() };
            assert_eq!((url.as_str(), path.as_ref()), (expected, object));
            assert_eq!(StorePath::from_url_path(url.path()).unwrap(), path);
        }
        assert!(!find("gs://bucket/a").await.unwrap().is_folder());
    }

    #[tokio::test]
    async fn places_that_cannot_be_written_to_are_refused() {
        let places = ["https://example.com/a.vortex", "gs://bucket/a?.vortex", "gs://bucket/a#b.vortex"];
        // What is no URL is no local path either, in which folders would be created.
        for place in places.into_iter().chain(["s3://a b/", "://a.vortex"]) {
            assert!(matches!(find(place).await, Err(Failure::Usage(_))), "{place}");
        }
        let Err(Failure::Error(message)) = find("gopher://example.com/a.vortex").await else { panic!() };
        assert!(message.contains("no object store for `gopher://example.com/a.vortex`"), "{message}");
        let local = find("file:///tmp/a.vortex").await.unwrap();
        assert!(matches!(local, Destination::Local(path) if path == Path::new("/tmp/a.vortex")));
    }
}
