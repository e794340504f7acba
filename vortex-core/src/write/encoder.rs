//! Chunks on their way through the compressor: tasks of the runtime, a few chunks each.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::task::JoinSet;

use super::chunk::{Encoded, Job};
use crate::compress::Compressor;
use crate::{Error, Result};

/// Bytes that make a task worth its while: narrow chunks share one.
const TASK_BYTES: usize = 512 << 10;

/// Chunks at work, group by group.
#[derive(Debug)]
pub(super) struct Encoder {
    compressor: Compressor,
    tasks: JoinSet<(TaskId, Result<Vec<Encoded>>)>,
    /// Groups at work, the oldest first.
    groups: VecDeque<Group>,
    /// Groups that are through already.
    first_group: usize,
    raw_bytes: usize,
    encoded_bytes: usize,
}

/// Which task of which group.
type TaskId = (usize, usize);

#[derive(Debug, Default)]
struct Group {
    /// What each task made, in the order of the jobs.
    encoded: Vec<Option<Vec<Encoded>>>,
    left: usize,
}

impl Encoder {
    pub(super) fn new(compressor: Compressor) -> Self {
        Self {
            compressor,
            tasks: JoinSet::new(),
            groups: VecDeque::new(),
            first_group: 0,
            raw_bytes: 0,
            encoded_bytes: 0,
        }
    }

    /// Bytes of chunks at work, and of those encoded that nobody has taken yet.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.raw_bytes + self.encoded_bytes
    }

    /// Whether something is at work.
    pub(super) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Puts the chunks of a group to work. Few bytes are encoded on the spot: waking another thread
    /// would take about as long.
    ///
    /// # Errors
    /// If a chunk could not be encoded on the spot.
    pub(super) fn start(&mut self, jobs: Vec<Job>) -> Result<()> {
        let group = self.first_group + self.groups.len();
        let mut tasks: Vec<Vec<Job>> = Vec::new();
        let mut bytes = TASK_BYTES;
        for job in jobs {
            if bytes >= TASK_BYTES {
                tasks.push(Vec::new());
                bytes = 0;
            }
            bytes += job.bytes;
            self.raw_bytes += job.bytes;
            if let Some(task) = tasks.last_mut() {
                task.push(job);
            }
        }
        if let [jobs] = tasks.as_slice() {
            let encoded = catch_unwind(AssertUnwindSafe(|| run(jobs, &self.compressor)));
            let panicked = || Error::External("encoding panicked".into());
            self.groups.push_back(Group { left: 1, encoded: vec![None] });
            self.ended(group, 0, encoded.map_err(|_| panicked())??);
            return Ok(());
        }
        self.groups.push_back(Group { left: tasks.len(), encoded: tasks.iter().map(|_| None).collect() });
        for (at, jobs) in tasks.into_iter().enumerate() {
            let compressor = self.compressor.clone();
            self.tasks.spawn(async move { ((group, at), run(&jobs, &compressor)) });
        }
        Ok(())
    }

    /// Waits for a task to end.
    ///
    /// # Errors
    /// If a chunk could not be encoded, or the runtime shuts down.
    pub(super) async fn wait(&mut self) -> Result<()> {
        let ((group, at), encoded) = match self.tasks.join_next().await {
            None => return Ok(()),
            Some(Ok(ended)) => ended,
            Some(Err(error)) if error.is_panic() => {
                return Err(Error::External(format!("encoding panicked: {error}").into()));
            }
            Some(Err(error)) => return Err(Error::External(error.into())),
        };
        self.ended(group, at, encoded?);
        Ok(())
    }

    fn ended(&mut self, group: usize, at: usize, encoded: Vec<Encoded>) {
        for chunk in &encoded {
            self.raw_bytes -= chunk.raw_bytes;
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

fn run(jobs: &[Job], compressor: &Compressor) -> Result<Vec<Encoded>> {
    jobs.iter().map(|job| job.run(compressor)).collect()
}
