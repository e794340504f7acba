//! The options of one table or `COPY`, as `OPTIONS` states them.

use std::collections::{BTreeMap, HashMap};

use datafusion_common::config::Extensions;
use datafusion_common::{Result, config_err};
use vortex_core::Level;

use super::VortexOptions;
use super::column_levels::{self, level_of};
use super::user_metadata::{self, UserMetadata};

/// Namespaces of options that are not for the format: those of object stores, as the shells of DataFusion and of this
/// crate know them, and those of a `COPY` as a whole.
const OTHER_NAMESPACES: [&str; 6] = ["aws", "azure", "gcp", "google", "http", "execution"];

/// The options of one table, checked but not yet combined with those of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableOptions {
    own: Vec<(String, String)>,
    metadata: UserMetadata,
    levels: BTreeMap<String, Level>,
}

impl TableOptions {
    /// Options as specified by SQL's `OPTIONS`: `format.name` or `vortex.name`, in lower case, or `metadata::key` or
    /// `level::column` in place of the name. Those of other namespaces are left to whoever they are for: to a store, or
    /// to `extensions` of the session.
    ///
    /// # Errors
    /// If a name or value is unknown.
    pub(crate) fn try_new(options: &HashMap<String, String>, extensions: &Extensions) -> Result<Self> {
        let is_known = |namespace: &str| {
            OTHER_NAMESPACES.contains(&namespace) || extensions.iter().any(|(known, _)| known == namespace)
        };
        let mut checked = VortexOptions::default();
        let (mut own, mut metadata, mut levels) = (Vec::new(), UserMetadata::default(), BTreeMap::new());
        // Of an option that is given in several namespaces, always the same one counts.
        for (key, value) in BTreeMap::from_iter(options) {
            let of_format = key.strip_prefix("format.").or_else(|| key.strip_prefix("vortex."));
            // DataFusion puts no namespace in front of a name with dots.
            let name = of_format.unwrap_or(key);
            if let Some(key) = name.strip_prefix(user_metadata::PREFIX) {
                metadata.insert(key, value)?;
                continue;
            }
            if let Some(column) = name.strip_prefix(column_levels::PREFIX) {
                levels.insert(column.to_owned(), level_of(column, value)?);
                continue;
            }
            let name = match of_format {
                Some("compression") if value.eq_ignore_ascii_case("uncompressed") => continue,
                Some(name) => name,
                None => match key.split_once('.') {
                    Some((namespace, _)) if is_known(namespace) => continue,
                    _ => key,
                },
            };
            checked.set_by_name(name, value)?;
            if checked.segment_cache > 0 {
                return config_err!(
                    "tables share the segment cache of their session: SET vortex.{name} = '{value}' instead; a table \
                     may only do without it, by '0'"
                );
            }
            own.push((name.to_owned(), value.clone()));
        }
        own.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(Self { own, metadata, levels })
    }

    /// The options in effect: a session's, overridden by the table's.
    pub(crate) fn over(&self, session: VortexOptions) -> Result<VortexOptions> {
        let mut options = session;
        self.own.iter().try_for_each(|(name, value)| options.set_by_name(name, value))?;
        Ok(options)
    }

    /// What files that are written get.
    pub(crate) fn metadata(&self) -> &UserMetadata {
        &self.metadata
    }

    /// The levels of single columns of files that are written.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (&str, Level)> {
        self.levels.iter().map(|(column, level)| (column.as_str(), *level))
    }
}

#[cfg(test)]
mod tests {
    use datafusion_common::config::{ConfigExtension, ExtensionOptions as _};
    use datafusion_common::extensions_options;

    use super::*;

    fn table(options: &[(&str, &str)]) -> Result<TableOptions> {
        table_in(options, &Extensions::new())
    }

    fn table_in(options: &[(&str, &str)], extensions: &Extensions) -> Result<TableOptions> {
        let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        TableOptions::try_new(&options, extensions)
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        let error = table(&[("format.predicate_pushdwn", "true")]).unwrap_err().to_string();
        assert!(error.contains("`predicate_pushdwn`") && error.contains("predicate_pushdown"), "{error}");
        let error = VortexOptions::default().set("prune", "perhaps").unwrap_err().to_string();
        assert!(error.contains("perhaps") && error.contains("`prune`"), "{error}");
    }

    #[test]
    fn a_table_may_do_without_the_segment_cache_but_not_resize_it() {
        let error = table(&[("segment_cache", "1 MiB")]).unwrap_err().to_string();
        assert!(error.contains("SET vortex.segment_cache = '1 MiB'"), "{error}");
        let session = VortexOptions { segment_cache: 1 << 20, ..VortexOptions::default() };
        let without = table(&[("segment_cache", "0")]).unwrap();
        assert_eq!(without.over(session).unwrap().segment_cache, 0);
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
    fn the_word_for_the_default_overrides_the_session_too() {
        let session = VortexOptions { prune: false, ..VortexOptions::default() };
        assert!(table(&[("prune", "default")]).unwrap().over(session).unwrap().prune);
    }

    #[test]
    fn names_of_columns_and_keys_of_metadata_may_contain_dots() {
        let options = table(&[
            ("format.level::id", "Fast"),
            ("level::address.city", "compact"),
            ("vortex.level::a::b", "default"),
            ("metadata::a.b", "x"),
        ]);
        let options = options.unwrap();
        let levels = [("a::b", Level::Default), ("address.city", Level::Compact), ("id", Level::Fast)];
        assert_eq!(options.levels().collect::<Vec<_>>(), levels);
        assert_eq!(options.metadata().iter().collect::<Vec<_>>(), [("a.b", "x")]);
        let twice = [("level::id", "fast"), ("vortex.level::id", "compact"), ("format.level::id", "default")];
        assert_eq!(table(&twice).unwrap().levels().collect::<Vec<_>>(), [("id", Level::Compact)]);
        let error = table(&[("format.level::id", "quick")]).unwrap_err().to_string();
        assert!(error.contains("`quick` is not a value of the Vortex option `level::id`"), "{error}");
    }

    #[test]
    fn what_concerns_columns_of_files_is_no_option_of_a_session() {
        for name in ["level::id", "metadata::station"] {
            let error = VortexOptions::default().set(name, "fast").unwrap_err().to_string();
            assert!(error.contains(&format!("a COPY: OPTIONS ('{name}' 'fast')")), "{error}");
        }
    }

    #[test]
    fn options_of_other_namespaces_are_not_ours() {
        let others = [
            ("aws.region", "x"),
            ("aws.oss.endpoint", "x"),
            ("azure.account_name", "x"),
            ("gcp.service_account_path", "x"),
            ("google.service_account", "x"),
            ("http.allow_http", "true"),
            ("execution.keep_partition_by_columns", "true"),
            ("format.compression", "uncompressed"),
        ];
        assert_eq!(table(&others).unwrap(), table(&[]).unwrap());
        assert!(table(&[("format.compression", "gzip")]).is_err());
    }

    #[test]
    fn a_namespace_that_nobody_knows_is_an_error() {
        for key in ["vortx.level", "orc.level", "formats.level", "executions.x"] {
            let error = table(&[(key, "fast")]).unwrap_err().to_string();
            assert!(error.contains(&format!("unknown Vortex option `{key}`")), "{error}");
        }
        // Applications may add others to a session.
        let mut extensions = Extensions::new();
        extensions.insert(OfApplication::default());
        assert_eq!(table_in(&[("ours.color", "red")], &extensions).unwrap(), table(&[]).unwrap());
    }

    extensions_options! {
        struct OfApplication {
            color: String, default = String::new()
        }
    }

    impl ConfigExtension for OfApplication {
        const PREFIX: &'static str = "ours";
    }
}
