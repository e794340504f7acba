//! Streams of arrays between processes.
//!
//! ```text
//! message   [u32 length][flatbuffer: what follows, and its length][body]
//! stream    dtype  array  array  ...              ends where its bytes end
//! ```
//!
//! The first message is the dtype of all arrays; each array comes with the ids of its encodings.
//! There is no magic and no index: a stream is read from its start. [`IpcReader`] reads from
//! anything that implements [`std::io::Read`], [`IpcWriter`] writes record batches.

mod reader;
mod writer;

pub use reader::{IpcOptions, IpcReader};
pub use writer::IpcWriter;
