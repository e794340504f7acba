//! Files written into memory.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use super::Sink;
use crate::Result;

/// A file in memory. Clones share it: keep a clone to get the bytes once the file is finished.
#[derive(Debug, Clone, Default)]
pub struct MemorySink {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    growing: BytesMut,
    finished: Option<Bytes>,
}

impl MemorySink {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes of the file, once it is finished.
    pub fn bytes(&self) -> Option<Bytes> {
        self.state.lock().finished.clone()
    }
}

#[async_trait]
impl Sink for MemorySink {
    fn name(&self) -> &str {
        "memory"
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.state.lock().growing.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        let mut state = self.state.lock();
        state.finished = Some(std::mem::take(&mut state.growing).freeze());
        Ok(())
    }

    async fn abort(&mut self) -> Result<()> {
        self.state.lock().growing = BytesMut::new();
        Ok(())
    }
}
