//! The engines compared: each is a DataFusion session and the files that it reads.

use std::sync::Arc;

use clap::ValueEnum;
use datafusion::common::GetExt;
use datafusion::datasource::provider::DefaultTableFactory;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use reference_vortex_datafusion::VortexFormatFactory;

use crate::data::{Format, Level};

/// One of the engines compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Arrow batches in memory: the lower limit, without any storage.
    Memory,
    /// DataFusion's Parquet source with its default configuration.
    Parquet,
    /// As `Parquet`, with filters evaluated and reordered within the scan.
    ParquetPushdown,
    /// As `ParquetPushdown`, with Bloom filters of some columns.
    ParquetBloom,
    /// The reference plugin on its own files.
    Reference,
    /// This repository's plugin on the reference's files.
    Ours,
    /// This repository's plugin on its own files.
    OursNative,
    /// As `OursNative`, with files of the level `compact`.
    OursCompact,
    /// As `OursNative`, with Bloom filters of the columns of `ParquetBloom`.
    OursBloom,
    /// As `OursNative`, but late reads of a remote store are not repeated.
    OursUnhedged,
}

impl Engine {
    /// The name in reports and on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The files the engine reads; the memory engine loads its tables from them.
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Memory | Self::Parquet | Self::ParquetPushdown => Format::Parquet,
            Self::ParquetBloom => Format::ParquetBloom,
            Self::Reference | Self::Ours => Format::Reference,
            Self::OursNative | Self::OursUnhedged => Format::Ours(Level::Default),
            Self::OursCompact => Format::Ours(Level::Compact),
            Self::OursBloom => Format::OursBloom,
        }
    }

    /// A session with empty caches that can read and write the engine's files.
    pub(crate) fn session(self, target_partitions: usize) -> Result<SessionContext> {
        let mut config = SessionConfig::new().with_target_partitions(target_partitions);
        if matches!(self, Self::ParquetPushdown | Self::ParquetBloom) {
            let parquet = &mut config.options_mut().execution.parquet;
            parquet.pushdown_filters = true;
            parquet.reorder_filters = true;
        }
        if self == Self::Reference {
            return Ok(reference_session(config));
        }
        let session = SessionContext::new_with_config(config);
        if self.format().sql() == "VORTEX" {
            vortex_datafusion::register(&session)?;
        }
        if self == Self::OursUnhedged {
            session.state_ref().write().config_mut().options_mut().set("vortex.hedge", "0")?;
        }
        Ok(session)
    }

    /// Registers the files at `location`, a path or a URL, as a table of the session.
    pub(crate) async fn register(self, session: &SessionContext, table: &str, location: &str) -> Result<()> {
        let location = location.replace('\'', "''");
        let format = self.format().sql();
        let create = format!("CREATE EXTERNAL TABLE {table} STORED AS {format} LOCATION '{location}'");
        session.sql(&create).await?.collect().await?;
        Ok(())
    }
}

fn reference_session(config: SessionConfig) -> SessionContext {
    let factory = Arc::new(VortexFormatFactory::new());
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_table_factory(factory.get_ext().to_uppercase(), Arc::new(DefaultTableFactory::new()));
    if let Some(formats) = state.file_formats() {
        formats.push(factory);
    }
    SessionContext::new_with_state(state.build())
}
