//! Registration of Vortex in a session: the format, `STORED AS VORTEX`, `SET vortex.…`, and functions.

use std::sync::Arc;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_common::Result;
use datafusion_session::TableFunction;
use vortex_core::io::BlockCache;

use crate::format::{EXTENSION, VortexFormatFactory};
use crate::functions::MetadataFunction;
use crate::options::VortexOptions;
use crate::table_factory::VortexTableFactory;
use crate::tell_scans::TellScans;
use crate::withhold_orders::WithholdOrders;

/// Makes a session read and write Vortex files: tables `STORED AS VORTEX`, paths and folders in `FROM` and
/// `COPY … TO`, listing tables, `SET vortex.…`, and functions that show the structure of files
/// (`vortex_metadata`, `vortex_layouts`, `vortex_segments`, `vortex_zones`).
///
/// Registering again keeps the settings of the session. Statements that were prepared before are lost, since
/// DataFusion cannot add optimizer rules to a session that has them. Paths in `FROM` also need
/// [`SessionContext::enable_url_table`], or [`enable_url_tables`](crate::enable_url_tables) for globs
/// in URLs as well.
///
/// This adds two optimizer rules. A session that is built from this one loses them if the rules are replaced
/// (`with_physical_optimizer_rules` of [`SessionStateBuilder`]): its scans behave as in a session that is not
/// registered. Results are the same, but fewer rows are skipped, and fewer orders and statistics are used.
///
/// # Errors
/// If the session refuses the format.
pub fn register(context: &SessionContext) -> Result<()> {
    register_state(&mut context.state_ref().write())
}

fn register_state(state: &mut SessionState) -> Result<()> {
    if !has_rules(state) {
        let creates_catalog = state.config_options().catalog.create_default_catalog_and_schema;
        let builder = SessionStateBuilder::new_from_existing(state.clone());
        *state = with_rules(builder.with_session_id(state.session_id().to_owned())).build();
        // The builder turns this off to keep the catalog that exists; copies of the configuration need it.
        state.config_mut().options_mut().catalog.create_default_catalog_and_schema = creates_catalog;
    }
    state.register_file_format(Arc::new(VortexFormatFactory::new()), true)?;
    state.table_factories_mut().insert(EXTENSION.to_uppercase(), Arc::new(VortexTableFactory::default()));
    state.register_table_options_extension(VortexOptions::default());
    for (name, function) in MetadataFunction::all() {
        state.register_udtf(name, Arc::new(function));
    }
    add_options(state.config_mut());
    Ok(())
}

/// Whether the session has the optimizer rules of this crate: both, since `with_physical_optimizer_rules` of a
/// builder leaves one.
pub(crate) fn has_rules(state: &SessionState) -> bool {
    let has = |name| state.physical_optimizers().iter().any(|rule| rule.name() == name);
    has(TellScans::NAME) && has(WithholdOrders::NAME)
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
    /// Makes the session read and write Vortex files, as [`register`] does. Call it after
    /// `with_default_features`, `with_config` and `with_physical_optimizer_rules`, which replace what was
    /// registered before. Without both of its optimizer rules, scans behave as in a session that is not
    /// registered.
    #[must_use]
    fn with_vortex(self) -> Self;
}

impl VortexSessionExt for SessionStateBuilder {
    fn with_vortex(mut self) -> Self {
        let factory = Arc::new(VortexFormatFactory::new());
        self.file_formats().get_or_insert_default().push(factory);
        let tables = self.table_factories().get_or_insert_default();
        tables.insert(EXTENSION.to_uppercase(), Arc::new(VortexTableFactory::default()));
        self.table_options().get_or_insert_default().extensions.insert(VortexOptions::default());
        let functions = self.table_functions().get_or_insert_default();
        for (name, function) in MetadataFunction::all() {
            functions
                .insert(name.to_owned(), Arc::new(TableFunction::new(name.to_owned(), Arc::new(function))));
        }
        add_options(self.config().get_or_insert_default());
        with_rules(self)
    }
}

/// Adds the optimizer rules: one before all others, and one after them; each once, if called again.
fn with_rules(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let is_other = |rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>| {
        ![TellScans::NAME, WithholdOrders::NAME].contains(&rule.name())
    };
    let rules = &mut builder.physical_optimizers().get_or_insert_default().rules;
    rules.retain(is_other);
    rules.insert(0, Arc::new(WithholdOrders));
    let added = builder.physical_optimizer_rules().get_or_insert_default();
    added.retain(is_other);
    added.push(Arc::new(TellScans));
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registering_again_adds_no_rule_twice() {
        let twice = SessionStateBuilder::new().with_default_features().with_vortex().with_vortex();
        let context = SessionContext::new_with_state(twice.build());
        register(&context).unwrap();
        let state = context.state();
        assert!(has_rules(&state));
        let names: Vec<_> = state.physical_optimizers().iter().map(|rule| rule.name()).collect();
        assert_eq!((names.first(), names.last()), (Some(&WithholdOrders::NAME), Some(&TellScans::NAME)));
        let ours = |name: &&&str| [TellScans::NAME, WithholdOrders::NAME].contains(*name);
        assert_eq!(names.iter().filter(ours).count(), 2);
    }
}
