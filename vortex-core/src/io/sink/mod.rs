//! Where files are written to: bytes from front to back, and all or nothing.

mod local;
mod memory;
mod object_store;

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

pub use local::{LocalSink, local_target};
pub use memory::MemorySink;
pub use object_store::ObjectSink;

use crate::Result;

/// Where one file is written to, from front to back.
///
/// Nothing shows under the final name before [`finish`](Sink::finish) has returned `Ok`. A sink
/// that is dropped before, or whose method failed, leaves nothing behind.
#[async_trait]
pub trait Sink: Debug + Send + 'static {
    /// What errors call it: a path or a URL.
    fn name(&self) -> &str;

    /// Appends bytes. They may stay in memory for a while; waits when too many do.
    ///
    /// # Errors
    /// If storage fails, now or for bytes of earlier calls.
    async fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Bytes taken that are still in memory.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Completes the file: it is durable and has its name when this returns.
    ///
    /// # Errors
    /// If storage fails; then there is no file.
    async fn finish(&mut self) -> Result<()>;

    /// Gives up, and waits until what has been written is gone.
    ///
    /// # Errors
    /// If storage fails to remove it.
    async fn abort(&mut self) -> Result<()>;
}

#[async_trait]
impl Sink for Box<dyn Sink> {
    fn name(&self) -> &str {
        self.as_ref().name()
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.as_mut().write(bytes).await
    }

    fn buffered_bytes(&self) -> usize {
        self.as_ref().buffered_bytes()
    }

    async fn finish(&mut self) -> Result<()> {
        self.as_mut().finish().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.as_mut().abort().await
    }
}
