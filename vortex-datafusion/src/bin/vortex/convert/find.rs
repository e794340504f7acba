//! Finds the files to convert.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use datafusion::execution::session_state::SessionState;
use futures::TryStreamExt as _;
use object_store::ObjectMeta;
use object_store::local::LocalFileSystem;
use tempfile::TempPath;
use url::Url;
use vortex_core::io::object_name;
use vortex_datafusion::{if_folder, listing_url, local_path};

use super::input::reader_of;
use super::text_form::{CsvArguments, TextForm, form_of};
use crate::failure::{Failure, Outcome};
use crate::formats::Format;
use crate::stores::Stores;

/// A file to convert.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Its name in messages.
    pub(super) name: String,
    /// Its path below the given folder, or its name if there is none.
    pub(super) relative: PathBuf,
    pub(super) format: Format,
    /// How it is read if it is text.
    pub(super) form: TextForm,
    pub(super) url: ListingTableUrl,
    pub(super) meta: ObjectMeta,
    /// The folder in which it was found, if subfolders are named after values: `day=1/`.
    pub(super) partitioned: Option<ListingTableUrl>,
    /// Whether SQL over the given folder would leave it out, since it is in a subfolder.
    pub(super) in_subfolder: bool,
    /// The file itself if it exists only for this conversion.
    #[expect(dead_code, reason = "removed with the last clone")]
    pub(super) temporary: Option<Arc<TempPath>>,
}

impl Found {
    /// The file by itself, without the values in the names of its folders.
    pub(super) fn alone(&self) -> Self {
        Self { partitioned: None, ..self.clone() }
    }

    /// Whether it is text, which may be compressed.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.format, Format::Csv | Format::Json)
    }

    /// Whether this and another file can be part of one table.
    pub(super) fn is_read_like(&self, other: &Self) -> bool {
        (self.format, self.form) == (other.format, other.form)
    }

    /// The format of DataFusion that reads it.
    pub(super) fn reader(&self) -> Arc<dyn FileFormat> {
        reader_of(self.format, self.form)
    }

    /// The path of a Parquet file on a local disk.
    pub(super) fn local_parquet(&self) -> Option<PathBuf> {
        let is_local = self.format == Format::Parquet && self.url.scheme() == "file";
        is_local.then(|| LocalFileSystem::new().path_to_filesystem(&self.meta.location).ok())?
    }
}

/// The files at a place: a path or URL of a file or a folder, or a glob; and files of a folder whose format is not
/// known.
pub(super) async fn find(
    stores: &Stores,
    state: &SessionState,
    place: &str,
    format: Option<Format>,
    csv: &CsvArguments,
) -> Outcome<(Vec<Found>, Vec<PathBuf>)> {
    let at_place = |error: Failure| Failure::at(place, error);
    let url = listing_url(place).map_err(|error| at_place(error.into()))?;
    if let Some(path) = local_path(url.get_url())
        && path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir())
    {
        return Err(Failure::error(format!("{place}: is neither a file nor a folder")));
    }
    stores.prepare(url.as_ref(), &[]).await.map_err(|error| at_place(error.into()))?;
    let url = if_folder(url, state).await.map_err(|error| at_place(error.into()))?;
    let mut objects = objects(stores, state, &url).await.map_err(at_place)?;
    if objects.is_empty() {
        return Err(Failure::error(format!("{place}: there is no such file, or the folder is empty")));
    }
    objects.sort_by(|left, right| left.location.cmp(&right.location));
    let store = stores.get_store(url.as_ref())?;
    let is_one = objects.len() == 1 && !url.is_collection();
    let is_folder = url.is_collection() && url.get_glob().is_none();
    let (mut files, mut unknown) = (Vec::with_capacity(objects.len()), Vec::new());
    for meta in objects {
        let relative = match url.strip_prefix(&meta.location) {
            Some(parts) if !is_one => parts.collect::<PathBuf>(),
            _ => PathBuf::from(meta.location.filename().unwrap_or_default()),
        };
        let (format, form) = match form_of(&relative, format, csv) {
            Ok(Some(read)) => read,
            // A folder may contain other files too.
            _ if !is_one => {
                unknown.push(relative);
                continue;
            }
            Err(told) => return Err(Failure::Usage(format!("{place}: {told}"))),
            Ok(None) => return Err(Failure::Usage(format!("{place}: unknown format; set it with --from"))),
        };
        let name = if is_one { place.to_owned() } else { object_name(store.as_ref(), &meta.location) };
        // All of them have to be: `check_folders` refuses the others.
        let has_values = is_folder && folders_of(&relative).any(|folder| folder.contains('='));
        let partitioned = has_values.then(|| url.clone());
        let in_subfolder = is_folder && folders_of(&relative).any(|folder| !folder.contains('='));
        let url = one_file(&url, &meta)?;
        files.push(Found {
            name,
            relative,
            format,
            form,
            url,
            meta,
            partitioned,
            in_subfolder,
            temporary: None,
        });
    }
    if files.is_empty() {
        return Err(Failure::error(format!("{place}: no file has the extension of a known format")));
    }
    Ok((files, unknown))
}

async fn objects(stores: &Stores, state: &SessionState, url: &ListingTableUrl) -> Outcome<Vec<ObjectMeta>> {
    // Folders of partitions are like other folders in a glob; DataFusion does not treat them as part of the path. If a
    // file does not exist, it would ask for a list, which web servers do not have.
    if url.get_glob().is_some() || matches!(url.scheme(), "http" | "https") {
        return stores.objects(url).await;
    }
    // The session keeps the list, for the table of a folder.
    let store = stores.get_store(url.as_ref())?;
    Ok(url.list_all_files(state, &store, "").await?.try_collect().await?)
}

/// The names of the folders in a path.
pub(super) fn folders_of(path: &Path) -> impl Iterator<Item = &str> {
    let folders = path.parent().into_iter().flat_map(Path::components);
    folders.filter_map(|folder| folder.as_os_str().to_str())
}

/// One of the files below a URL, with its name taken literally.
fn one_file(within: &ListingTableUrl, meta: &ObjectMeta) -> Outcome<ListingTableUrl> {
    let mut url = Url::parse(within.object_store().as_str()).map_err(Failure::error)?;
    let cannot = |()| Failure::error(format!("{}: no URL names this file", meta.location));
    // `set_path` would not encode `%`, so that a name with `%2F` would become two.
    url.path_segments_mut().map_err(cannot)?.extend(meta.location.parts());
    Ok(ListingTableUrl::try_new(url, None)?)
}
