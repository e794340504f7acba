//! Places: what a path or a URL stands for, and which of them are refused.
//!
//! DataFusion resolves globs in local paths, but not in URLs such as `s3://bucket/logs/2026-*.vortex`. Here the part of
//! a URL up to the first segment with a `*`, `?` or `[` is the folder that is listed, and the rest is the pattern.
//! `%2A` in a URL is not a glob, but stands for an asterisk in a name.
//!
//! DataFusion's tables match the pattern, whether of a URL or of a path, against:
//!
//! - The first name below the folder, ignoring folders named `key=value`: `logs/2026*` also matches
//!   everything in a folder `logs/2026-01/`. No file matches a pattern with a `/`, so such patterns are
//!   refused.
//! - With `datafusion.execution.listing_table_ignore_subdirectory = false`, all names below the folder,
//!   joined by `/`; `*` then also matches `/`.
//!
//! On the command line, commands other than SQL match the pattern against the whole path below the folder,
//! name by name: `*` does not match `/`.

use std::path::PathBuf;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, TableReference, plan_datafusion_err, plan_err};
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_session::Session;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _, ObjectStoreScheme};
use url::{Position, Url};
use vortex_core::Error;

use crate::convert::datafusion_error;
use crate::reading::listings::Listings;

/// The names of the files that a folder of Vortex files contains: those with that extension that are not hidden
/// ([`is_hidden`]). DataFusion compares no name with it that contains a `=`.
pub(super) const IN_FOLDER: &str = "[!._]*.vortex";

/// The files at a place: a path or a URL, of a file or a folder, or a glob in either. A path that exists is no
/// glob, whatever is in its name.
///
/// # Errors
/// If `place` is neither, or is a folder or a glob at `http://` or `https://`, where files cannot be listed, or has a
/// query there, which stores do not send.
pub fn listing_url(place: &str) -> Result<ListingTableUrl> {
    let glob = split_glob(place);
    let url = match glob {
        None => match existing(place) {
            Some(url) => ListingTableUrl::try_new(url, None)?,
            None => ListingTableUrl::parse(place)?,
        },
        Some((folder, glob)) => {
            let url = Url::parse(folder).map_err(|error| plan_datafusion_err!("{place}: {error}"))?;
            ListingTableUrl::try_new(url, None)?.with_glob(glob)?
        }
    };
    if url.is_collection()
        && let Ok((ObjectStoreScheme::Http, _)) = ObjectStoreScheme::parse(url.get_url())
    {
        let kind = if glob.is_some() { "glob" } else { "folder" };
        return plan_err!("{place}: a web server cannot list files; name each file instead of a {kind}");
    }
    if let (Some(query), true) = (url.get_url().query(), matches!(url.scheme(), "http" | "https")) {
        return plan_err!(
            "{place}: the query `?{query}` would not be sent: leave it out, or download the file"
        );
    }
    let store = store_name(&url);
    Ok(url.with_table_ref(store))
}

/// The URL of a file or a folder, if there is one at a path, or of a folder at a local URL. DataFusion would take some
/// names for globs, and others for URLs.
fn existing(place: &str) -> Option<Url> {
    let path = if place.contains("://") {
        // Without a slash at its end, DataFusion takes the URL of a folder for that of a file.
        local_path(&Url::parse(place).ok()?).filter(|path| path.is_dir())?
    } else {
        PathBuf::from(place)
    };
    if !path.exists() {
        return None;
    }
    let absolute = std::path::absolute(&path).ok()?;
    let is_folder = place.ends_with(std::path::is_separator) || path.is_dir();
    let url = if is_folder { Url::from_directory_path(absolute) } else { Url::from_file_path(absolute) };
    // Parsing resolves `..`.
    Url::parse(url.ok()?.as_str()).ok()
}

/// The local path that a URL names. URLs of other stores have paths, too.
pub fn local_path(url: &Url) -> Option<PathBuf> {
    (url.scheme() == "file").then(|| url.to_file_path().ok())?
}

/// A place in a store, as a folder if it is one although its URL lacks the slash at its end: if there is no object of
/// that name, but some below it. DataFusion would read these, but neither see columns in the names of folders nor leave
/// out hidden files.
pub async fn if_folder(url: ListingTableUrl, session: &dyn Session) -> Result<ListingTableUrl> {
    if url.is_collection() || matches!(url.scheme(), "file" | "http" | "https") {
        return Ok(url);
    }
    if url.prefix().as_ref().is_empty() {
        return folder_at(&url);
    }
    // A store that is missing, or does not answer, is an error of whatever reads from it.
    let Ok(store) = session.runtime_env().object_store(&url) else { return Ok(url) };
    if !matches!(store.head(url.prefix()).await, Err(object_store::Error::NotFound { .. })) {
        return Ok(url);
    }
    match store.list(Some(url.prefix())).next().await {
        Some(Ok(_)) => folder_at(&url),
        _ => Ok(url),
    }
}

/// The place of a table whose columns are declared, as a folder if nothing is there and its name has no extension: rows
/// that are inserted are added to it as files.
pub(super) async fn if_new_folder(url: ListingTableUrl, session: &dyn Session) -> Result<ListingTableUrl> {
    let is_named_file = url.prefix().as_ref().is_empty() || url.prefix().extension().is_some();
    if url.is_collection() || is_named_file || matches!(url.scheme(), "http" | "https") {
        return Ok(url);
    }
    let is_missing = match local_path(url.get_url()) {
        Some(path) => !path.exists(),
        None => {
            let Ok(store) = session.runtime_env().object_store(&url) else { return Ok(url) };
            matches!(store.head(url.prefix()).await, Err(object_store::Error::NotFound { .. }))
        }
    };
    if is_missing { folder_at(&url) } else { Ok(url) }
}

fn folder_at(url: &ListingTableUrl) -> Result<ListingTableUrl> {
    let mut folder = url.get_url().clone();
    folder.set_path(&format!("{}/", folder.path().trim_end_matches('/')));
    Ok(ListingTableUrl::try_new(folder, None)?.with_table_ref(store_name(url)))
}

/// Whether a name is that of a hidden file or folder: whether it begins with `.` or `_`, as in Hive and Spark. Folders
/// named `_key=value` are not hidden.
pub fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || (name.starts_with('_') && !name.contains('='))
}

/// Whether a place is a folder as a whole, of which hidden files are left out, unlike a file that is named, or files
/// that a pattern matches.
pub(crate) fn is_whole_folder(url: &ListingTableUrl) -> bool {
    url.is_collection() && url.get_glob().is_none()
}

/// A place of Vortex files: of a folder, those that are visible. DataFusion reads hidden ones, too: see
/// `tests/it/upstream/files.rs`: `tables_of_folders_contain_hidden_files`.
pub(super) fn visible_files(url: ListingTableUrl) -> Result<ListingTableUrl> {
    if is_whole_folder(&url) { url.with_glob(IN_FOLDER) } else { Ok(url) }
}

/// The files at a place whose paths end in `extension`, as tables of DataFusion contain them.
///
/// # Errors
/// While they are listed, if the pattern of the place matches a file that DataFusion would leave out: it takes all
/// names that contain `=` for those of folders. See `tests/it/upstream/files.rs`:
/// `patterns_match_no_file_whose_name_contains_an_equals_sign`.
pub(crate) async fn listed_files<'a>(
    session: &'a dyn Session,
    url: &'a ListingTableUrl,
    store: &'a dyn ObjectStore,
    extension: &'a str,
) -> Result<BoxStream<'a, Result<ObjectMeta>>> {
    Listings::of(&session.runtime_env().cache_manager).make(session, std::slice::from_ref(url)).await?;
    let Some(glob) = url.get_glob() else {
        return url.list_all_files(session, store, extension).await;
    };
    let ignores_subfolders = session.config_options().execution.listing_table_ignore_subdirectory;
    let mut folder = ListingTableUrl::try_new(url.get_url().clone(), None)?;
    if let Some(name) = url.get_table_ref() {
        folder = folder.with_table_ref(name.clone());
    }
    let mut files: Vec<_> = folder.list_all_files(session, store, extension).await?.try_collect().await?;
    if ignores_subfolders && glob.as_str() != IN_FOLDER {
        // The pattern may match a folder, with all that is in it.
        let everything = folder.clone().with_glob("*")?;
        let below: Vec<_> = everything.list_all_files(session, store, extension).await?.try_collect().await?;
        files.extend(below.into_iter().filter(|file| !folder.contains(&file.location, true)));
    }
    let matching = files.into_iter().filter_map(move |file| {
        if url.contains(&file.location, ignores_subfolders) {
            return Some(Ok(file));
        }
        let parts: Vec<&str> = url.strip_prefix(&file.location)?.collect();
        let (name, folders) = parts.split_last()?;
        let is_within = !ignores_subfolders || folders.iter().all(|folder| folder.contains('='));
        let is_meant = glob.matches(name) || (glob.as_str() == IN_FOLDER && !is_hidden(name));
        if !is_within || !name.contains('=') || !is_meant {
            return None;
        }
        Some(plan_err!(
            "{}: names of files must not contain `=`, as those of folders do: a pattern or a table leaves out `{name}`. \
             Rename it",
            file.location
        ))
    });
    Ok(futures::stream::iter(matching).boxed())
}

/// The URL at which DataFusion writes to a local path that it would take for a glob or a URL; other places as they are.
///
/// # Errors
/// If no URL names the path.
pub fn output_url(place: &str) -> Result<String> {
    if !place.contains(['*', '?', '[', ':']) || place.contains("://") {
        return Ok(place.to_owned());
    }
    let path = std::path::absolute(place)?;
    let is_folder = place.ends_with(std::path::is_separator);
    let url = if is_folder { Url::from_directory_path(path) } else { Url::from_file_path(path) };
    url.map(String::from).map_err(|()| plan_datafusion_err!("{place}: no URL names this file"))
}

/// The store of a URL, in place of the name of a table. DataFusion keeps listings and statistics by the name of
/// a table and the path, whatever the store: without a name, a folder of one store would be taken for one of
/// another. See `tests/it/upstream/files.rs`: `listings_of_one_store_are_used_for_another`.
pub(super) fn store_name(url: &ListingTableUrl) -> TableReference {
    TableReference::bare(&url.get_url()[..Position::BeforePath])
}

/// Refuses places that no statement can read. Every way to a table calls this before DataFusion lists files or opens
/// any; `is_vortex` says whether a file at this place has to be a Vortex file.
///
/// # Errors
/// If the place is refused; the error names it.
pub(crate) async fn check_place(url: &ListingTableUrl, session: &dyn Session, is_vortex: bool) -> Result<()> {
    check_pattern(url, session.config_options())?;
    check_kind(url)?;
    if is_vortex {
        check_size(url)?;
    }
    check_exists(session.runtime_env(), url).await
}

/// Refuses patterns that no file can match, given how DataFusion applies them.
fn check_pattern(url: &ListingTableUrl, options: &ConfigOptions) -> Result<()> {
    let Some(glob) = url.get_glob() else { return Ok(()) };
    if glob.as_str().contains('=') {
        return plan_err!(
            "the pattern {glob} below {url} cannot match folders named key=value: use a pattern for files \
             only, such as *.vortex, and a filter on the partition columns"
        );
    }
    if glob.as_str().contains('/') && options.execution.listing_table_ignore_subdirectory {
        return plan_err!(
            "the pattern {glob} below {url} spans folders: use a pattern without /, or SET \
             datafusion.execution.listing_table_ignore_subdirectory = false, which makes * match / as well"
        );
    }
    Ok(())
}

/// Refuses what is neither a file nor a folder: opening a pipe would wait for another process to write to it.
fn check_kind(url: &ListingTableUrl) -> Result<()> {
    if let Some(path) = local_path(url.get_url())
        && path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir())
    {
        return plan_err!("{}: is neither a file nor a folder", path.display());
    }
    Ok(())
}

/// Refuses a Vortex file of no bytes: DataFusion takes it for a table without rows.
fn check_size(url: &ListingTableUrl) -> Result<()> {
    let Some(path) = local_path(url.get_url()) else { return Ok(()) };
    if path.metadata().is_ok_and(|there| there.is_file() && there.len() == 0) {
        let error = Error::corrupt("0 bytes are too few for a Vortex file");
        return Err(datafusion_error(error.at(path.display().to_string())));
    }
    Ok(())
}

/// Refuses a web address without a file. DataFusion would ask for the list of files below it, which web servers
/// do not have.
async fn check_exists(runtime: &RuntimeEnv, url: &ListingTableUrl) -> Result<()> {
    if !matches!(url.scheme(), "http" | "https") || url.is_collection() {
        return Ok(());
    }
    match runtime.object_store(url)?.head(url.prefix()).await {
        Ok(_) => Ok(()),
        Err(object_store::Error::NotFound { .. }) => plan_err!("no file at {url}"),
        Err(error) => Err(error.into()),
    }
}

/// Splits a URL with a glob into the folder and the pattern.
pub(super) fn split_glob(place: &str) -> Option<(&str, &str)> {
    let path = place.find("://")? + 3;
    let is_web = place.starts_with("http://") || place.starts_with("https://");
    // In web URLs, a question mark starts the query.
    let end = if is_web { place.find('?').unwrap_or(place.len()) } else { place.len() };
    let path = path + place[path..end].find('/')?;
    let first = path + place[path..end].find(['*', '?', '['])?;
    let folder = path + place[path..first].rfind('/')? + 1;
    Some((&place[..folder], &place[folder..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_ends_before_the_first_segment_with_a_glob() {
        for (place, expected) in [
            ("s3://bucket/*.vortex", Some(("s3://bucket/", "*.vortex"))),
            ("s3://bucket/a/b?/c.vortex", Some(("s3://bucket/a/", "b?/c.vortex"))),
            ("az://c/a/x[0-9].vortex", Some(("az://c/a/", "x[0-9].vortex"))),
            ("https://host/a/*.vortex?key=*", Some(("https://host/a/", "*.vortex?key=*"))),
            ("https://host/a.vortex?key=*", None),
            ("s3://bucket/a%2A.vortex", None),
            ("s3://bucket", None),
            ("data/*.vortex", None),
            ("://", None),
            ("*://*", None),
        ] {
            assert_eq!(split_glob(place), expected, "{place}");
        }
    }

    #[test]
    fn a_folder_contains_what_is_not_hidden() {
        let folder = visible_files(listing_url("s3://bucket/a/").unwrap()).unwrap();
        for name in ["a.vortex", "_a.vortex", ".a.vortex", "a_.vortex", "a b.vortex", "é.vortex"] {
            let path = object_store::path::Path::from(format!("a/{name}"));
            assert_eq!(folder.contains(&path, true), !is_hidden(name), "{name}");
        }
        assert!(!is_hidden("_day=1") && is_hidden(".day=1"));
        let within = object_store::path::Path::from("a/_day=1/a.vortex");
        assert!(folder.contains(&within, true));
        for place in ["s3://bucket/a/*.vortex", "s3://bucket/a/_b.vortex"] {
            let url = listing_url(place).unwrap();
            assert_eq!(visible_files(url.clone()).unwrap(), url);
        }
    }

    #[test]
    fn a_web_server_lists_nothing() {
        for place in ["https://example.com/a/*.vortex", "https://example.com/a/"] {
            let error = listing_url(place).unwrap_err().to_string();
            assert!(error.contains("cannot list") && error.contains("example.com"), "{error}");
        }
        assert!(listing_url("https://example.com/a.vortex").is_ok());
        let error = listing_url("https://example.com/a.vortex?x=[1]").unwrap_err().to_string();
        assert!(error.contains("`?x=[1]` would not be sent"), "{error}");
    }

    #[test]
    fn a_pattern_that_is_none_is_an_error() {
        assert!(listing_url("s3://bucket/a[.vortex").is_err());
        assert!(listing_url("s3://bucket/***.vortex").is_err());
    }

    #[test]
    fn a_url_of_another_store_is_no_local_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        for store in ["memory://", "hdfs://localhost:8020"] {
            assert_eq!(listing_url(&format!("{store}{path}")).unwrap().as_str(), format!("{store}{path}"));
        }
        let local = listing_url(&format!("file://{path}")).unwrap();
        assert_eq!(local.as_str(), format!("file://{path}/"));
    }
}
