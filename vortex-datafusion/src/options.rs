//! What can be set: `SET vortex.<name> = <value>` for a session, `OPTIONS (<name> '<value>')` for
//! a table.
//!
//! A table's options win over the session's. Unknown names are errors that list the known ones.

use std::any::Any;
use std::collections::HashMap;
use std::str::FromStr;

use datafusion_common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion_common::{Result, config_err};

/// How Vortex files are read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VortexOptions {
    /// Evaluate filters inside the scan. Off: filters only skip data, and run above the scan.
    pub predicate_pushdown: bool,
    /// Also take over filters that the encodings cannot answer, by evaluating them on decoded
    /// columns before the other columns are read.
    pub fallback_filter_eval: bool,
    /// Compute projected expressions inside the scan, reading single fields of structs.
    pub projection_pushdown: bool,
    /// Skip files and parts of files by statistics.
    pub prune: bool,
    /// Bytes to read from the end of a file when opening it; 0 chooses by storage.
    pub footer_read_size: u64,
    /// Strings and byte strings as Arrow views (`view`) or with offsets (`utf8`), where the
    /// schema of a table is inferred.
    pub string_type: StringType,
}

/// The Arrow type of inferred string columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

/// An option whose field has its name.
macro_rules! entry {
    ($name:ident, $description:literal) => {
        Entry {
            name: stringify!($name),
            description: $description,
            get: |options| options.$name.to_string(),
            set: |options, value| {
                options.$name = parse(stringify!($name), value)?;
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
];

impl VortexOptions {
    /// The options of a session: those set with `SET vortex.…`, or the defaults.
    pub fn from_session(config: &ConfigOptions) -> Self {
        config.extensions.get::<Self>().cloned().unwrap_or_default()
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

fn parse<T: FromStr>(name: &str, value: &str) -> Result<T> {
    match value.trim().to_ascii_lowercase().parse() {
        Ok(parsed) => Ok(parsed),
        Err(_) => config_err!("`{value}` is not a value of the Vortex option `{name}`"),
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
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "view" => Ok(StringType::View),
            "utf8" => Ok(StringType::Utf8),
            _ => Err(()),
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
            // In full, so that SHOW finds it.
            key: format!("{}.{}", Self::PREFIX, entry.name),
            value: Some((entry.get)(self)),
            description: entry.description,
        };
        ENTRIES.iter().map(entry).collect()
    }
}

/// The options of one table, checked but not yet joined with those of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableOptions(Vec<(String, String)>);

impl TableOptions {
    /// Options as SQL's `OPTIONS` gives them: `format.name` or `vortex.name`, lower-cased.
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
