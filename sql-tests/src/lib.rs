//! Runs the suites of `slt/`, each against several [`Variant`]s of the same data.
//!
//! ```text
//! slt/nulls.slt ──┬── arrow            DataFusion's own Arrow reader, the source of the answers
//!                 ├── vortex           default settings
//!                 ├── vortex plain     all push-down disabled
//!                 ├── vortex splits    tiny batches, and each file cut into many partitions
//!                 ├── vortex sorted    tables of several files with a recorded order, in one partition
//!                 ├── vortex groups    the same in three partitions
//!                 └── vortex store     files in an object store; `stores/run` starts servers for it
//! ```
//!
//! Suites are written for Vortex. For the Arrow variant, [`Database`] replaces only the file type and the
//! extension in statements; golden files exist in both forms. Thus, an answer in a suite never comes from the
//! reader under test.
//!
//! Statements refer to places by words in braces: `{files}` is the folder of golden files; `{tables}` is the
//! folder of tables that [`Tables`] creates: from golden files, partitioned, of several releases, damaged;
//! generated, with rows for several splits; `{scratch}` is an empty folder of the session, to write to.
//! Records that apply only to some variants are marked with `skipif` and `onlyif`; labels are `arrow`,
//! `vortex`, `pushdown` and `store`.

mod cells;
mod database;
mod large;
mod places;
mod sorted;
mod tables;

pub use cells::{Cell, rows};
pub use database::{Database, Variant};
pub use places::{Places, Store};
pub use tables::{Tables, golden_files};
