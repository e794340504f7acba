//! What the fuzz targets share: tables built from arbitrary choices, and what must hold of
//! whatever opens.

pub mod build;
pub mod check;
pub mod choices;
pub mod golden;
#[path = "../../tests/it/presentations.rs"]
mod presentations;

pub use choices::Choices;

/// Limits that keep one input cheap.
pub fn limits() -> vortex_core::Limits {
    vortex_core::Limits::new().with_max_decoded_bytes(16 << 20)
}
