//! Vortex files in [DataFusion](https://datafusion.apache.org).
//!
//! [`register`] is all a session needs:
//!
//! ```no_run
//! use datafusion::prelude::SessionContext;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> datafusion::common::Result<()> {
//! let context = SessionContext::new();
//! vortex_datafusion::register(&context)?;
//! // For paths and URLs in FROM.
//! vortex_datafusion::enable_url_tables(&context);
//!
//! context.sql("SELECT city, count(*) FROM 'visits/*.vortex' GROUP BY city").await?.show().await?;
//! context
//!     .sql("CREATE EXTERNAL TABLE visits STORED AS VORTEX PARTITIONED BY (day) LOCATION 'visits/'")
//!     .await?;
//! context.sql("COPY (SELECT * FROM visits ORDER BY city) TO 'cities.vortex'").await?.show().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`VortexTable`] is a table over files that are already open, from any source. The feature `proto` adds
//! `VortexCodec`, which serializes physical plans, so that they can run in another process.
//!
//! Without the `session` feature the crate depends only on DataFusion's component crates; register a
//! [`VortexFormatFactory`] yourself, or build a listing table on a [`VortexFormat`].
//!
//! The scan takes over from the plan: projections, down to single fields of structs; every deterministic
//! filter; and limits. Filters that the encodings cannot answer are evaluated on decoded columns before the
//! rest is read; dynamic filters skip zones while the query runs. The settings are those of
//! [`VortexOptions`], given by `SET vortex.<name>` or in `OPTIONS (...)`.

mod cache;
#[cfg(feature = "proto")]
pub mod codec;
mod convert;
#[cfg(feature = "session")]
mod exact_statistics;
mod format;
#[cfg(feature = "session")]
mod frames;
#[cfg(feature = "session")]
mod functions;
#[cfg(feature = "session")]
mod globs;
mod memory;
mod metrics;
#[cfg(feature = "session")]
mod misdirected;
#[cfg(feature = "session")]
mod one_file;
mod opener;
mod options;
mod ordering;
mod pushdown;
#[cfg(feature = "session")]
mod register;
mod selection;
mod sink;
mod source;
mod statistics;
mod table;
#[cfg(feature = "session")]
mod table_factory;
#[cfg(feature = "session")]
mod tell_scans;
#[cfg(feature = "session")]
mod url_tables;
#[cfg(feature = "session")]
mod withhold_orders;

#[cfg(feature = "proto")]
pub use codec::VortexCodec;
pub use convert::schema::merge as merge_schemas;
pub use format::{VortexFormat, VortexFormatFactory};
#[cfg(feature = "session")]
pub use frames::{VortexContextExt, VortexDataFrameExt};
#[cfg(feature = "session")]
pub use globs::listing_url;
pub use options::{StringType, VortexOptions};
pub use ordering::{record_order, recorded_order};
#[cfg(feature = "session")]
pub use register::{VortexSessionExt, register};
pub use selection::RowSelection;
pub use sink::{VortexSink, WrittenFile};
pub use source::VortexSource;
pub use statistics::statistics;
pub use table::VortexTable;
#[cfg(feature = "session")]
pub use url_tables::enable_url_tables;
