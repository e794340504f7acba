//! Registration of Vortex in a session: the format, `STORED AS VORTEX`, `SET vortex.…`, and optimizer rules.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_common::Result;
use datafusion_expr::registry::FunctionRegistry as _;
use vortex_core::io::BlockCache;

use crate::format::{EXTENSION, VortexFormatFactory};
use crate::optimizer::{has_rules, with_rules};
use crate::options::VortexOptions;
use crate::tables::VortexTableFactory;

/// Makes an existing session read and write Vortex files. A new session is better built with
/// [`with_vortex`](VortexSessionExt::with_vortex), which loses nothing.
///
/// It adds:
///
/// - the file format, for tables `STORED AS VORTEX`, `COPY … TO` and listing tables; it replaces any other format of
///   the extension `.vortex`,
/// - settings, `SET vortex.…`; if the session has them already, they keep their values,
/// - five optimizer rules: the first and the last of the physical ones, and three in their places between them, see
///   [`optimizer_rules`](crate::optimizer_rules),
/// - a cache that scans share, which is empty until `vortex.segment_cache` provides space.
///
/// DataFusion cannot add optimizer rules to an existing session. One that lacks them is therefore rebuilt in place, and
/// **statements that were prepared before are lost**. Its id, tables, functions, settings and other rules stay.
///
/// Three settings of a service are extensions of the configuration of its sessions, which no SQL changes:
///
/// - [`Limits`](vortex_core::Limits) on what a file may demand of its reader, to be lowered for files of unknown
///   origin;
/// - the [`Registry`](vortex_core::Registry) of the encodings and layouts that files may have, to add some;
/// - the [`Scheduler`](vortex_core::io::Scheduler) that issues reads: how many bytes may be in flight or wait to be
///   decoded, and how long a read may deliver nothing, unless it fetches single rows of files that are not remote. By
///   default, sessions share that of the process.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// use datafusion::prelude::{SessionConfig, SessionContext};
/// use vortex_core::Limits;
/// use vortex_core::io::Scheduler;
///
/// # fn main() -> datafusion::common::Result<()> {
/// let limits = Limits::new().with_max_columns(1000).with_max_decoded_bytes(64 << 20);
/// let scheduler = Scheduler::with_stall(64 << 20, Duration::from_secs(10));
/// let config = SessionConfig::new().with_extension(Arc::new(limits)).with_extension(scheduler);
/// let context = SessionContext::new_with_config(config);
/// vortex_datafusion::register(&context)
/// # }
/// ```
///
/// Paths and URLs in `FROM`, and functions that show the structure of files, also need
/// [`enable_url_tables`](crate::enable_url_tables), since they let every `SELECT` open any file.
///
/// # Without the rules
/// A session has no optimizer rules of this crate if it is not registered, if it is built from one that is, but with
/// other rules (`with_physical_optimizer_rules` of [`SessionStateBuilder`]), or if it is no [`SessionState`].
/// DataFusion 55 can then return wrong rows, in these cases:
///
/// - A filter above a join, or the `HAVING` of grouping sets, is passed to another column of the same name:
///   `SELECT c.k FROM n RIGHT JOIN c ON n.k = c.k WHERE n.k IS NULL`.
/// - A filter that rounds stays above the scan, and rows are sorted by the column, which is taken for constant:
///   `SELECT a FROM (SELECT a FROM t LIMIT 50) WHERE a / 10 = 6 ORDER BY a`.
/// - A column of which a filter leaves one value is taken for constant above `ROLLUP`, `CUBE`, grouping sets and outer
///   joins, which also make it null: `SELECT k, count(*) FROM t WHERE k = 1 GROUP BY ROLLUP (k) ORDER BY k`.
/// - Branches of a union are sorted by a constant that differs between them, and limited:
///   `SELECT a FROM (SELECT a, 1 AS k FROM t UNION ALL SELECT a, 0 FROM u) ORDER BY k, a LIMIT 3`.
/// - Windows over several partitions are limited without an order:
///   `SELECT a, sum(a) OVER (PARTITION BY p ORDER BY a ROWS UNBOUNDED PRECEDING) FROM t LIMIT 5`.
/// - Windows, joins or an `OFFSET` are sorted by an order in which they get their rows, such as that of other windows,
///   and limited: `SELECT p, a, sum(a) OVER (PARTITION BY p ORDER BY a), count(*) OVER () FROM t ORDER BY p, a
///   LIMIT 3`.
/// - Windows with partition keys that look at later rows are sorted by these keys, and limited:
///   `SELECT a, v, sum(v) OVER (PARTITION BY a) FROM t ORDER BY a LIMIT 2`.
/// - Windows over groups are sorted by the key of the groups, and limited:
///   `SELECT k, count(*) OVER () FROM t GROUP BY k ORDER BY k LIMIT 2`.
///
/// Other queries are only slower: scans use no dynamic filters, all aggregations but `count(*)` read their columns,
/// groups are not found by codes, and orders of files are not used, whether they are recorded or declared
/// (`WITH ORDER`).
///
/// # Errors
/// If the session refuses the format.
pub fn register(context: &SessionContext) -> Result<()> {
    register_state(&mut context.state_ref().write())
}

fn register_state(state: &mut SessionState) -> Result<()> {
    if !has_rules(state) {
        let before = state.clone();
        let creates_catalog = before.config_options().catalog.create_default_catalog_and_schema;
        let builder = SessionStateBuilder::new_from_existing(before.clone());
        *state = with_rules(builder.with_session_id(before.session_id().to_owned())).build();
        keep_functions(state, &before)?;
        // The builder turns this off to keep the catalog that exists; copies of the configuration need it.
        state.config_mut().options_mut().catalog.create_default_catalog_and_schema = creates_catalog;
    }
    state.register_file_format(Arc::new(VortexFormatFactory::new()), true)?;
    state.table_factories_mut().insert(EXTENSION.to_uppercase(), Arc::new(VortexTableFactory));
    state.register_table_options_extension(VortexOptions::default());
    add_options(state.config_mut());
    Ok(())
}

/// Gives names back to the functions that had them before. DataFusion 55 builds a state by registering all functions in
/// the order of a hash map, each for its aliases as well: a function that the application has named like the alias of
/// another one, such as `length` or `trim`, may then be replaced by that one. See `tests/it/upstream/files.rs`:
/// `sessions_that_are_built_anew_lose_functions_named_like_aliases`.
fn keep_functions(state: &mut SessionState, before: &SessionState) -> Result<()> {
    keep(state, before, SessionState::scalar_functions, |state, it| state.register_udf(it).map(drop))?;
    keep(state, before, SessionState::aggregate_functions, |state, it| state.register_udaf(it).map(drop))?;
    keep(state, before, SessionState::window_functions, |state, it| state.register_udwf(it).map(drop))?;
    keep(state, before, SessionState::higher_order_functions, |state, it| {
        state.register_higher_order_function(it).map(drop)
    })
}

fn keep<F: ?Sized>(
    state: &mut SessionState,
    before: &SessionState,
    functions: fn(&SessionState) -> &HashMap<String, Arc<F>>,
    register: fn(&mut SessionState, Arc<F>) -> Result<()>,
) -> Result<()> {
    let wanted = functions(before);
    // A function that is registered again may replace others in turn, which come next.
    for _ in 0..wanted.len() {
        let known = functions(state);
        let is_lost = |(name, function): &(&String, &Arc<F>)| {
            !known.get(*name).is_some_and(|known| Arc::ptr_eq(known, function))
        };
        let lost: Vec<Arc<F>> =
            wanted.iter().filter(is_lost).map(|(_, function)| Arc::clone(function)).collect();
        if lost.is_empty() {
            break;
        }
        lost.into_iter().try_for_each(|function| register(state, function))?;
    }
    Ok(())
}

/// Adds what scans of a session share: settings, and a cache that is empty until the settings provide space
/// for it.
fn add_options(config: &mut SessionConfig) {
    if config.get_extension::<BlockCache>().is_none() {
        config.set_extension(BlockCache::new(0));
    }
    let extensions = &mut config.options_mut().extensions;
    if extensions.get::<VortexOptions>().is_none() {
        extensions.insert(VortexOptions::default());
    }
}

/// [`register`] for sessions that are still being built.
pub trait VortexSessionExt {
    /// Makes the session read and write Vortex files, as [`register`] does. Call it last: several setters
    /// replace what it adds, namely `with_config`, `with_file_formats`, `with_table_factories`,
    /// `with_table_options` and `with_physical_optimizer_rules`; see [`register`](register#without-the-rules).
    #[must_use]
    fn with_vortex(self) -> Self;
}

impl VortexSessionExt for SessionStateBuilder {
    fn with_vortex(mut self) -> Self {
        let formats = self.file_formats().get_or_insert_default();
        // Of several formats with the same extension, the builder registers the first.
        formats.retain(|format| !format.get_ext().eq_ignore_ascii_case(EXTENSION));
        formats.push(Arc::new(VortexFormatFactory::new()));
        let tables = self.table_factories().get_or_insert_default();
        tables.insert(EXTENSION.to_uppercase(), Arc::new(VortexTableFactory));
        self.table_options().get_or_insert_default().extensions.insert(VortexOptions::default());
        add_options(self.config().get_or_insert_default());
        with_rules(self)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use datafusion::execution::context::SQLOptions;
    use datafusion_common::ScalarValue;
    use datafusion_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

    use super::*;

    #[test]
    fn the_documents_say_the_same_about_sessions_without_the_rules() {
        let said = |text: &str| {
            let (_, rest) = text.split_once("in these cases:").unwrap();
            let (said, _) = rest.split_once("(`WITH ORDER`)").unwrap();
            said.split_whitespace().filter(|word| *word != "///").collect::<Vec<_>>().join(" ")
        };
        assert_eq!(said(include_str!("../../docs/datafusion.md")), said(include_str!("register.rs")));
    }

    fn format_of(state: &SessionState) -> String {
        format!("{:?}", state.get_file_format_factory(EXTENSION))
    }

    #[test]
    fn a_builder_and_a_session_replace_another_format_of_the_same_extension() {
        let other = || Arc::new(VortexFormatFactory::new().with_options(VortexOptions::default()));
        let builder = || SessionStateBuilder::new().with_file_formats(vec![other() as _]);
        let ours = format!("{:?}", Some(VortexFormatFactory::new()));
        let mut state = builder().build();
        assert_ne!(format_of(&state), ours);
        register_state(&mut state).unwrap();
        assert_eq!(format_of(&state), ours);
        assert_eq!(format_of(&builder().with_vortex().build()), ours);
    }

    #[test]
    fn registering_again_adds_what_setters_of_a_builder_have_replaced() {
        let builder = SessionStateBuilder::new().with_vortex();
        let replaced = builder.with_config(SessionConfig::new()).with_file_formats(Vec::new());
        let mut state = replaced.build();
        register_state(&mut state).unwrap();
        assert!(state.config_options().extensions.get::<VortexOptions>().is_some());
        assert!(state.get_file_format_factory(EXTENSION).is_some());
    }

    /// A function of no arguments.
    fn function(name: &str) -> Arc<ScalarUDF> {
        let one = |_: &[ColumnarValue]| Ok(ColumnarValue::from(ScalarValue::from(1)));
        Arc::new(create_udf(name, Vec::new(), DataType::Int32, Volatility::Immutable, Arc::new(one)))
    }

    #[test]
    fn functions_that_are_named_like_aliases_of_others_are_kept() {
        // The order in which DataFusion registers functions is random.
        for _ in 0..20 {
            let context = SessionContext::new();
            let named = function("length");
            let aliased = Arc::new(function("shorten").as_ref().clone().with_aliases(["trim"]));
            context.register_udf(named.as_ref().clone());
            context.register_udf(aliased.as_ref().clone());
            let names = |context: &SessionContext| context.state().scalar_functions().clone();
            let before = names(&context);
            register(&context).unwrap();
            let after = names(&context);
            let is_kept = |name: &&String| Arc::ptr_eq(&before[*name], &after[*name]);
            assert_eq!(before.keys().filter(is_kept).count(), before.len());
            assert_eq!(after["length"].name(), "length");
            assert_eq!(after["trim"].name(), "shorten");
        }
    }

    #[tokio::test]
    async fn only_sessions_that_accept_places_open_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
        let select = format!("SELECT count(*) FROM '{path}'");
        let opens = |context: &SessionContext| {
            let is_ours = |name: &String| name.starts_with("vortex_");
            context.state().table_functions().keys().filter(|name| is_ours(name)).count()
        };
        let built = SessionStateBuilder::new().with_default_features().with_vortex().build();
        let registered = SessionContext::new();
        register(&registered).unwrap();
        for context in [registered, SessionContext::new_with_state(built)] {
            assert_eq!(opens(&context), 0);
            assert!(context.sql(&select).await.is_err());
            let strict = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false);
            for sql in [
                format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{path}'"),
                "COPY (SELECT 1 AS a) TO '/nowhere/a.vortex'".to_owned(),
            ] {
                assert!(context.sql_with_options(&sql, strict).await.is_err(), "{sql}");
            }
            crate::enable_url_tables(&context);
            assert_eq!(opens(&context), 4);
            assert!(context.sql(&select).await.is_ok());
        }
    }
}
