//! Registration of Vortex in a session: the format, `STORED AS VORTEX`, `SET vortex.…`, and functions.

use std::sync::Arc;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_common::Result;
use datafusion_session::TableFunction;
use vortex_core::io::BlockCache;

use crate::format::{EXTENSION, VortexFormatFactory};
use crate::functions::MetadataFunction;
use crate::optimizer::{has_rules, with_rules};
use crate::options::VortexOptions;
use crate::tables::VortexTableFactory;

/// Makes a session read and write Vortex files: tables `STORED AS VORTEX`, paths and folders in `FROM` and
/// `COPY … TO`, listing tables, `SET vortex.…`, and functions that show the structure of files
/// (`vortex_metadata`, `vortex_layouts`, `vortex_segments`, `vortex_zones`).
///
/// Registering again keeps the settings of the session. Statements that were prepared before are lost, since
/// DataFusion cannot add optimizer rules to a session that has them. Paths and URLs in `FROM` also need
/// [`enable_url_tables`](crate::enable_url_tables).
///
/// This adds two optimizer rules. A session that is built from this one loses them if the rules are replaced
/// (`with_physical_optimizer_rules` of [`SessionStateBuilder`]): its scans behave as in a session that is not
/// registered. Results are the same, unless DataFusion passes a filter to another column of the same name; but
/// fewer rows are skipped, and fewer orders and statistics are used.
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
    /// `with_table_options`, `with_table_functions`, `with_table_function_list`, and
    /// `with_physical_optimizer_rules`. Without both of its optimizer rules, scans behave as in a session that
    /// is not registered.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut state = replaced.with_table_functions(Default::default()).build();
        register_state(&mut state).unwrap();
        assert!(state.config_options().extensions.get::<VortexOptions>().is_some());
        assert!(state.get_file_format_factory(EXTENSION).is_some());
        assert!(state.table_functions().contains_key("vortex_metadata"));
    }
}
