//! An independent implementation of the Vortex columnar file format.

pub mod array;
mod compress;
pub mod dtype;
pub mod encodings;
mod error;
pub mod expr;
pub mod file;
pub mod io;
pub mod ipc;
mod kernels;
pub mod layout;
mod limits;
mod mask;
mod pruning;
mod release;
pub mod scalar;
pub mod scan;
pub mod stats;
mod variant;
mod wire;
pub mod write;

pub use compress::Level;
pub use dtype::{DType, PType};
pub use error::{Error, Result};
pub use file::VortexFile;
pub use limits::Limits;
pub use mask::Mask;
pub use release::Release;
pub use scalar::Scalar;
