//! Options: `SET vortex.<name> = <value>` for a session, `OPTIONS (<name> '<value>')` for a table or a
//! `COPY`.
//!
//! Options of a table take precedence over those of the session. Unknown names are errors that list the known
//! ones.

use std::any::Any;
use std::collections::HashMap;
use std::str::FromStr;

use datafusion_common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion_common::{DataFusionError, Result, config_err};
use vortex_core::write::WriteOptions;
use vortex_core::{Level, Release};

/// How Vortex files are read and written. Start from the defaults, and set what differs:
///
/// ```
/// use vortex_core::Level;
/// use vortex_datafusion::VortexOptions;
///
/// let mut options = VortexOptions::default();
/// options.level = Level::Compact;
/// options.checksums = true;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VortexOptions {
    /// Evaluate filters inside the scan.
    ///
    /// If off, filters only skip data, and are evaluated above the scan. On by default.
    pub predicate_pushdown: bool,
    /// Take over filters that encodings cannot answer, on decoded columns.
    ///
    /// These columns are read before the others. On by default.
    pub fallback_filter_eval: bool,
    /// Compute projected expressions inside the scan, reading single fields of structs.
    ///
    /// On by default.
    pub projection_pushdown: bool,
    /// Skip files and parts of files by statistics.
    ///
    /// On by default.
    pub prune: bool,
    /// Bytes to read from the end of a file when opening it; 0, the default, chooses by storage.
    pub footer_read_size: u64,
    /// Arrow type of inferred string columns: `view` or `utf8`.
    ///
    /// This applies to strings and byte strings. By default they are views unless files specify otherwise;
    /// with `utf8` they never are.
    pub string_type: StringType,
    /// Bytes of remote files kept in memory, for all tables of the session; 0, the default, keeps no more.
    ///
    /// The value used last applies; a lower value evicts data already kept, but 0 does not.
    ///
    /// This memory is not charged to the session's memory pool, just as DataFusion's own caches are not.
    /// Requires a session where Vortex is registered, or one with a
    /// [`BlockCache`](vortex_core::io::BlockCache) among the extensions of its configuration.
    pub segment_cache: u64,
    /// Bytes of the blocks that the segment cache keeps; 256 KiB by default.
    ///
    /// Blocks have at most 8 MiB and an eighth of the cache; reads fetch whole blocks.
    pub segment_cache_block_size: u64,
    /// With a segment cache: read remote files up to this size as a whole; 0 by default.
    ///
    /// They are read when they are opened.
    pub segment_cache_preload: u64,
    /// Repeat remote reads that take this many times as long as predicted; 0, the default, for never.
    ///
    /// The measured latency and bandwidth predict how long a read takes. The first answer is used. At most
    /// one read in 20 is repeated.
    pub hedge: u32,
    /// Check what is read against the checksums of files that have them.
    ///
    /// Opening such a file takes one more read. Off by default.
    pub verify_checksums: bool,
    /// Declare the order that statistics prove, besides recorded orders.
    ///
    /// Plans that group by the sorted column then hold little in memory, and need no sort for `ORDER BY`; but
    /// DataFusion also merges streams to preserve an order that no operator needs. Off by default.
    pub order_from_statistics: bool,
    /// Trade-off between write time and file size: `fast`, `default` or `compact`.
    ///
    /// [`Level::Default`] by default.
    pub level: Level,
    /// Oldest release that must read what is written: `default`, `newest`, or a number like `0.76`.
    ///
    /// The releases are those of the reference implementation. `None`, the default, leaves the choice to the
    /// writer: see [`WriteOptions::with_min_reader`].
    pub min_reader: Option<Release>,
    /// Write checksums of all parts of a file.
    ///
    /// Off by default.
    pub checksums: bool,
    /// Bytes that the writer of one file may hold in memory, roughly; 0, the default, for 64 MiB.
    pub write_memory: usize,
    /// Bytes after which a file in a folder is full; 0, the default, for no limit.
    ///
    /// Another file is started then.
    pub target_file_size: u64,
}

/// The Arrow type of inferred string columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StringType {
    /// `Utf8View` and `BinaryView`.
    #[default]
    View,
    /// `Utf8` and `Binary`.
    Utf8,
}

impl Default for VortexOptions {
    fn default() -> Self {
        Self {
            predicate_pushdown: true,
            fallback_filter_eval: true,
            projection_pushdown: true,
            prune: true,
            footer_read_size: 0,
            string_type: StringType::View,
            segment_cache: 0,
            segment_cache_block_size: 256 << 10,
            segment_cache_preload: 0,
            hedge: 0,
            verify_checksums: false,
            order_from_statistics: false,
            level: Level::Default,
            min_reader: None,
            checksums: false,
            write_memory: 0,
            target_file_size: 0,
        }
    }
}

/// One option: its name, what it does, and how it is read and written as text.
struct Entry {
    name: &'static str,
    description: &'static str,
    get: fn(&VortexOptions) -> String,
    set: fn(&mut VortexOptions, &str) -> Result<()>,
}

/// An option whose field has the same name.
macro_rules! entry {
    ($name:ident, $description:literal) => {
        Entry {
            name: stringify!($name),
            description: $description,
            get: |options| options.$name.to_string(),
            set: |options, value| {
                options.$name = parse(stringify!($name), $description, value)?;
                Ok(())
            },
        }
    };
}

const ENTRIES: &[Entry] = &[
    entry!(predicate_pushdown, "Evaluate filters inside the scan"),
    entry!(fallback_filter_eval, "Take over filters that encodings cannot answer, on decoded columns"),
    entry!(projection_pushdown, "Compute projected expressions inside the scan"),
    entry!(prune, "Skip files and parts of files by statistics"),
    entry!(footer_read_size, "Bytes to read from the end of a file when opening it; 0 chooses by storage"),
    entry!(string_type, "Arrow type of inferred string columns: view or utf8"),
    entry!(
        segment_cache,
        "Bytes of remote files kept in memory, for all tables of the session; 0 keeps no more"
    ),
    entry!(segment_cache_block_size, "Bytes of the blocks that the segment cache keeps"),
    entry!(segment_cache_preload, "With a segment cache: read remote files up to this size as a whole"),
    entry!(hedge, "Repeat remote reads that take this many times as long as predicted; 0 for never"),
    entry!(verify_checksums, "Check what is read against the checksums of files that have them"),
    entry!(order_from_statistics, "Declare the order that statistics prove, besides recorded orders"),
    entry!(level, "Trade-off between write time and file size: fast, default or compact"),
    Entry {
        name: "min_reader",
        description: "Oldest release of the reference implementation that must read what is written: \
                      default, newest, or a number like 0.76",
        get: |options| options.min_reader.map_or("default".to_owned(), |release| release.to_string()),
        set: |options, value| {
            options.min_reader = match value.trim().to_ascii_lowercase().as_str() {
                "default" => None,
                release => Some(parse("min_reader", "a number like 0.76", release)?),
            };
            Ok(())
        },
    },
    entry!(checksums, "Write checksums of all parts of a file"),
    entry!(write_memory, "Bytes that the writer of one file may hold in memory; 0 leaves it to the writer"),
    entry!(target_file_size, "Bytes after which a file in a folder is full; 0 for no limit"),
];

impl VortexOptions {
    /// The options of a session: those set with `SET vortex.…`, or the defaults.
    pub fn from_session(config: &ConfigOptions) -> Self {
        config.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// The options of the writer that correspond to these.
    pub fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::new().with_level(self.level).with_checksums(self.checksums);
        if let Some(release) = self.min_reader {
            options = options.with_min_reader(release);
        }
        if self.write_memory > 0 {
            options = options.with_memory_budget(self.write_memory);
        }
        options
    }

    /// All options by name, for [`from_map`](Self::from_map).
    #[cfg(feature = "proto")]
    pub(crate) fn to_map(&self) -> HashMap<String, String> {
        ENTRIES.iter().map(|entry| (entry.name.to_owned(), (entry.get)(self))).collect()
    }

    /// Options with the values in a map, and defaults for the others.
    #[cfg(feature = "proto")]
    pub(crate) fn from_map(map: &HashMap<String, String>) -> Result<Self> {
        let mut options = Self::default();
        map.iter().try_for_each(|(name, value)| options.set_by_name(name, value))?;
        Ok(options)
    }

    /// Sets an option by name.
    ///
    /// # Errors
    /// If there is no such option, or the value does not fit it.
    pub fn set_by_name(&mut self, name: &str, value: &str) -> Result<()> {
        match ENTRIES.iter().find(|entry| entry.name == name) {
            Some(entry) => (entry.set)(self, value),
            None => config_err!("unknown Vortex option `{name}`; there are: {}", names()),
        }
    }
}

fn names() -> String {
    ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
}

fn parse<T: FromStr>(name: &str, description: &str, value: &str) -> Result<T> {
    match value.trim().to_ascii_lowercase().parse() {
        Ok(parsed) => Ok(parsed),
        Err(_) => config_err!("`{value}` is not a value of the Vortex option `{name}` ({description})"),
    }
}

impl std::fmt::Display for StringType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StringType::View => "view",
            StringType::Utf8 => "utf8",
        })
    }
}

impl FromStr for StringType {
    type Err = DataFusionError;

    /// Reads `view` or `utf8`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "view" => Ok(StringType::View),
            "utf8" => Ok(StringType::Utf8),
            _ => config_err!("`{text}` is not a string type; write `view` or `utf8`"),
        }
    }
}

impl ConfigExtension for VortexOptions {
    const PREFIX: &'static str = "vortex";
}

impl ExtensionOptions for VortexOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        // Session settings come without the prefix, table options with it.
        self.set_by_name(key.strip_prefix("vortex.").unwrap_or(key), value)
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |entry: &Entry| ConfigEntry {
            // The full name, so that SHOW finds it.
            key: format!("{}.{}", Self::PREFIX, entry.name),
            value: Some((entry.get)(self)),
            description: entry.description,
        };
        ENTRIES.iter().map(entry).collect()
    }
}

/// The options of one table, checked but not yet combined with those of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableOptions(Vec<(String, String)>);

impl TableOptions {
    /// Options as specified by SQL's `OPTIONS`: `format.name` or `vortex.name`, in lower case.
    ///
    /// # Errors
    /// If a name or value is unknown.
    pub(crate) fn try_new(options: &HashMap<String, String>) -> Result<Self> {
        let mut checked = VortexOptions::default();
        let mut own = Vec::new();
        for (key, value) in options {
            let name = match key.strip_prefix("format.").or_else(|| key.strip_prefix("vortex.")) {
                Some("compression") if value.eq_ignore_ascii_case("uncompressed") => continue,
                Some(name) => name,
                // Keys of another namespace configure the store or the engine.
                None if key.contains('.') => continue,
                None => key,
            };
            checked.set_by_name(name, value)?;
            own.push((name.to_owned(), value.clone()));
        }
        own.sort();
        Ok(Self(own))
    }

    /// The options in effect: a session's, overridden by the table's.
    pub(crate) fn over(&self, session: VortexOptions) -> Result<VortexOptions> {
        let mut options = session;
        self.0.iter().try_for_each(|(name, value)| options.set_by_name(name, value))?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(options: &[(&str, &str)]) -> Result<TableOptions> {
        TableOptions::try_new(&options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        let error = table(&[("format.predicate_pushdwn", "true")]).unwrap_err().to_string();
        assert!(error.contains("`predicate_pushdwn`") && error.contains("predicate_pushdown"), "{error}");
        let error = VortexOptions::default().set("prune", "perhaps").unwrap_err().to_string();
        assert!(error.contains("perhaps") && error.contains("`prune`"), "{error}");
    }

    #[test]
    fn a_table_overrides_its_session() {
        let mut session = VortexOptions::default();
        session.set("prune", "false").unwrap();
        session.set("string_type", "utf8").unwrap();
        let both = table(&[("format.prune", "true"), ("vortex.footer_read_size", "4096")])
            .unwrap()
            .over(session.clone())
            .unwrap();
        let expected = VortexOptions { prune: true, footer_read_size: 4096, ..session };
        assert_eq!(both, expected);
    }

    #[test]
    fn options_of_other_namespaces_are_not_ours() {
        assert_eq!(
            table(&[("aws.region", "x"), ("format.compression", "uncompressed")]).unwrap(),
            table(&[]).unwrap()
        );
        assert!(table(&[("format.compression", "gzip")]).is_err());
    }

    #[test]
    fn every_option_is_listed_with_its_default() {
        let entries = VortexOptions::default().entries();
        let mut copy = VortexOptions { prune: false, ..VortexOptions::default() };
        for entry in &entries {
            copy.set(&entry.key, entry.value.as_deref().unwrap()).unwrap();
        }
        assert_eq!(copy, VortexOptions::default());
        assert!(entries.iter().all(|entry| !entry.description.is_empty()));
    }
}
