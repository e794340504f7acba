//! Compresses chunks in tasks of the runtime, several chunks per task.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use tokio::task::JoinSet;

use super::chunk::{Encoded, Job};
use crate::{Error, Result};

/// Minimum number of bytes for a task to be worthwhile: narrow chunks share a task.
const TASK_BYTES: usize = 512 << 10;

/// Chunks being encoded, group by group.
#[derive(Debug)]
pub(super) struct Encoder {
    tasks: JoinSet<(TaskId, Ended)>,
    /// Groups being encoded, the oldest first.
    groups: VecDeque<Group>,
    /// Number of groups that are complete and have been taken.
    first_group: usize,
    /// Bytes of rows not encoded yet, in the form in which they wait.
    unencoded_bytes: usize,
    /// Additional bytes that these take once runs are expanded to rows, and the largest share of a single
    /// chunk: each processor expands one chunk at a time.
    expansion_bytes: usize,
    largest_expansion: usize,
    cpus: usize,
    encoded_bytes: usize,
}

/// The numbers of a group and of a task within it.
type TaskId = (usize, usize);

/// The outcome of a task: `None` if a job that it waited for failed.
type Ended = Result<Option<Vec<Encoded>>>;

#[derive(Debug, Default)]
struct Group {
    /// The results of the tasks, in the order of the jobs.
    encoded: Vec<Option<Vec<Encoded>>>,
    left: usize,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            groups: VecDeque::new(),
            first_group: 0,
            unencoded_bytes: 0,
            expansion_bytes: 0,
            largest_expansion: 0,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            encoded_bytes: 0,
        }
    }

    /// Bytes of chunks being encoded, and of encoded chunks that have not been taken yet.
    pub(super) fn buffered_bytes(&self) -> usize {
        let expanded = self.expansion_bytes.min(self.largest_expansion.saturating_mul(self.cpus));
        self.unencoded_bytes + expanded + self.encoded_bytes
    }

    /// Bytes of chunks that are not encoded yet.
    pub(super) fn unencoded_bytes(&self) -> usize {
        self.unencoded_bytes
    }

    /// Bytes of encoded chunks that have not been taken yet.
    pub(super) fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }

    /// Whether any tasks are running.
    pub(super) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Starts encoding the chunks of a group. Few bytes are encoded on the spot: waking another thread
    /// would take about as long.
    ///
    /// # Errors
    /// If a chunk could not be encoded on the spot.
    pub(super) fn start(&mut self, jobs: Vec<Job>) -> Result<()> {
        let group = self.first_group + self.groups.len();
        let mut tasks: Vec<Vec<Job>> = Vec::new();
        let (mut bytes, mut all_bytes) = (TASK_BYTES, 0);
        for job in jobs {
            if bytes >= TASK_BYTES {
                tasks.push(Vec::new());
                bytes = 0;
            }
            bytes += job.sizes.raw;
            all_bytes += job.sizes.raw;
            self.unencoded_bytes += job.sizes.waiting;
            let expansion = job.sizes.expansion();
            self.largest_expansion =
                if self.expansion_bytes == 0 { expansion } else { self.largest_expansion.max(expansion) };
            self.expansion_bytes += expansion;
            if let Some(task) = tasks.last_mut() {
                task.push(job);
            }
        }
        self.groups.push_back(Group { left: tasks.len(), encoded: tasks.iter().map(|_| None).collect() });
        for (at, jobs) in tasks.into_iter().enumerate() {
            let mut task = Box::pin(run(jobs));
            if all_bytes < TASK_BYTES {
                let mut context = Context::from_waker(Waker::noop());
                let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context)));
                match polled.map_err(|_| Error::External("encoding panicked".into()))? {
                    Poll::Ready(ended) => {
                        if let Some(encoded) = ended? {
                            self.ended(group, at, encoded);
                        }
                        continue;
                    }
                    // It has to wait for another job.
                    Poll::Pending => {}
                }
            }
            self.tasks.spawn(async move { ((group, at), task.await) });
        }
        Ok(())
    }

    /// Waits for a task to end.
    ///
    /// # Errors
    /// If a chunk could not be encoded, or the runtime shuts down.
    pub(super) async fn wait(&mut self) -> Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            let ((group, at), ended) = match ended {
                Ok(ended) => ended,
                Err(error) if error.is_panic() => {
                    return Err(Error::External(format!("encoding panicked: {error}").into()));
                }
                Err(error) => return Err(Error::external(error)),
            };
            if let Some(encoded) = ended? {
                self.ended(group, at, encoded);
                break;
            }
            // The task that failed will be reported soon.
        }
        Ok(())
    }

    fn ended(&mut self, group: usize, at: usize, encoded: Vec<Encoded>) {
        for chunk in &encoded {
            self.unencoded_bytes -= chunk.sizes.waiting;
            self.expansion_bytes -= chunk.sizes.expansion();
            self.encoded_bytes += chunk.encoded_bytes;
        }
        let group = &mut self.groups[group - self.first_group];
        group.encoded[at] = Some(encoded);
        group.left -= 1;
    }

    /// Takes the chunks of the oldest group, in the order of its jobs, if all are encoded.
    pub(super) fn take_group(&mut self) -> Option<Vec<Encoded>> {
        let done = self.groups.pop_front_if(|group| group.left == 0)?;
        self.first_group += 1;
        let chunks: Vec<Encoded> = done.encoded.into_iter().flatten().flatten().collect();
        self.encoded_bytes -= chunks.iter().map(|chunk| chunk.encoded_bytes).sum::<usize>();
        Some(chunks)
    }
}

async fn run(jobs: Vec<Job>) -> Ended {
    let mut encoded = Vec::with_capacity(jobs.len());
    for job in jobs {
        match job.run().await? {
            Some(done) => encoded.push(done),
            None => return Ok(None),
        }
    }
    Ok(Some(encoded))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array};

    use super::*;
    use crate::compress::Compressor;
    use crate::dtype::{DType, PType};
    use crate::write::row_sizes::RowSizes;
    use crate::{Level, Release};

    fn job(raw: usize, waiting: usize) -> Job {
        let pieces = vec![Arc::new(Int32Array::from(vec![7; 100])) as ArrayRef];
        let dtype = DType::Primitive(PType::I32, false);
        let (path, turn) = ("a".to_owned(), None);
        Job {
            leaf: 0,
            dtype,
            path,
            compressor: Compressor::new(Level::Default, Release::NEWEST),
            pieces,
            chunks: std::iter::once(0..100).collect(),
            sizes: RowSizes { raw, joined: raw, waiting },
            first_row: 0,
            has_zones: true,
            has_filters: false,
            turn,
        }
    }

    #[tokio::test]
    async fn runs_count_as_rows_where_they_become_rows() {
        let mut encoder = Encoder::new();
        encoder.cpus = 2;
        encoder.start((0..5).map(|_| job(1 << 20, 100)).collect()).unwrap();
        assert_eq!(encoder.buffered_bytes(), 5 * 100 + 2 * ((1 << 20) - 100));
        while encoder.is_busy() {
            encoder.wait().await.unwrap();
        }
        let encoded = encoder.take_group().unwrap();
        assert_eq!((encoded.len(), encoder.buffered_bytes()), (5, 0));
    }
}
