//! An independent implementation of the Vortex columnar file format.

pub mod array;
pub mod dtype;
pub mod encodings;
mod error;
pub mod expr;
mod kernels;
mod limits;
mod mask;
pub mod scalar;
mod wire;

pub use dtype::{DType, PType};
pub use error::{Error, Result};
pub use limits::Limits;
pub use mask::Mask;
pub use scalar::Scalar;
