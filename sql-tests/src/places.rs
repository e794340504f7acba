//! The locations of the files of a run: folders of this machine, or an object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt as _, parse_url_opts};
use url::Url;

use crate::{Tables, golden_files};

/// The values of `{files}`, `{tables}` and `{scratch}` in statements.
#[derive(Debug, Clone)]
pub struct Places {
    /// The folder of golden files, as a path or a URL.
    pub files: String,
    /// The folder of tables, as a path or a URL.
    pub tables: String,
    /// The folder to write to, as a path or a URL; empty until there is a session.
    pub scratch: String,
    /// The store that the URLs refer to; none if the places are paths.
    pub store: Option<Store>,
}

impl Places {
    /// Golden files where they are, and tables whose files have this extension.
    pub fn on_disk(tables: &Tables, extension: &str) -> Self {
        let text = |path: PathBuf| path.canonicalize().unwrap_or(path).to_string_lossy().into_owned();
        let (files, tables) = (text(golden_files()), text(tables.folder(extension)));
        Self { files, tables, scratch: String::new(), store: None }
    }

    /// Both in an object store, which the session also writes to.
    pub fn in_store(store: Store) -> Self {
        let place = |folder: &str| format!("{}/{folder}", store.url);
        let (files, tables) = (place("files"), place("tables"));
        Self { files, tables, scratch: String::new(), store: Some(store) }
    }

    /// The same places, and one to write to: `folder`, or a folder of that name below the tables in a store.
    pub(crate) fn with_scratch(self, folder: &Path) -> Self {
        let scratch = match Url::parse(&self.tables) {
            Ok(_) => format!("{}{}", self.tables, folder.display()),
            Err(_) => folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).display().to_string(),
        };
        Self { scratch, ..self }
    }

    /// The places as they appear in plans and messages, with the words that represent them.
    pub(crate) fn as_shown(&self) -> [(String, &'static str); 3] {
        let shown = |place: &str| match Url::parse(place) {
            Ok(url) => url.path().trim_start_matches('/').to_owned(),
            Err(_) => place.trim_start_matches('/').to_owned(),
        };
        // The scratch folder may be inside the folder of tables, so it comes first.
        [
            (shown(&self.scratch), "{scratch}"),
            (shown(&self.files), "{files}"),
            (shown(&self.tables), "{tables}"),
        ]
    }
}

/// An object store, and the folder in it that contains the files of a run.
#[derive(Debug, Clone)]
pub struct Store {
    /// The folder, without a trailing slash.
    pub url: Url,
    /// The store.
    pub objects: Arc<dyn ObjectStore>,
}

impl Store {
    /// Copies golden files and tables to the folder that `SLT_STORE` names, for example `s3://bucket/folder`
    /// or `az://container/folder`. Keys and endpoints are taken from the usual variables `AWS_…` and
    /// `AZURE_…`.
    ///
    /// # Errors
    /// If `SLT_STORE` is missing or does not name a store, or the store does not accept the files.
    pub async fn upload(tables: &Tables) -> Result<Self> {
        let url = std::env::var("SLT_STORE")
            .map_err(|_| DataFusionError::Configuration("SLT_STORE does not name a store".into()))?;
        let url = Url::parse(&url).map_err(|error| DataFusionError::External(error.into()))?;
        let settings =
            std::env::vars().filter(|(name, _)| name.starts_with("AWS_") || name.starts_with("AZURE_"));
        let settings = settings.map(|(name, value)| (name.to_ascii_lowercase(), value));
        let (objects, folder) = parse_url_opts(&url, settings)?;
        let store = Self { url, objects: Arc::from(objects) };
        store.copy(&golden_files(), &folder.clone().join("files")).await?;
        store.copy(&tables.folder("vortex"), &folder.join("tables")).await?;
        Ok(store)
    }

    async fn copy(&self, from: &Path, to: &StorePath) -> Result<()> {
        let mut folders = vec![from.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir()? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "vortex") {
                    let name = path.strip_prefix(from).unwrap_or(&path).components();
                    let key =
                        name.fold(to.clone(), |key, part| key.join(&*part.as_os_str().to_string_lossy()));
                    self.objects.put(&key, std::fs::read(&path)?.into()).await?;
                }
            }
        }
        Ok(())
    }
}
