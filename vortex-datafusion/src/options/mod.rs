//! Options: `SET vortex.<name> = <value>` for a session, `OPTIONS (<name> '<value>')` for a table or a
//! `COPY`.
//!
//! Options of a table take precedence over those of the session. Unknown names are errors that list the known
//! ones. Sizes may have units: `'64 MiB'` or `64m` are the same as `67108864`. The value `default` is the default of
//! each option, whatever the session has set.

pub(crate) mod column_levels;
mod size;
mod table;
pub(crate) mod user_metadata;

use std::any::Any;
use std::str::FromStr;

use arrow::datatypes::Schema;
use datafusion_common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion_common::{DataFusionError, Result, config_datafusion_err, config_err};
use vortex_core::write::WriteOptions;
use vortex_core::{Level, Release};

pub use self::column_levels::column_path;
pub use self::size::parse_size;
pub(crate) use self::table::TableOptions;

/// The word that stands for the default of any option.
const DEFAULT: &str = "default";

/// Declares the options, each with its default. The first line of its documentation describes an option in
/// SQL, too.
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct VortexOptions {$(
            #[doc = $description:literal]
            $(#[doc = $details:literal])*
            pub $name:ident: $type:ty = $default:expr,
        )*}
    ) => {
        $(#[$meta])*
        pub struct VortexOptions {$(
            #[doc = $description]
            $(#[doc = $details])*
            pub $name: $type,
        )*}

        impl Default for VortexOptions {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        const ENTRIES: &[Entry] = &[$(
            Entry {
                name: stringify!($name),
                documentation: $description,
                get: |options| options.$name.text(),
                set: |options, text| {
                    let is_default = text.eq_ignore_ascii_case(DEFAULT);
                    options.$name = if is_default { $default } else { Setting::of(text)? };
                    Some(())
                },
            },
        )*];
    };
}

options! {
    /// How Vortex files are read and written. Start from the defaults, or from those of a session, and set what
    /// differs. The configuration of a session holds its options; [`register`](crate::register) and
    /// [`with_vortex`](crate::VortexSessionExt::with_vortex) add the defaults only if there are none:
    ///
    /// ```
    /// use datafusion::prelude::{SessionConfig, SessionContext};
    /// use vortex_core::Level;
    /// use vortex_datafusion::VortexOptions;
    ///
    /// # fn main() -> datafusion::common::Result<()> {
    /// let options = VortexOptions::default().with(|options| {
    ///     options.level = Level::Compact;
    ///     options.checksums = true;
    /// });
    /// let config = SessionConfig::new().with_option_extension(options);
    /// let context = SessionContext::new_with_config(config);
    /// vortex_datafusion::register(&context)?;
    /// # let of_session = VortexOptions::from_session(context.copied_config().options());
    /// # assert!(of_session.checksums);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Options can come from several places. Each of these wins over those below it:
    ///
    /// | place | what it sets |
    /// |---|---|
    /// | [`VortexSource::with_options`](crate::VortexSource::with_options), options of a [`VortexSink`](crate::VortexSink) | all options of this scan or of what is written, but no types of columns, which the table has already |
    /// | `OPTIONS (...)` of a table or a `COPY` in SQL | the options that it names |
    /// | [`VortexReadOptions::with_options`](crate::VortexReadOptions::with_options) | all options of the table except those of the segment cache |
    /// | `with_options` of [`VortexFormat`](crate::VortexFormat), [`VortexFormatFactory`](crate::VortexFormatFactory) or [`VortexTable`](crate::VortexTable); options of [`write_vortex`](crate::VortexDataFrameExt::write_vortex) | all options of the table or of what is written |
    /// | `SET vortex.<name> = <value>`, the configuration of the session | the options of the session |
    /// | [`VortexOptions::default`] | all options, if the session has none |
    #[derive(Debug, Clone, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct VortexOptions {
        /// Evaluate filters inside the scan.
        ///
        /// If off, filters only skip data, and are evaluated above the scan. On by default.
        pub predicate_pushdown: bool = true,
        /// Take over filters that encodings cannot answer, on decoded columns.
        ///
        /// These columns are read before the others. On by default.
        pub fallback_filter_eval: bool = true,
        /// Compute projected expressions inside the scan, reading single fields of structs.
        ///
        /// On by default.
        pub projection_pushdown: bool = true,
        /// Compute aggregations without groups inside the scan, and find groups by codes.
        ///
        /// Counts, sums, averages and extremes that statistics of files and zones state need not be read then. Groups
        /// are found by the codes of dictionaries and by small integers, if there are few. On by default.
        pub aggregate_pushdown: bool = true,
        /// Skip files and parts of files by statistics.
        ///
        /// On by default.
        pub prune: bool = true,
        /// Bytes to read from the end of a file when opening it; 0, the default, chooses by storage.
        pub footer_read_size: u64 = 0,
        /// Arrow type of inferred string columns: view, stored or utf8.
        ///
        /// This applies to strings and byte strings. By default columns are views, on which DataFusion works
        /// fastest, like those of Parquet files; with `stored` they have the types that they were written
        /// from, or are views if a file does not state them; with `utf8` neither they nor nested strings are
        /// views.
        pub string_type: StringType = StringType::View,
        /// Bytes of remote files kept in memory, for all tables of the session; 0, the default, adds none.
        ///
        /// There is one cache per session, and only the session's options decide its size: a lower value evicts what is
        /// kept beyond it, and 0 everything, when the next query of Vortex files is planned. Options of a table or a
        /// scan decide whether that one uses the cache, which it does not if they say 0; that is all that a table's
        /// `OPTIONS` in SQL may say. If the session has no cache, none is used, whatever they say.
        ///
        /// This memory is not charged to the session's memory pool, just as DataFusion's own caches are not.
        /// Requires a session where Vortex is registered, or one with a
        /// [`BlockCache`](vortex_core::io::BlockCache) among the extensions of its configuration, which keeps the size
        /// that it was given if Vortex is not registered.
        pub segment_cache: u64 = 0,
        /// Bytes of the blocks that the segment cache keeps; 256 KiB by default.
        ///
        /// Blocks have at most 8 MiB and an eighth of the cache; reads fetch whole blocks. What has been kept in
        /// blocks of another size is not found.
        pub segment_cache_block_size: u64 = 256 << 10,
        /// With a segment cache: read remote files up to this size as a whole; 0 by default.
        ///
        /// They are read when they are opened.
        pub segment_cache_preload: u64 = 0,
        /// Repeat remote reads that take this many times as long as predicted; 4 by default, 0 for never.
        ///
        /// The measured latency and bandwidth predict how long a read takes. The first answer is used. At most one read
        /// in 20 is repeated, and none that takes less than 100 ms.
        pub hedge: u32 = 4,
        /// Check what is read against the checksums of files that have them.
        ///
        /// Off by default.
        pub verify_checksums: bool = false,
        /// Declare the order that statistics prove, besides recorded orders.
        ///
        /// Plans that group by the sorted column then hold little in memory, and need no sort for `ORDER BY`;
        /// but DataFusion also merges streams to preserve an order that no operator needs. Off by default.
        ///
        /// Listing tables that are created without SQL, with a cache for statistics (`with_cache`), keep the orders
        /// of their first scan.
        pub order_from_statistics: bool = false,
        /// Trade-off between file size and decoding time: fast, default or compact.
        ///
        /// [`Level::Default`] by default.
        pub level: Level = Level::Default,
        /// Oldest reference release that must read what is written: default, newest, or a number from 0.36.
        ///
        /// The releases are those of the reference implementation; one later than the newest known release
        /// becomes that one. `None`, the default, leaves the choice to the writer: see
        /// [`WriteOptions::with_min_reader`].
        pub min_reader: Option<Release> = None,
        /// Write checksums of all parts of a file but the postscript.
        ///
        /// Off by default.
        pub checksums: bool = false,
        /// Columns that get Bloom filters, like `id, address.zip`, to look up single values; none by default.
        ///
        /// Files without such a column are not written. If no column has exactly this name, case is ignored. See
        /// [`WriteOptions::with_bloom_filter`].
        pub bloom_filters: String = String::new(),
        /// Bytes that the writer of one file may hold in memory, roughly; 0, the default, for 64 MiB.
        pub write_memory: u64 = 0,
        /// Bytes after which a file in a folder is full; 0, the default, for no limit.
        ///
        /// Another file is started then. Full files appear while the statement runs. They are removed if it fails,
        /// but not if the process is killed.
        pub target_file_size: u64 = 0,
    }
}

/// The Arrow type of inferred string columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StringType {
    /// `Utf8View` and `BinaryView`. Nested strings are as with [`Stored`](Self::Stored).
    #[default]
    View,
    /// The types that files were written from; views, except as keys of maps, if a file does not state them.
    Stored,
    /// `Utf8` and `Binary`.
    Utf8,
}

/// One option: its name, what it does, and how it is read and written as text.
struct Entry {
    name: &'static str,
    documentation: &'static str,
    get: fn(&VortexOptions) -> String,
    set: fn(&mut VortexOptions, &str) -> Option<()>,
}

impl Entry {
    /// The description, in the form of other options of the session: without a final dot.
    fn description(&self) -> &'static str {
        self.documentation.trim().trim_end_matches('.')
    }
}

/// A value that SQL reads and shows as text.
trait Setting: Sized {
    /// The value that a text stands for, if any.
    fn of(text: &str) -> Option<Self>;

    /// The text for this value.
    fn text(&self) -> String;
}

macro_rules! settings {
    ($read:expr, for $($type:ty),*) => {$(
        impl Setting for $type {
            fn of(text: &str) -> Option<Self> {
                $read(text)
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

settings!(|text: &str| text.to_ascii_lowercase().parse().ok(), for u32, Level, StringType);
settings!(|text: &str| switched(&text.to_ascii_lowercase()), for bool);
// Names, whose case matters.
settings!(|text: &str| Some(text.to_owned()), for String);
// Sizes in bytes.
settings!(|text| parse_size(text).ok(), for u64);

/// Whether something is on, in the words of SQL.
fn switched(text: &str) -> Option<bool> {
    match text {
        "true" | "on" | "1" => Some(true),
        "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

impl Setting for Option<Release> {
    fn of(text: &str) -> Option<Self> {
        text.to_ascii_lowercase().parse().ok().map(Some)
    }

    fn text(&self) -> String {
        self.map_or(DEFAULT.to_owned(), |release| release.to_string())
    }
}

impl VortexOptions {
    /// The options of a session: those set with `SET vortex.…`, or the defaults.
    pub fn from_session(config: &ConfigOptions) -> Self {
        config.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// These options after a change, in one expression:
    ///
    /// ```
    /// # use vortex_datafusion::VortexOptions;
    /// let options = VortexOptions::default().with(|options| options.prune = false);
    /// assert!(!options.prune);
    /// ```
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The options of the writer of a file with these columns that correspond to these.
    ///
    /// # Errors
    /// If it lacks a column that should get a [Bloom filter](Self::bloom_filters).
    pub fn write_options_for(&self, schema: &Schema) -> Result<WriteOptions> {
        let names = self.bloom_filters.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.into_iter().try_fold(self.write_options(), |options, name| {
            let path = column_path(schema, name).map_err(|found| {
                config_datafusion_err!("bloom_filters: the files that are written have {found}")
            })?;
            Ok(options.with_bloom_filter(path))
        })
    }

    /// The options of the writer that correspond to these, without those of single columns: see
    /// [`write_options_for`](Self::write_options_for).
    pub fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::new().with_level(self.level).with_checksums(self.checksums);
        if let Some(release) = self.min_reader {
            options = options.with_min_reader(release);
        }
        if self.write_memory > 0 {
            options = options.with_memory_budget(usize::try_from(self.write_memory).unwrap_or(usize::MAX));
        }
        options
    }

    /// The name and the value of each option, as [`set_by_name`](Self::set_by_name) takes them.
    pub(crate) fn texts(&self) -> Vec<(&'static str, String)> {
        ENTRIES.iter().map(|entry| (entry.name, (entry.get)(self))).collect()
    }

    /// Sets an option by name; the value `default` restores its default.
    ///
    /// # Errors
    /// If there is no such option, or the value does not fit it.
    pub fn set_by_name(&mut self, name: &str, value: &str) -> Result<()> {
        let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else {
            if [column_levels::PREFIX, user_metadata::PREFIX].iter().any(|prefix| name.starts_with(prefix)) {
                return config_err!(
                    "`{name}` is an option of a table or a COPY: OPTIONS ('{name}' '{value}')"
                );
            }
            return config_err!("unknown Vortex option `{name}`; there are: {}", names());
        };
        match (entry.set)(self, value.trim()) {
            Some(()) => Ok(()),
            None => {
                let description = entry.description();
                config_err!("`{value}` is not a value of the Vortex option `{name}` ({description})")
            }
        }
    }
}

fn names() -> String {
    ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
}

impl std::fmt::Display for StringType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StringType::View => "view",
            StringType::Stored => "stored",
            StringType::Utf8 => "utf8",
        })
    }
}

impl FromStr for StringType {
    type Err = DataFusionError;

    /// Reads `view`, `stored` or `utf8`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "view" => Ok(StringType::View),
            "stored" => Ok(StringType::Stored),
            "utf8" => Ok(StringType::Utf8),
            _ => config_err!("`{text}` is not a string type; write `view`, `stored` or `utf8`"),
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
            description: entry.description(),
        };
        ENTRIES.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_may_be_called_true_or_one() {
        let mut options = VortexOptions::default();
        for (text, on) in
            [("off", false), ("ON", true), ("0", false), ("1", true), ("False", false), ("true", true)]
        {
            options.set("prune", text).unwrap();
            assert_eq!(options.prune, on, "{text}");
        }
    }

    #[test]
    fn releases_that_no_file_can_be_written_for_are_refused() {
        let mut options = VortexOptions::default();
        for release in ["0.2", "0.35", "yesterday"] {
            let error = options.set("min_reader", release).unwrap_err().to_string();
            assert!(error.contains(release) && error.contains(&Release::OLDEST.to_string()), "{error}");
        }
        assert_eq!(options.min_reader, None);
        options.set("min_reader", "0.36").unwrap();
        assert_eq!(options.min_reader, Some(Release::OLDEST));
        options.set("min_reader", "99.1").unwrap();
        assert_eq!(options.min_reader, Some(Release::NEWEST));
    }

    #[test]
    fn every_option_takes_the_word_for_its_default() {
        let mut options = changed();
        for entry in ENTRIES {
            options.set(entry.name, "Default").unwrap();
        }
        assert_eq!(options, VortexOptions::default());
    }

    #[test]
    fn sizes_may_have_units() {
        let mut options = VortexOptions::default();
        options.set("write_memory", "256 MiB").unwrap();
        options.set("segment_cache", "1G").unwrap();
        assert_eq!((options.write_memory, options.segment_cache), (256 << 20, 1 << 30));
        let error = options.set("write_memory", "much").unwrap_err().to_string();
        assert!(error.contains("much") && error.contains("Bytes"), "{error}");
    }

    /// An option of each type that differs from its default.
    fn changed() -> VortexOptions {
        VortexOptions {
            prune: false,
            string_type: StringType::Utf8,
            level: Level::Compact,
            min_reader: Some(Release::OLDEST),
            bloom_filters: "id, address.zip".to_owned(),
            hedge: 7,
            write_memory: 1 << 20,
            segment_cache_block_size: 1 << 20,
            ..VortexOptions::default()
        }
    }

    #[test]
    fn every_option_is_listed_with_its_default() {
        let (defaults, others) = (VortexOptions::default(), changed());
        for (options, mut copy) in [(&defaults, others.clone()), (&others, defaults.clone())] {
            for entry in options.entries() {
                copy.set(&entry.key, entry.value.as_deref().unwrap()).unwrap();
                assert!(!entry.description.is_empty());
            }
            assert_eq!(copy, *options);
        }
    }
}
