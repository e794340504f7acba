//! Tables of files at a place: a path or a URL, of a file or a folder, or a glob in either.
//!
//! | place in | what creates the table |
//! |---|---|
//! | `CREATE EXTERNAL TABLE … STORED AS VORTEX LOCATION '…'` | `factory.rs` |
//! | `FROM '…'` | `urls.rs` |
//! | `read_vortex("…")`, `register_vortex(…, "…")` | `frames.rs`, which also writes |
//!
//! All of them are listing tables of DataFusion, except those of one remote file (`one_file.rs`). Tables over files
//! that are already open are elsewhere (`open_table.rs`).

mod factory;
mod frames;
mod globs;
mod one_file;
mod urls;

pub(crate) use factory::VortexTableFactory;
pub use frames::{VortexContextExt, VortexDataFrameExt};
pub use globs::listing_url;
pub(crate) use globs::{check_exists, check_pattern};
pub use urls::enable_url_tables;
