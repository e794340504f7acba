//! A scan for callers without an asynchronous runtime.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use futures::StreamExt as _;
use futures::future::{Either, select};
use tokio::sync::{Semaphore, oneshot};

use super::ScanBuilder;
use super::stream::BatchStream;
use crate::{Error, Result};

/// Number of batches decoded ahead of the caller.
const BATCHES_AHEAD: usize = 2;

/// How long threads that have nothing left to do may take to end.
const END_OF_THREADS: Duration = Duration::from_millis(100);

/// A blocking iterator over the batches of a scan, which runs on its own thread: it uses one core. Works inside and
/// outside of asynchronous runtimes; dropping it stops the scan.
#[derive(Debug)]
pub struct BatchReader {
    schema: SchemaRef,
    batches: Receiver<Result<RecordBatch>>,
    /// One permit for each batch that may still be decoded ahead.
    room: Arc<Semaphore>,
    /// Stops the scan when it is dropped.
    _stop: oneshot::Sender<()>,
    /// The thread that scans, until it has ended.
    scanning: Option<JoinHandle<()>>,
}

impl BatchReader {
    pub(super) fn start(scan: ScanBuilder) -> Result<Self> {
        Self::start_on(thread::Builder::new(), scan)
    }

    fn start_on(thread: thread::Builder, scan: ScanBuilder) -> Result<Self> {
        let plan = scan.plan()?;
        let schema = Arc::clone(&plan.schema);
        let (sender, batches) = channel();
        let room = Arc::new(Semaphore::new(BATCHES_AHEAD));
        let free = Arc::clone(&room);
        let (stop, mut stopped) = oneshot::channel();
        let run = move || {
            let scan = async {
                let mut stream = BatchStream::start(plan)?;
                // While the caller is busy, the thread must not block: bytes that nobody receives time out.
                while let Either::Left((Some(outcome), _)) = select(stream.next(), &mut stopped).await
                    && let Either::Left((Ok(place), _)) = select(pin!(free.acquire()), &mut stopped).await
                {
                    place.forget();
                    // This fails if the reader was dropped; then the rest is not needed.
                    if sender.send(outcome).is_err() {
                        break;
                    }
                }
                Ok::<_, Error>(())
            };
            // Built on this thread: the caller may be within another runtime, where none may be dropped.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let outcome = runtime.map_err(Error::external).and_then(|runtime| {
                let outcome = runtime.block_on(scan);
                // Not even a read that blocks for ever holds up the end. Threads that end are waited for: glibc 2.36
                // may crash if it detaches one at that moment, which `shutdown_background` does.
                runtime.shutdown_timeout(END_OF_THREADS);
                outcome
            });
            if let Err(error) = outcome {
                drop(sender.send(Err(error)));
            }
        };
        let scanning = thread.name("vortex-scan".into()).spawn(run);
        let scanning = scanning.map_err(Error::external)?;
        Ok(Self { schema, batches, room, _stop: stop, scanning: Some(scanning) })
    }
}

impl Iterator for BatchReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(outcome) = self.batches.recv() {
            self.room.add_permits(1);
            return Some(outcome.map_err(|error| ArrowError::ExternalError(Box::new(error))));
        }
        // A panic, for instance in a predicate of the caller, must not look like the end of the rows. It is
        // not passed on, as readers may be behind interfaces of C, through which no panic may pass.
        let panic = self.scanning.take()?.join().err()?;
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        Some(Err(ArrowError::ExternalError(format!("the scan panicked: {said}").into())))
    }
}

impl RecordBatchReader for BatchReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;
    use crate::given::file_of;

    #[tokio::test]
    async fn a_thread_that_cannot_be_started_is_an_error_also_within_a_runtime() {
        let numbers = Int64Array::from_iter_values(0..10);
        let table = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap();
        let file = file_of([&table]).await;
        // No address space is large enough for this stack.
        let thread = thread::Builder::new().stack_size(1 << (usize::BITS - 3));
        assert!(BatchReader::start_on(thread, file.scan()).is_err());
        assert_eq!(BatchReader::start(file.scan()).unwrap().next().unwrap().unwrap(), table);
    }
}
