//! Streams of arrays exchanged between processes.
//!
//! ```text
//! message   [u32 length][flatbuffer: type and length of the body][body]
//! stream    dtype  array  array  ...              ends where its bytes end
//! ```
//!
//! The first message is the dtype of all arrays; each array is accompanied by the ids of its encodings.
//! There is no magic and no index: a stream is read from its start. [`IpcReader`] reads from any
//! implementation of [`std::io::Read`], and [`IpcWriter`] writes record batches.

mod reader;
mod writer;

pub use reader::{IpcReadOptions, IpcReader};
pub use writer::IpcWriter;
