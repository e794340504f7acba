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
//! | to | start at |
//! |---|---|
//! | register Vortex in a session | [`register`]; [`VortexSessionExt`] while the session is being built; [`optimizer_rules`] for a list of rules |
//! | query files, and their structure, by path or URL in `FROM` | [`enable_url_tables`] |
//! | read and write without SQL | [`VortexContextExt`], with [`VortexReadOptions`] for declared columns; [`VortexDataFrameExt`], with [`VortexWriteOptions`] |
//! | change settings | [`VortexOptions`]; `SET vortex.<name>` and `OPTIONS (...)` in SQL |
//! | query files that are already open, from any source | [`VortexTable`] |
//! | build a listing table | [`VortexFormat`], [`listing_url`] |
//! | plan a `COPY` to a local path of any name | [`output_url`] |
//! | read or skip single rows, such as deleted ones | [`RowSelection`] |
//! | record the order of rows when writing without DataFusion | [`RowOrder`], [`recorded_order`] |
//! | write a table provider that plans its own scans and writes | [`VortexFormat::plan_scan`], [`VortexSource`]; [`VortexSink`], [`statistics()`], [`merge_schemas`] |
//! | run plans in another process | `VortexCodec`, with the feature `proto` |
//!
//! A session that is not registered, or whose [`Session`](datafusion_session::Session) is of another type than
//! DataFusion's `SessionState`, has no optimizer rules of this crate. It is slower, and **can return wrong rows**: see
//! [`register`](register#without-the-rules).
//!
//! The scan takes over from the plan: projections, down to single fields of structs; every deterministic
//! filter; and limits. Filters that the encodings cannot answer are evaluated on decoded columns before the
//! rest is read; dynamic filters skip zones while the query runs. Aggregations without groups are computed by scans,
//! from statistics where these contain the answer, and few groups are found by codes instead of values.
//!
//! # Errors
//!
//! If an object store fails while a file is opened, read or written, its error is `DataFusionError::ObjectStore`. Other
//! errors about files are `DataFusionError::External` with a [`vortex_core::Error`], whose variants say what the caller
//! can do. Both may be below others, which say where it happened:
//!
//! ```
//! use datafusion::error::DataFusionError;
//! use vortex_core::Error;
//!
//! fn advice(error: &DataFusionError) -> &'static str {
//!     match error.find_root() {
//!         DataFusionError::ObjectStore(_) => "retry if its variant says so",
//!         DataFusionError::External(error) => match error.downcast_ref::<Error>().map(Error::root) {
//!             Some(error) if error.is_transient() => "retry",
//!             Some(Error::Read { .. } | Error::Write { .. }) => "look after the storage",
//!             Some(Error::Corrupt(_)) => "replace the file",
//!             Some(Error::Unsupported { .. }) => "update the reader, or select other columns",
//!             Some(Error::LimitExceeded(_)) => "do not trust the file, or raise the limits",
//!             _ => "report it",
//!         },
//!         _ => "see DataFusion",
//!     }
//! }
//! # let cut = DataFusionError::External(Box::new(Error::corrupt("cut").at("a.vortex"))).context("opening");
//! # assert_eq!(advice(&cut), "replace the file");
//! ```

mod aggregation;
#[cfg(feature = "proto")]
mod codec;
mod convert;
mod format;
mod functions;
mod grouping;
mod memory;
mod metrics;
mod open_table;
mod opener;
mod optimizer;
mod options;
mod orders;
mod planning;
mod pushdown;
mod reading;
mod register;
mod selection;
mod sink;
mod source;
mod statistics;
mod tables;

#[cfg(feature = "proto")]
pub use codec::VortexCodec;
pub use convert::schema::merge as merge_schemas;
pub use format::{VortexFormat, VortexFormatFactory};
pub use open_table::VortexTable;
pub use optimizer::optimizer_rules;
pub use options::{StringType, VortexOptions};
#[doc(hidden)]
pub use options::{column_path, parse_size};
pub use orders::{RowOrder, recorded_order, verify_order};
pub use register::{VortexSessionExt, register};
pub use selection::RowSelection;
pub use sink::{VortexSink, WrittenFile};
pub use source::VortexSource;
pub use statistics::statistics;
pub use tables::{
    VortexContextExt, VortexDataFrameExt, VortexReadOptions, VortexWriteOptions, enable_url_tables,
    listing_url, output_url,
};
#[doc(hidden)]
pub use tables::{folder_columns, if_folder, is_hidden, local_path};
/// The format without a query engine, in the version that this crate was built with: its types are those of options,
/// tables over open files, errors and statistics.
pub use vortex_core;

/// The programs in the documents are compiled as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/datafusion.md")]
    struct Service;
}
