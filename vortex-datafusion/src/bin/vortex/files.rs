//! Files that commands are given: found at places, and opened.
//!
//! A place is a path or a URL, of a file or a folder, or a glob in either, which is matched name by name.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use futures::TryStreamExt as _;
use futures::future::ready;
use glob::{MatchOptions, Pattern, glob_with};
use object_store::path::Path as StorePath;
use object_store::{ObjectMeta, ObjectStore as _, ObjectStoreExt as _};
use url::Url;
use vortex_core::io::{LocalFile, ObjectFile, ReadAt};
use vortex_datafusion::{is_hidden, listing_url};

use crate::failure::{Failure, Failures, Outcome};
use crate::formats::Format;
use crate::stores::Stores;
use crate::subfolders::files_below;

impl Stores {
    /// The files at places: for a folder or a glob, all Vortex files there; any other place is taken as a file.
    /// Places without Vortex files and folders that cannot be read are failures, which do not prevent others from being
    /// searched.
    pub(crate) async fn files(&self, places: &[PathBuf]) -> Outcome<(Vec<PathBuf>, Failures)> {
        let (mut files, mut unread) = (Vec::new(), Vec::new());
        for path in places {
            match self.files_at(path, &mut files, &mut unread).await {
                Err(Failure::Error(message)) => unread.push(Failure::Error(message)),
                found => found?,
            }
        }
        let mut failures = Failures::among(files.len() + unread.len());
        unread.into_iter().try_for_each(|failure| failures.report(failure))?;
        Ok((files, failures))
    }

    /// Adds the files at one place.
    async fn files_at(&self, path: &Path, files: &mut Vec<PathBuf>, unread: &mut Vec<Failure>) -> Outcome {
        let Some(place) = path.to_str() else {
            // A name that is not Unicode is no pattern.
            return find_below(path, &path.display().to_string(), files, unread);
        };
        if as_url(place).is_some() {
            let url = listing_url(place).map_err(|error| Failure::at(place, error))?;
            if url.is_collection() {
                let found = self.urls(&url).await.map_err(|failure| Failure::at(place, failure))?;
                return some_of(place, found, files);
            }
            files.push(path.to_owned());
            return Ok(());
        }
        // A file may have such a name.
        if place.contains(['*', '?', '[']) && !path.exists() {
            return some_of(place, matching(place)?, files);
        }
        find_below(path, place, files, unread)
    }

    /// The URLs of the files in a folder.
    async fn urls(&self, place: &ListingTableUrl) -> Outcome<Vec<PathBuf>> {
        let folder = place.get_url();
        self.prepare(folder, &[]).await?;
        let url = |object: ObjectMeta| {
            let mut url = folder.clone();
            // A name in a store may contain what means something else in a URL.
            url.path_segments_mut().ok()?.pop_if_empty().extend(place.strip_prefix(&object.location)?);
            Some(PathBuf::from(String::from(url)))
        };
        Ok(self.objects(place).await?.into_iter().filter_map(url).collect())
    }

    /// The objects in a folder, those that match a glob, or the one at any other place, if it exists. The store must be
    /// prepared.
    pub(crate) async fn objects(&self, place: &ListingTableUrl) -> Outcome<Vec<ObjectMeta>> {
        let store = self.get_store(place.as_ref())?;
        if place.is_collection() {
            let listed = match place.get_glob() {
                Some(glob) if place.scheme() == "file" => {
                    let (glob, folder) = (glob.clone(), place.clone());
                    let enters = move |subfolder: &StorePath| {
                        folder.strip_prefix(subfolder).is_some_and(|names| may_match_below(&glob, names))
                    };
                    files_below(store, place.prefix().clone(), enters)
                }
                _ => store.list(Some(place.prefix())),
            };
            return Ok(listed.try_filter(|object| ready(is_match(place, object))).try_collect().await?);
        }
        match store.head(place.prefix()).await {
            Ok(object) => Ok(vec![object]),
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
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

/// Whether an object is at a place: below the folder, and if there is a pattern, with a path that matches it
/// name by name.
fn is_match(place: &ListingTableUrl, object: &ObjectMeta) -> bool {
    let Some(below) = place.strip_prefix(&object.location) else { return false };
    let Some(glob) = place.get_glob() else { return true };
    glob.matches_with(&below.collect::<Vec<_>>().join("/"), by_name())
}

/// Whether something in a folder with these names may match a pattern.
fn may_match_below<'a>(glob: &Pattern, mut folder: impl Iterator<Item = &'a str>) -> bool {
    let mut patterns =
        glob.as_str().split('/').map(|pattern| (pattern != "**").then(|| Pattern::new(pattern)));
    let mut pattern = patterns.next();
    for name in folder.by_ref() {
        match pattern {
            // Folders of any depth match.
            Some(None) => return true,
            Some(Some(Ok(this))) if this.matches(name) => pattern = patterns.next(),
            _ => return false,
        }
    }
    pattern.is_some()
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

/// Finds the files in a folder and its subfolders that are not hidden. Links to folders are followed, unless they lead
/// back.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_no_urls() {
        assert!(as_url("data/a.vortex").is_none());
        assert!(as_url("/data/a:b.vortex").is_none());
        assert!(as_url("s3://bucket/a.vortex").is_some());
    }

    #[tokio::test]
    async fn what_a_listing_finds_is_what_is_opened() {
        let (stores, memory) = (Stores::uncounted(), Arc::new(object_store::memory::InMemory::new()));
        stores.register_store(&Url::parse("gs://bucket").unwrap(), Arc::clone(&memory) as _);
        let names = ["a b", "a%20b", "k=a%2Fb/x", "a#b", "q?", "*", "\u{e4}", "plain"];
        for (len, name) in names.iter().enumerate() {
            let path = StorePath::parse(format!("mix/{name}.vortex")).unwrap();
            memory.put(&path, vec![0; len + 1].into()).await.unwrap();
        }
        let (files, failures) = stores.files(&["gs://bucket/mix/".into()]).await.unwrap();
        failures.outcome().unwrap();
        let mut sizes = Vec::new();
        for file in &files {
            sizes.push(stores.open(file).await.unwrap().len().await.unwrap());
        }
        sizes.sort_unstable();
        assert_eq!(sizes, (1..=names.len() as u64).collect::<Vec<_>>(), "{files:?}");
        assert!(files.contains(&"gs://bucket/mix/plain.vortex".into()), "{files:?}");
    }

    #[test]
    fn folders_are_entered_if_they_are_part_of_what_matches() {
        for (folder, pattern, expected) in [
            ("", "*.csv", true),
            ("a", "*.csv", false),
            ("a", "*/*.csv", true),
            ("a", "b*/*.csv", false),
            ("a/b", "a/[bc]/*.csv", true),
            ("a/b", "*/*.csv", false),
            ("a/b/c", "a/**/*.csv", true),
            ("b", "a/**/*.csv", false),
            ("a/b", "**/*.csv", true),
        ] {
            let names = folder.split_terminator('/');
            assert_eq!(
                may_match_below(&Pattern::new(pattern).unwrap(), names),
                expected,
                "{folder} {pattern}"
            );
        }
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
}
