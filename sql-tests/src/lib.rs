//! Runs the suites of `slt/`, each against several [`Variant`]s of the same data.
//!
//! ```text
//! slt/nulls.slt ──┬── arrow            DataFusion's own Arrow reader: where answers come from
//!                 ├── vortex           as users get it
//!                 ├── vortex plain     every push-down off
//!                 ├── vortex splits    tiny batches, many partitions, files cut into many splits
//!                 └── vortex store     files in an object store; `stores/run` starts servers for it
//! ```
//!
//! A suite is written for Vortex. For the Arrow variant, [`Database`] replaces the file type
//! and the extension in the statement, and nothing else; golden files come in both forms.
//! So an answer in a suite never comes from the reader it tests.
//!
//! Statements name places by words in braces: `{files}` is the folder of golden files, `{tables}`
//! the folder of tables that [`Tables`] makes of them: partitioned, of several releases, damaged;
//! `{scratch}` is an empty folder of the session, to write to. Records that make sense for one
//! variant only say so with `skipif` and `onlyif`; labels are `arrow`, `vortex`, `pushdown`,
//! `plain`, `splits`, `store`.

mod cells;
mod database;
mod places;
mod tables;

pub use cells::Cell;
pub use database::{Database, Variant};
pub use places::{Places, Store};
pub use tables::{Tables, golden_files};
