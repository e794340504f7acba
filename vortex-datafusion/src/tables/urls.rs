//! Tables named by paths and URLs: `FROM 's3://bucket/visits/'`.
//!
//! One remote Vortex file takes few requests (`one_file.rs`). Everything else is a listing table of DataFusion,
//! of files of any format that the session reads.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionContext;
use datafusion_catalog::{CatalogProvider, CatalogProviderList, DynamicFileCatalog, UrlTableFactory};
use datafusion_common::{Result, plan_err};
use datafusion_session::TableProvider;
use futures::TryStreamExt as _;
use object_store::ObjectMeta;
use parking_lot::RwLock;

use super::folders::FolderColumns;
use super::listed::ListedTable;
use super::one_file::Found;
use super::places::{
    check_place, if_folder, is_hidden, is_whole_folder, listed_files, listing_url, visible_files,
};
use crate::format::EXTENSION;
use crate::functions::MetadataFunction;

/// Lets a session query files, folders and globs by path or URL: `FROM 's3://bucket/*.vortex'`. A folder in the
/// current folder needs a slash, as in `FROM 'visits/'`: `visits` is the name of a table.
///
/// This replaces [`SessionContext::enable_url_table`]; use one of the two. The latter supports globs only in
/// paths, and reads the folder of one store with the listing of another if their paths are equal, since
/// DataFusion 55 keeps listings by path. `CREATE EXTERNAL TABLE … STORED AS VORTEX` accepts globs in URLs
/// wherever Vortex is registered.
///
/// Calling it again changes nothing; for a session that was built from another one, it makes the tables those of this
/// one.
///
/// It also registers the table functions that show the structure of files, `vortex_metadata`, `vortex_layouts`,
/// `vortex_segments` and `vortex_zones`, which are given a place, too.
///
/// # Security
/// Afterwards, every `SELECT` can open any file that the process can read, and any URL for which the session has an
/// object store, even if `SQLOptions` forbid `CREATE EXTERNAL TABLE` and `COPY`. Call this only if whoever writes the
/// SQL may read all of that.
pub fn enable_url_tables(context: &SessionContext) {
    for (name, function) in MetadataFunction::all() {
        context.register_udtf(name, Arc::new(function));
    }
    // Not DataFusion's catalog: see `tests/it/upstream/files.rs`: `listings_of_one_store_are_used_for_another`.
    let catalogs = Arc::clone(context.state().catalog_list());
    let known = match catalogs.downcast_ref::<UrlCatalogs>() {
        Some(ours) => Arc::clone(&ours.known),
        None => catalogs,
    };
    let tables = Arc::new(UrlTables { session: context.state_weak_ref() });
    let with_places = DynamicFileCatalog::new(Arc::clone(&known), tables);
    context.register_catalog_list(Arc::new(UrlCatalogs { known, with_places }));
}

/// The catalogs of a session, which have a table for each place in addition.
#[derive(Debug)]
struct UrlCatalogs {
    /// The catalogs themselves.
    known: Arc<dyn CatalogProviderList>,
    with_places: DynamicFileCatalog,
}

impl CatalogProviderList for UrlCatalogs {
    fn register_catalog(
        &self,
        name: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        self.known.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.known.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        self.with_places.catalog(name)
    }
}

/// Creates tables from paths and URLs.
struct UrlTables {
    session: Weak<RwLock<SessionState>>,
}

impl fmt::Debug for UrlTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlTables").finish_non_exhaustive()
    }
}

#[async_trait]
impl UrlTableFactory for UrlTables {
    async fn try_new(&self, place: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        // DataFusion looks up every name in a statement, that of a table to create, too. What is called so in the
        // current folder by chance must not matter.
        if is_plain_name(place) {
            return Ok(None);
        }
        let Some(session) = self.session.upgrade() else { return Ok(None) };
        let state = session.read().clone();
        table_at(&state, place).await
    }
}

/// Whether this may be the name of any table: it has no slash, no dot, and nothing else that only paths have.
fn is_plain_name(place: &str) -> bool {
    let is_part_of_path = |char: char| !char.is_alphanumeric() && char != '_' && char != '-' && char != ' ';
    !place.contains(is_part_of_path)
}

async fn table_at(state: &SessionState, place: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let url = match listing_url(place) {
        Ok(url) => url,
        Err(error) if place.contains("://") => return Err(error),
        // It is the name of a table that does not exist.
        Err(_) => return Ok(None),
    };
    let is_vortex = url.prefix().extension() == Some(EXTENSION);
    if is_vortex && let Some(table) = found_file(state, &url).await? {
        return Ok(Some(table));
    }
    // A name with the extension of a format that is known is that of a file.
    let is_file = url.prefix().extension().is_some_and(|name| state.get_file_format_factory(name).is_some());
    let url = if is_file && !is_vortex { url } else { if_folder(url, state).await? };
    check_place(&url, state, is_vortex).await?;
    let looks_like_path = place.contains(['/', '*', '?', '[']) || Path::new(place).exists();
    let (url, options) = match files_at(state, url, place).await {
        Ok(Some(found)) => found,
        Ok(None) if looks_like_path => return plan_err!("no file at {place}"),
        Err(error) if looks_like_path => return Err(error.context(place.to_owned())),
        // It is the name of a table that does not exist.
        _ => return Ok(None),
    };
    let folders = FolderColumns::inferred(state, std::slice::from_ref(&url), &options).await?;
    let config = ListingTableConfig::new(url).with_listing_options(folders.added_to(options));
    let listed = ListingTable::try_new(config.infer_schema(state).await?)?;
    Ok(Some(ListedTable::provider(listed, None, !folders.are_usual)))
}

/// The files at a place, and how to read them: in the one format that their names have. `None` if there are no files.
///
/// Hidden files count only if there is nothing else, since files that are being written are among them, and Vortex
/// files in a folder not even then. DataFusion would take the format of the file that is listed first.
async fn files_at(
    state: &SessionState,
    url: ListingTableUrl,
    place: &str,
) -> Result<Option<(ListingTableUrl, ListingOptions)>> {
    let store = state.runtime_env().object_store(&url)?;
    let mut files: Vec<ObjectMeta> = listed_files(state, &url, &store, "").await?.try_collect().await?;
    let is_hidden = |file: &ObjectMeta| file.location.filename().is_some_and(is_hidden);
    let listed = files.len();
    if is_whole_folder(&url) {
        files.retain(|file| !is_hidden(file) || file.location.extension() != Some(EXTENSION));
    }
    let hides_vortex = files.len() < listed;
    let (hidden, visible): (Vec<_>, Vec<_>) = files.iter().partition(|file| is_hidden(file));
    let mut formats = BTreeMap::new();
    for files in [visible, hidden] {
        if formats.is_empty() {
            formats.extend(files.into_iter().filter_map(|file| format_of(state, file)));
        }
    }
    let several = formats.keys().map(|extension| format!(".{extension}")).collect::<Vec<_>>().join(" and ");
    match formats.pop_first() {
        None if files.is_empty() => Ok(None),
        None => {
            let is_tsv = files.iter().all(|file| file.location.extension() == Some("tsv"));
            let options = if is_tsv { " OPTIONS ('format.delimiter' E'\\t')" } else { "" };
            plan_err!(
                "no extension of a format that is known; name the format: CREATE EXTERNAL TABLE t STORED AS CSV \
                 LOCATION '{place}'{options}"
            )
        }
        Some((extension, _)) if !formats.is_empty() => {
            let folder = match url.get_glob() {
                Some(_) => &place[..place.rfind('/').map_or(0, |at| at + 1)],
                None => place,
            };
            let separator = if folder.is_empty() || folder.ends_with('/') { "" } else { "/" };
            plan_err!("holds {several} files; use '{folder}{separator}*.{extension}' for those of one format")
        }
        Some((extension, (formats, compression))) => {
            let options = compression.map(|name| ("format.compression".to_owned(), name));
            let format = formats.create(state, &options.into_iter().collect())?;
            let hides = hides_vortex && extension == EXTENSION;
            let url = if hides { visible_files(url)? } else { url };
            // DataFusion compares how names end.
            Ok(Some((url, ListingOptions::new(format).with_file_extension(format!(".{extension}")))))
        }
    }
}

/// A format, and how files of it are compressed, if they are.
type Stored = (Arc<dyn FileFormatFactory>, Option<String>);

/// The extension of a file, `csv.gz`, with its format, if the session knows it.
fn format_of(state: &SessionState, file: &ObjectMeta) -> Option<(String, Stored)> {
    let path = file.location.as_ref();
    let (name, compression) = ListingTableConfig::infer_file_extension_and_compression_type(path).ok()?;
    let formats = state.get_file_format_factory(&name)?;
    let extension = match &compression {
        Some(compression) => format!("{name}.{compression}"),
        None => name,
    };
    Some((extension, (formats, compression)))
}

/// The table of one remote file, if it exists.
async fn found_file(state: &SessionState, url: &ListingTableUrl) -> Result<Option<Arc<dyn TableProvider>>> {
    let Some(formats) = state.get_file_format_factory(EXTENSION) else { return Ok(None) };
    let format = formats.create(state, &HashMap::new())?;
    let Some(found) = Found::at(state, format.as_ref(), url).await? else { return Ok(None) };
    let schema = found.schema(state, format.as_ref(), url).await?;
    let config = ListingTableConfig::new(url.clone())
        .with_listing_options(ListingOptions::new(format))
        .with_schema(schema);
    Ok(Some(ListedTable::provider(ListingTable::try_new(config)?, Some(found), false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tables_by_url_are_enabled_once_for_each_session() {
        let context = SessionContext::new();
        crate::register(&context).unwrap();
        let layers = |context: &SessionContext| {
            format!("{:?}", context.state().catalog_list()).matches("DynamicFileCatalog {").count()
        };
        for _ in 0..3 {
            enable_url_tables(&context);
            assert_eq!(layers(&context), 1);
        }
        let copy = SessionContext::new_with_state(context.state());
        enable_url_tables(&copy);
        assert_eq!(layers(&copy), 1);
        drop(context);
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
        let rows = copy.sql(&format!("SELECT * FROM '{example}'")).await.unwrap().count().await.unwrap();
        assert_eq!(rows, 8300);
    }
}
