//! Files written into memory.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use super::Sink;
use crate::{Error, Result};

/// A file in memory. Clones share it: keep a clone to get the bytes once the file is finished.
#[derive(Debug, Clone, Default)]
pub struct MemorySink {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
enum State {
    Growing(BytesMut),
    Finished(Bytes),
    Aborted,
}

impl Default for State {
    fn default() -> Self {
        Self::Growing(BytesMut::new())
    }
}

impl State {
    fn growing(&mut self) -> Result<&mut BytesMut> {
        match self {
            Self::Growing(bytes) => Ok(bytes),
            Self::Finished(_) | Self::Aborted => {
                Err(Error::write("memory", "was already aborted or finished"))
            }
        }
    }
}

impl MemorySink {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes of the file, once it is finished.
    pub fn bytes(&self) -> Option<Bytes> {
        match &*self.state.lock() {
            State::Finished(bytes) => Some(bytes.clone()),
            State::Growing(_) | State::Aborted => None,
        }
    }
}

#[async_trait]
impl Sink for MemorySink {
    fn name(&self) -> &str {
        "memory"
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.state.lock().growing()?.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        let mut state = self.state.lock();
        let bytes = std::mem::take(state.growing()?);
        *state = State::Finished(bytes.freeze());
        Ok(())
    }

    async fn abort(&mut self) -> Result<()> {
        let mut state = self.state.lock();
        if let State::Growing(_) = *state {
            *state = State::Aborted;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_changes_a_file_that_is_finished_or_aborted() {
        let mut finished = MemorySink::new();
        finished.write(Bytes::from_static(b"abc")).await.unwrap();
        assert_eq!(finished.bytes(), None);
        finished.finish().await.unwrap();
        finished.abort().await.unwrap();
        let mut aborted = MemorySink::new();
        aborted.write(Bytes::from_static(b"abc")).await.unwrap();
        aborted.abort().await.unwrap();
        for (sink, bytes) in [(&mut finished, Some(Bytes::from_static(b"abc"))), (&mut aborted, None)] {
            for error in [sink.write(Bytes::from_static(b"def")).await, sink.finish().await] {
                let error = error.unwrap_err().to_string();
                assert_eq!(error, "writing memory: was already aborted or finished");
            }
            assert_eq!(sink.bytes(), bytes);
        }
    }
}
