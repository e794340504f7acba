//! Destinations of files: bytes are written from front to back, and appear all at once or not at all.

mod local;
mod memory;
mod object_store;
mod partial;

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

pub use local::LocalSink;
pub use memory::MemorySink;
pub use object_store::ObjectSink;
pub use partial::{PartialFile, local_target};

use crate::Result;

/// The destination of one file, written from front to back.
///
/// Nothing is visible under the final name before [`finish`](Sink::finish) is called. A sink that is dropped
/// before that, or one of whose methods failed, leaves nothing behind. If `finish` is dropped before it
/// returns, the whole file may appear, or nothing.
#[async_trait]
pub trait Sink: Debug + Send + 'static {
    /// The name used in error messages: a path or a URL.
    fn name(&self) -> &str;

    /// Appends bytes. They may be buffered for a while; waits while too many are. If this is dropped before it
    /// returns, the bytes may be lost, or still be on their way: only [`abort`](Sink::abort) may follow.
    ///
    /// # Errors
    /// If storage fails, now or for the bytes of earlier calls.
    async fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Bytes accepted that are still in memory. The budget of a writer does not cover them: a sink limits them by
    /// itself, in that [`write`](Self::write) waits.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Completes the file: when this returns, it has its final name, and is as durable as storage makes it.
    ///
    /// # Errors
    /// If storage fails. No file is created then, unless all that failed is making its name durable, or storage did
    /// what it was asked for and could not tell: see [`ObjectSink::with_unique_path`].
    async fn finish(&mut self) -> Result<()>;

    /// Aborts the file, and waits until everything written is removed.
    ///
    /// # Errors
    /// If storage fails to remove it.
    async fn abort(&mut self) -> Result<()>;
}
