//! Tables of files at a place: a path or a URL, of a file or a folder, or a glob in either.
//!
//! | place in | what creates the table |
//! |---|---|
//! | `CREATE EXTERNAL TABLE … STORED AS VORTEX LOCATION '…'` | `factory.rs` |
//! | `FROM '…'` | `urls.rs` |
//! | `read_vortex("…")`, `register_vortex(…, "…")` | `frames.rs`, which also writes; `read_options.rs`, `write_options.rs` |
//!
//! What a place stands for, and whether there can be a table over it, is decided in `places.rs`. All tables are
//! listing tables of DataFusion, or wrap one (`listed.rs`): those of one remote file (`one_file.rs`), and of folders
//! whose names are not those that DataFusion looks for (`folders.rs`). Tables over files that are already open are
//! elsewhere (`open_table.rs`).

mod factory;
mod folders;
mod frames;
mod listed;
mod one_file;
mod places;
mod read_options;
mod urls;
mod write_options;

pub(crate) use factory::VortexTableFactory;
pub use folders::folder_columns;
pub use frames::{VortexContextExt, VortexDataFrameExt};
pub(crate) use places::{check_place, is_whole_folder, listed_files};
pub use places::{if_folder, is_hidden, listing_url, local_path, output_url};
pub use read_options::VortexReadOptions;
pub use urls::enable_url_tables;
pub use write_options::VortexWriteOptions;
