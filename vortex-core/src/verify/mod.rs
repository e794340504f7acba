//! Verifying that a file is consistent: structure, checksums, values, statistics.
//!
//! [`verify`] opens the file, reads every segment that has a checksum, decodes every column, and compares
//! zone maps and statistics with the values. After a problem it continues if possible. It holds only a
//! few batches at a time.

mod bloom_filters;
mod bytes;
mod column;
mod statistics;

use std::fmt;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};

use self::bytes::check_bytes;
use self::column::{Column, check_column, columns_of};
use crate::file::{Described, MAGIC, OpenOptions, examine};
use crate::io::{ReadAt, read_exact};
use crate::{Error, Result, VortexFile};

/// Columns of a remote file that are read at the same time.
const MAX_COLUMNS_AT_ONCE: usize = 8;

/// Problems that are listed at most: each of millions of zones may have one.
const MAX_PROBLEMS: usize = 1000;

/// The result of verifying a file.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Verification {
    /// The file, if it could be opened. What its scans read is not verified.
    pub file: Option<VortexFile>,
    /// Rows of the file.
    pub row_count: u64,
    /// Columns of the file.
    pub column_count: usize,
    /// Segments that were verified against a checksum.
    pub checked_segments: usize,
    /// Zones whose statistics were compared with their values.
    pub checked_zones: u64,
    /// The problems found, up to some thousand; empty if there are none.
    pub problems: Vec<Problem>,
    /// Number of problems that are not listed.
    pub other_problems: u64,
}

/// A problem of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The place: a part of the description, a segment, or a column and some of its rows.
    pub place: String,
    /// A description of the problem.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl Verification {
    fn report(&mut self, place: impl Into<String>, message: impl fmt::Display) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { place: place.into(), message: message.to_string() });
        } else {
            self.other_problems += 1;
        }
    }

    /// Adds what was found in a column.
    fn add(&mut self, of_column: Verification) {
        self.checked_zones += of_column.checked_zones;
        self.other_problems += of_column.other_problems;
        for problem in of_column.problems {
            self.report(problem.place, problem.message);
        }
    }
}

/// Verifies a file: its structure, checksums if it has any, all values, statistics and zone maps. Needs a
/// tokio runtime.
///
/// # Errors
/// If storage fails; problems of the file are part of the result.
pub async fn verify(source: Arc<dyn ReadAt>, options: &OpenOptions) -> Result<Verification> {
    let mut found = verify_all(&source, options).await?;
    for Problem { place, message } in &mut found.problems {
        // Errors name their file, which the caller knows, and their column, which the place names.
        for known in [source.name(), place] {
            if let Some(rest) = message.strip_prefix(known).and_then(|rest| rest.strip_prefix(": ")) {
                *message = rest.to_owned();
            }
        }
    }
    Ok(found)
}

async fn verify_all(source: &Arc<dyn ReadAt>, options: &OpenOptions) -> Result<Verification> {
    let mut found = Verification::default();
    let Some(described) = read_description(source, options, &mut found).await? else { return Ok(found) };
    let checksums = described.checksums().unwrap_or_else(|error| {
        found.report("checksums", error);
        None
    });
    if let Some(Err(error)) = checksums.as_ref().map(|checksums| described.check(checksums)) {
        found.report("description", error);
    }
    // What is stored is verified as a whole; scans need not repeat that.
    let file = found.file.insert(described.into_file(source)).clone();
    // Readers do not need it.
    if read_exact(source.as_ref(), 0..MAGIC.len() as u64).await?.as_ref() != MAGIC {
        found.report("magic", "the file does not begin with \"VTXF\"");
    }
    found.row_count = file.row_count();
    found.column_count = file.footer().dtype().as_columns().map_or(1, |columns| columns.len());
    // Readers ignore one that they cannot use.
    if let Err(error) = file.footer().written_schema() {
        found.report("arrow schema", error);
    }
    if let Some(error) = file.footer().unusable_bloom_filters() {
        found.report("Bloom filters", error);
    }
    if let Some(checksums) = checksums {
        check_bytes(&file, &checksums, &mut found).await?;
    }
    // A narrow column is little more than round trips to remote storage.
    let at_once = if source.profile().remote { MAX_COLUMNS_AT_ONCE } else { 1 };
    let columns = columns_of(&file, &mut found);
    for (path, _) in file.footer().bloom_filters().iter() {
        if !columns.iter().any(|column| column.path == *path && column.can_have_bloom_filter()) {
            found.report("Bloom filters", format!("no column `{path}`, or none whose values have hashes"));
        }
    }
    let columns = columns.into_iter().map(|column| verify_column(&file, column));
    let mut columns = futures::stream::iter(columns).buffered(at_once);
    while let Some(of_column) = columns.try_next().await? {
        found.add(of_column);
    }
    Ok(found)
}

/// What is found in a column.
async fn verify_column(file: &VortexFile, column: Column) -> Result<Verification> {
    let mut found = Verification::default();
    if let Err(error) = check_column(file, &column, &mut found).await {
        found.report(format!("column `{}`", column.path), unless_storage(error)?);
    }
    Ok(found)
}

/// The error as a problem of the file, unless it is a failure of storage.
fn unless_storage(error: Error) -> Result<Error> {
    if matches!(error.root(), Error::Read { .. }) { Err(error) } else { Ok(error) }
}

/// The description of the file, unless it cannot be parsed.
async fn read_description(
    source: &Arc<dyn ReadAt>,
    options: &OpenOptions,
    found: &mut Verification,
) -> Result<Option<Described>> {
    match Described::read(source, &options.clone().with_verify_checksums(true)).await {
        Ok(described) => Ok(Some(described)),
        Err(error) => {
            let error = unless_storage(error)?;
            let examination = examine(source.as_ref(), options).await?;
            for part in examination.parts {
                if let Err(error) = part.found {
                    found.report(part.name, error);
                }
            }
            // Most likely this repeats the error already found.
            if found.problems.is_empty() {
                found.report("file", error);
            }
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::{
        ArrayRef, DurationSecondArray, Int64Array, RecordBatch, StringViewArray, StructArray,
    };
    use object_store::path::Path;
    use object_store::{ObjectStoreExt as _, PutPayload};
    use test_store::TestStore;

    use super::*;
    use crate::Limits;
    use crate::file::{ARROW_SCHEMA_KEY, UserMetadata};
    use crate::given::{opened, written};
    use crate::io::{MemoryFile, ObjectFile};
    use crate::write::WriteOptions;

    async fn verified(bytes: Vec<u8>) -> Verification {
        verify(Arc::new(MemoryFile::new(bytes)), &OpenOptions::new()).await.unwrap()
    }

    #[test]
    fn problems_beyond_a_number_are_only_counted() {
        let mut found = Verification::default();
        for column in ["a", "b"] {
            let mut of_column = Verification::default();
            (0..MAX_PROBLEMS + 1).for_each(|zone| of_column.report(column, zone));
            assert_eq!((of_column.problems.len(), of_column.other_problems), (MAX_PROBLEMS, 1));
            found.add(of_column);
        }
        assert_eq!((found.problems.len(), found.other_problems), (MAX_PROBLEMS, MAX_PROBLEMS as u64 + 2));
    }

    #[tokio::test]
    async fn a_file_begins_with_its_magic() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/0.91.0/tpch_orders.vortex");
        let mut bytes = std::fs::read(path).unwrap();
        bytes[..4].copy_from_slice(b"JUNK");
        let found = verified(bytes).await;
        let [problem] = found.problems.as_slice() else { panic!("{found:?}") };
        assert_eq!(problem.place, "magic");
    }

    #[tokio::test]
    async fn an_arrow_schema_that_readers_ignore_is_a_problem() {
        let durations = Arc::new(DurationSecondArray::from(vec![1, 2])) as ArrayRef;
        let rows = RecordBatch::try_from_iter([("a", durations)]).unwrap();
        let mut bytes = written([rows], WriteOptions::new()).await.to_vec();
        let file = opened(bytes.clone()).await;
        let is_schema = |entry: &&UserMetadata| *entry.key == *ARROW_SCHEMA_KEY;
        let entry = file.footer().user_metadata().iter().find(is_schema).unwrap();
        assert_eq!(verified(bytes.clone()).await.problems, []);
        bytes[entry.range.start as usize] ^= 0xff;
        let found = verified(bytes).await;
        let [problem] = found.problems.as_slice() else { panic!("{found:?}") };
        assert_eq!(problem.place, "arrow schema");
    }

    #[tokio::test]
    async fn files_of_released_writers_are_sound() {
        let files = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
        let mut count = 0;
        for release in ["0.36.0", "0.45.0", "0.56.0", "0.68.0", "0.75.0", "0.84.0", "0.87.0", "0.91.0"] {
            for entry in std::fs::read_dir(files.join(release)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|end| end == "vortex") {
                    let found = verified(std::fs::read(&path).unwrap()).await;
                    assert_eq!(found.problems, [], "{}", path.display());
                    count += 1;
                }
            }
        }
        assert!(count > 100);
    }

    /// A file of one batch, in which columns called `other` are renamed to `first`.
    async fn with_one_name(rows: &RecordBatch) -> Vec<u8> {
        let mut bytes = written([rows], WriteOptions::new()).await.to_vec();
        let places: Vec<usize> = (0..bytes.len() - 5).filter(|at| &bytes[*at..*at + 5] == b"other").collect();
        assert!(!places.is_empty());
        for at in places {
            bytes[at..at + 5].copy_from_slice(b"first");
        }
        bytes
    }

    #[tokio::test]
    async fn columns_of_a_remote_file_are_read_together() {
        let store = TestStore::new();
        let mut next = crate::kernels::random(1);
        let mut numbers =
            |_| Arc::new(Int64Array::from_iter_values((0..50_000).map(|_| next() as i64))) as ArrayRef;
        let rows = RecordBatch::try_from_iter((0..12).map(|at| (format!("c{at}"), numbers(at)))).unwrap();
        let path = Path::from("file");
        let bytes = written([rows], WriteOptions::new()).await;
        store.put(&path, PutPayload::from_bytes(bytes)).await.unwrap();
        store.set_latency(Duration::from_millis(5));
        let meta = store.inner.head(&path).await.unwrap();
        let file = ObjectFile::new(Arc::clone(&store) as _, meta);
        // On a task, as the command line does.
        let verified = tokio::spawn(async move { verify(Arc::new(file), &OpenOptions::new()).await });
        let found = verified.await.unwrap().unwrap();
        assert_eq!((found.problems, found.column_count, found.checked_zones), (vec![], 12, 12 * 7));
        assert!(store.reads.get() < 12, "{} reads", store.reads.get());
    }

    #[tokio::test]
    async fn columns_of_one_name_are_told_apart() {
        let numbers = || Arc::new(Int64Array::from_iter_values(0..20_000)) as ArrayRef;
        let words = StringViewArray::from_iter_values((0..20_000).map(|row| format!("word {row:06}")));
        let words = || Arc::new(words.clone()) as ArrayRef;
        let pair = |left: ArrayRef, right: ArrayRef| {
            RecordBatch::try_from_iter([("first", left), ("other", right)]).unwrap()
        };
        let nested = |left, right| Arc::new(StructArray::from(pair(left, right))) as ArrayRef;
        for (rows, columns) in [
            (pair(numbers(), words()), 2),
            (pair(words(), numbers()), 2),
            (pair(numbers(), nested(numbers(), words())), 2),
            (pair(nested(words(), numbers()), numbers()), 2),
        ] {
            let found = verified(with_one_name(&rows).await).await;
            assert_eq!((found.problems, found.column_count), (vec![], columns));
        }
    }

    #[tokio::test]
    async fn of_columns_of_one_name_only_the_broken_one_is_blamed() {
        let text = |word: &str| {
            Arc::new(StringViewArray::from_iter_values((0..10).map(|row| format!("{word} {row}"))))
                as ArrayRef
        };
        let rows =
            RecordBatch::try_from_iter([("first", text("abcdef")), ("other", text("uvwxyz"))]).unwrap();
        for (broken, place) in [(b"abcdef", 2), (b"uvwxyz", 4)] {
            let mut bytes = with_one_name(&rows).await;
            let at =
                bytes.windows(6).position(|window| window == broken).expect("text is in the file as it is");
            bytes[at + place] = 0xff;
            let found = verified(bytes).await;
            assert_eq!(found.problems.len(), 1, "{:?}", found.problems);
            let told = &found.problems[0].message;
            assert!(told.contains(&format!("from index {place}")) && told.contains("rows 0..10"), "{told}");
        }
    }

    #[tokio::test]
    async fn a_zone_table_that_readers_leave_unused_is_a_problem() {
        let mut bytes = include_bytes!("../../tests/files/0.91.0/root_utf8_n.vortex").to_vec();
        assert_eq!(verified(bytes.clone()).await.problems, vec![]);
        let zones = &mut bytes[23_080..23_088];
        assert_eq!(zones, 1u64.to_le_bytes());
        zones.copy_from_slice(&(1u64 << 40).to_le_bytes());
        let found = verified(bytes).await;
        let [problem] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
        assert!(problem.place.starts_with("zone map of"), "{problem:?}");
        assert!(
            problem.message.contains("1099511627776 zones of 8192 rows describe 1500 rows"),
            "{problem:?}"
        );
    }

    #[tokio::test]
    async fn a_file_that_does_not_open_shows_which_part_is_broken() {
        let mut bytes = include_bytes!("../../tests/files/0.91.0/tpch_orders.vortex").to_vec();
        bytes.truncate(bytes.len() - 1);
        assert!(!verified(bytes).await.problems.is_empty());
    }

    #[tokio::test]
    async fn a_file_beyond_the_limits_of_the_caller_shows_which_part_exceeds_them() {
        let bytes = include_bytes!("../../tests/files/0.91.0/tpch_orders.vortex");
        let options = OpenOptions::new().with_limits(Limits::new().with_max_columns(1));
        let found = verify(Arc::new(MemoryFile::new(&bytes[..])), &options).await.unwrap();
        let places: Vec<&str> = found.problems.iter().map(|problem| problem.place.as_str()).collect();
        assert_eq!(places, ["dtype"]);
    }
}
