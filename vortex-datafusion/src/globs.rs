//! Globs in URLs: `s3://bucket/logs/2026-*.vortex`.
//!
//! DataFusion resolves globs in local paths only. Here the part of a URL up to the first segment with a `*`,
//! `?` or `[` is the folder that is listed, and the rest is the pattern. `%2A` in a URL is not a glob, but
//! stands for an asterisk in a name.
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

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableConfigExt as _, ListingTableUrl,
};
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionContext;
use datafusion_catalog::{DynamicFileCatalog, UrlTableFactory};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_session::TableProvider;
use futures::StreamExt as _;
use object_store::ObjectStoreScheme;
use parking_lot::RwLock;
use url::Url;

use crate::format::EXTENSION;
use crate::one_file::{Found, OneFile};

/// The files at a place: a path or a URL, of a file or a folder, or a glob in either.
///
/// # Errors
/// If `place` is neither, or is a glob in an `http://` or `https://` URL, where files cannot be listed.
pub fn listing_url(place: &str) -> Result<ListingTableUrl> {
    let Some((folder, glob)) = split_glob(place) else { return ListingTableUrl::parse(place) };
    let url = Url::parse(folder).map_err(|error| plan_datafusion_err!("{place}: {error}"))?;
    if let Ok((ObjectStoreScheme::Http, _)) = ObjectStoreScheme::parse(&url) {
        return plan_err!("{place}: a web server cannot list files; name each file instead of a glob");
    }
    ListingTableUrl::try_new(url, None)?.with_glob(glob)
}

/// Refuses patterns that no file can match, given how DataFusion applies them.
pub(crate) fn check_pattern(url: &ListingTableUrl, options: &ConfigOptions) -> Result<()> {
    let Some(glob) = url.get_glob() else { return Ok(()) };
    if glob.as_str().contains('/') && options.execution.listing_table_ignore_subdirectory {
        return plan_err!(
            "the pattern {glob} below {url} spans folders: use a pattern without /, or SET \
             datafusion.execution.listing_table_ignore_subdirectory = false, which makes * match / as well"
        );
    }
    Ok(())
}

/// Splits a URL with a glob into the folder and the pattern.
pub(crate) fn split_glob(place: &str) -> Option<(&str, &str)> {
    let path = place.find("://")? + 3;
    let is_web = place.starts_with("http://") || place.starts_with("https://");
    // In web URLs, a question mark starts the query.
    let end = if is_web { place.find('?').unwrap_or(place.len()) } else { place.len() };
    let path = path + place[path..end].find('/')?;
    let first = path + place[path..end].find(['*', '?', '['])?;
    let folder = path + place[path..first].rfind('/')? + 1;
    Some((&place[..folder], &place[folder..]))
}

/// Lets a session query files, folders and globs by path or URL: `FROM 's3://bucket/*.vortex'`.
///
/// This replaces [`SessionContext::enable_url_table`], which supports globs only in paths; use one of the
/// two. `CREATE EXTERNAL TABLE … STORED AS VORTEX` accepts globs in URLs wherever Vortex is registered.
pub fn enable_url_tables(context: &SessionContext) {
    let catalogs = Arc::clone(context.state().catalog_list());
    let tables = Arc::new(UrlTables { session: context.state_weak_ref() });
    context.register_catalog_list(Arc::new(DynamicFileCatalog::new(catalogs, tables)));
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
        let Some(session) = self.session.upgrade() else { return Ok(None) };
        let state = session.read().clone();
        let url = match listing_url(place) {
            Ok(url) => url,
            Err(error) if split_glob(place).is_some() => return Err(error),
            // It is the name of a table that does not exist.
            Err(_) => return Ok(None),
        };
        check_pattern(&url, state.config_options())?;
        if let Ok(path) = url.get_url().to_file_path()
            && path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir())
        {
            // Opening a pipe would wait for another process to write to it.
            return plan_err!("{place}: is neither a file nor a folder");
        }
        if url.prefix().extension() == Some(EXTENSION)
            && let Some(table) = found_file(&state, &url).await?
        {
            return Ok(Some(Arc::new(table)));
        }
        let config = match ListingTableConfig::new(url.clone()).infer_options(&state).await {
            Ok(config) => config,
            // A path or a URL is not the name of a table.
            Err(error) if place.contains('/') || Path::new(place).exists() => {
                if is_empty(&state, &url).await {
                    return plan_err!("no file at {place}");
                }
                return Err(error.context(place.to_owned()));
            }
            Err(_) => return Ok(None),
        };
        let config = config.infer_partitions_from_path(&state).await?.infer_schema(&state).await?;
        Ok(Some(Arc::new(ListingTable::try_new(config)?)))
    }
}

/// Whether there is certainly no file at a URL, for which DataFusion has an internal error only.
async fn is_empty(state: &SessionState, url: &ListingTableUrl) -> bool {
    let Ok(store) = state.runtime_env().object_store(url) else { return false };
    match url.list_all_files(state, &store, "").await {
        Ok(mut files) => files.next().await.is_none(),
        Err(_) => false,
    }
}

/// The table of one remote file, if it exists.
async fn found_file(state: &SessionState, url: &ListingTableUrl) -> Result<Option<OneFile>> {
    let Some(formats) = state.get_file_format_factory(EXTENSION) else { return Ok(None) };
    let format = formats.create(state, &HashMap::new())?;
    let Some(found) = Found::at(state, format.as_ref(), url).await? else { return Ok(None) };
    let store = state.runtime_env().object_store(url)?;
    let schema = format.infer_schema(state, &store, std::slice::from_ref(found.meta())).await?;
    let config = ListingTableConfig::new(url.clone())
        .with_listing_options(ListingOptions::new(format))
        .with_schema(schema);
    Ok(Some(OneFile::new(ListingTable::try_new(config)?, found)))
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
    fn a_web_server_lists_nothing() {
        let error = listing_url("https://example.com/a/*.vortex").unwrap_err().to_string();
        assert!(error.contains("cannot list") && error.contains("example.com"), "{error}");
        assert!(listing_url("https://example.com/a.vortex?x=[1]").is_ok());
    }

    #[test]
    fn a_pattern_that_is_none_is_an_error() {
        assert!(listing_url("s3://bucket/a[.vortex").is_err());
        assert!(listing_url("s3://bucket/***.vortex").is_err());
    }
}
