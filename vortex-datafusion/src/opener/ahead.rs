//! Opens files before their turn.
//!
//! ```text
//! queue     [ a ][ b ][ c ][ d ][ e ] ...
//!             │    └────┴─ footer, zone maps and first batch of these are being fetched
//!             └─ being read
//! ```
//!
//! DataFusion opens a file when it has finished the preceding one; on remote storage, each file then costs
//! round trips during which nothing else happens. Therefore, opening a file also starts the next ones in the
//! queue, up to a limit of bytes that are read of them, and a partition that reaches one of them takes over
//! what has been started. All partitions share one queue, unless each of them has to read its own files.
//!
//! A query that wants few rows may need no file but the first. It starts none early at first, then one, and twice as
//! many with each further file that turns out to be needed.

use std::ops::Range;
use std::sync::{Arc, Weak};

use datafusion_common::{DataFusionError, HashMap, HashSet, Result};
use datafusion_common_runtime::SpawnedTask;
use datafusion_datasource::PartitionedFile;
use futures::StreamExt as _;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::runtime::Id;

use super::open_files::runtime;
use super::{Batches, OpenerState};
use crate::reading::footers::same_version;
use crate::selection::RowSelection;

/// Once this many bytes of the files opened ahead are expected to be read, no more are opened.
const BYTES_AHEAD: u64 = 8 << 20;
const FILES_AHEAD: usize = 32;

/// Bytes of a file that are expected to be read at least.
const MIN_BYTES: u64 = 64 << 10;

/// The files of one execution of a scan, or of one of its partitions, and which of them were started early.
pub(crate) struct Ahead {
    /// In the order in which they will be opened.
    files: Vec<PartitionedFile>,
    /// `None` for files that occur twice: their other properties, such as partition values, may differ, so
    /// neither is started early.
    positions: HashMap<Key, Option<usize>>,
    /// So many files are opened before any is started early, if the rest may not be needed.
    patience: Option<usize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Files that were opened in their turn.
    opened: usize,
    begun: HashSet<Key>,
    started: HashMap<Key, Started>,
}

struct Started {
    file: PartitionedFile,
    runtime: Option<Id>,
    task: SpawnedTask<Result<Batches>>,
}

impl Started {
    /// Whether it returns the rows of `file`, and is not held up by another runtime that stands still.
    fn serves(&self, file: &PartitionedFile) -> bool {
        self.runtime == runtime()
            && same_version(&self.file.object_meta, &file.object_meta)
            && self.file.partition_values == file.partition_values
            && self.file.extension::<RowSelection>() == file.extension::<RowSelection>()
    }
}

/// One file, or one range of it.
type Key = (Path, Option<Range<i64>>);

fn key(file: &PartitionedFile) -> Key {
    let range = file.range.as_ref().map(|range| range.start..range.end);
    (file.object_meta.location.clone(), range)
}

/// Bytes of a file, or of the range of it.
pub(super) fn len(file: &PartitionedFile) -> u64 {
    match &file.range {
        Some(range) => u64::try_from(range.end.saturating_sub(range.start)).unwrap_or(0),
        None => file.object_meta.size,
    }
}

/// Shares files started by one partition of a scan with the others.
#[derive(Debug, Default)]
pub(crate) struct SharedAhead(Mutex<Weak<Ahead>>);

impl SharedAhead {
    /// The files shared by all partitions that are running.
    pub(crate) fn get(&self, new: impl FnOnce() -> Ahead) -> Arc<Ahead> {
        let mut shared = self.0.lock();
        if let Some(ahead) = shared.upgrade() {
            return ahead;
        }
        let ahead = Arc::new(new());
        *shared = Arc::downgrade(&ahead);
        ahead
    }
}

impl Ahead {
    /// These files, in their order. If the rest of them may not be needed, the first `patience` ones are opened before
    /// any is started early.
    pub(crate) fn new(files: Vec<PartitionedFile>, patience: Option<usize>) -> Self {
        let mut positions = HashMap::new();
        for (at, file) in files.iter().enumerate() {
            positions.entry(key(file)).and_modify(|twice| *twice = None).or_insert(Some(at));
        }
        Self { files, positions, patience, state: Mutex::default() }
    }

    /// Opens a file, or takes it over if it was started, and starts the files after it.
    pub(crate) async fn open(
        self: Arc<Self>,
        state: Arc<OpenerState>,
        file: PartitionedFile,
    ) -> Result<Batches> {
        let started = {
            let mut now = self.state.lock();
            now.opened += 1;
            now.begun.insert(key(&file));
            now.started.remove(&key(&file))
        };
        self.start_behind(&state, &file);
        drop(self);
        match started.filter(|started| started.serves(&file)) {
            None => state.open(file).await,
            Some(Started { task, .. }) => {
                task.await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
            }
        }
    }

    /// How many files may be started early once so many were opened.
    fn most_ahead(&self, opened: usize) -> usize {
        match self.patience {
            None => FILES_AHEAD,
            Some(patience) if opened <= patience => 0,
            Some(patience) => {
                let further = u32::try_from(opened - patience - 1).unwrap_or(u32::MAX);
                1usize.checked_shl(further).map_or(FILES_AHEAD, |most| most.min(FILES_AHEAD))
            }
        }
    }

    fn start_behind(&self, state: &Arc<OpenerState>, file: &PartitionedFile) {
        let Some(Some(at)) = self.positions.get(&key(file)) else { return };
        let mut now = self.state.lock();
        let mut bytes = 0u64;
        for file in self.files.iter().skip(at + 1).take(self.most_ahead(now.opened)) {
            bytes = bytes.saturating_add(state.metrics.expected_bytes(len(file)).max(MIN_BYTES));
            let is_unique = self.positions.get(&key(file)).is_some_and(Option::is_some);
            if is_unique && now.begun.insert(key(file)) {
                let place = key(file);
                let (state, opened) = (Arc::clone(state), file.clone());
                let start = async move {
                    let mut batches = state.open_early(opened).await?;
                    // The partition that takes over continues from here.
                    let first = batches.next().await;
                    Ok(futures::stream::iter(first).chain(batches).boxed())
                };
                let task = SpawnedTask::spawn(start);
                now.started.insert(place, Started { file: file.clone(), runtime: runtime(), task });
            }
            if bytes >= BYTES_AHEAD {
                break;
            }
        }
    }
}
