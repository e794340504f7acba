//! Rows that are larger than the limits allow: work on them is done in halves, and halves of these. Not all files state
//! how large their rows are.

use std::ops::Range;

use crate::mask::Mask;
use crate::{Error, Result};

/// Number of parts of a split after which rows that exceed the limits are not filtered or counted in halves any more:
/// each part may take as long as the limits allow, and nothing else happens in between.
pub(super) const MAX_PARTS: usize = 16;
/// The same if rows are decoded, since all parts are held at once.
pub(super) const MAX_PARTS_HELD: usize = 8;

/// What `run` returns for rows that are partly `live`: all at once, or, where that exceeds the limits, for each half
/// that has live rows, in their order. Once there are `most` parts, rows that exceed the limits are an error, as is a
/// single row that does.
pub(super) fn in_halves<T>(
    rows: Range<u64>,
    live: &Mask,
    most: usize,
    mut run: impl FnMut(&Range<u64>, &Mask) -> Result<T>,
) -> Result<Vec<T>> {
    let mut parts = Vec::new();
    // The next one comes last.
    let mut waiting = vec![(rows, live.clone())];
    while let Some((rows, live)) = waiting.pop() {
        if live.is_none() {
            continue;
        }
        let half = (rows.end - rows.start) / 2;
        match run(&rows, &live) {
            Err(error)
                if half > 0 && parts.len() < most && matches!(error.root(), Error::LimitExceeded(_)) =>
            {
                // Masks are in memory.
                let (middle, live_before) = (rows.start + half, half as usize);
                waiting.push((middle..rows.end, live.slice(live_before..live.len())));
                waiting.push((rows.start..middle, live.slice(0..live_before)));
            }
            outcome => parts.push(outcome?),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, StringArray};
    use arrow::compute::{cast, concat_batches};
    use arrow::datatypes::DataType;
    use bytes::Bytes;
    use futures::TryStreamExt as _;

    use super::*;
    use crate::VortexFile;
    use crate::expr::{Expr, column};
    use crate::file::OpenOptions;
    use crate::given::written;
    use crate::io::MemoryFile;
    use crate::limits::Limits;
    use crate::write::WriteOptions;

    /// The parts in which rows are processed of which no more than `limit` may be at once.
    fn parts(rows: Range<u64>, live: &Mask, most: usize, limit: u64) -> Result<Vec<(Range<u64>, usize)>> {
        in_halves(rows, live, most, |rows, live| {
            assert_eq!(rows.end - rows.start, live.len() as u64);
            if rows.end - rows.start <= limit {
                Ok((rows.clone(), live.true_count()))
            } else {
                Err(Error::limit(format!("{rows:?}")).at("column a"))
            }
        })
    }

    #[test]
    fn halves_with_live_rows_are_processed_in_order() {
        let live = Mask::from_indices(11, [0, 1, 10]);
        assert_eq!(parts(20..31, &live, 8, 11).unwrap(), [(20..31, 3)]);
        assert_eq!(parts(20..31, &live, 8, 3).unwrap(), [(20..22, 2), (28..31, 1)]);
        assert_eq!(parts(20..31, &Mask::none(11), 8, 3).unwrap(), []);
    }

    #[test]
    fn what_is_too_large_in_any_part_is_the_error() {
        let error = |live: &Mask, most, limit| parts(20..31, live, most, limit).unwrap_err().to_string();
        let all = Mask::all(11);
        assert_eq!(error(&all, 8, 0), "column a: limit exceeded: 20..21");
        assert_eq!(error(&Mask::from_indices(11, [9]), 8, 0), "column a: limit exceeded: 29..30");
        assert_eq!(error(&all, 2, 2), "column a: limit exceeded: 25..31");
        let mut count = 0;
        let broken = in_halves(0..8, &Mask::all(8), 8, |_, _| {
            count += 1;
            Err::<(), _>(Error::corrupt("broken"))
        });
        assert!(broken.is_err() && count == 1, "other errors are returned at once");
    }

    /// Numbers, and words made of them.
    fn table(rows: i64, word: impl Fn(i64) -> String) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|n| n * n % 1009)));
        let words: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(word)));
        RecordBatch::try_from_iter([("number", numbers), ("word", words)]).unwrap()
    }

    async fn open(bytes: Bytes, max_decoded_bytes: u64) -> VortexFile {
        let limits = Limits::new().with_max_decoded_bytes(max_decoded_bytes);
        OpenOptions::new().with_limits(limits).open(Arc::new(MemoryFile::new(bytes))).await.unwrap()
    }

    async fn rows(file: &VortexFile, filter: &Expr) -> Result<RecordBatch> {
        let stream = file.scan().with_filter(filter.clone()).into_stream()?;
        let schema = Arc::clone(stream.schema());
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        Ok(concat_batches(&schema, &batches)?)
    }

    #[tokio::test]
    async fn rows_larger_than_the_limit_are_filtered_and_counted_in_parts() {
        let table = table(40_000, |n| format!("{} is squared", n * n));
        let bytes = written([table], WriteOptions::new()).await;
        check_filters(bytes, 300_000, "%9%5 IS sq%").await;
    }

    /// Checks that filters have the same outcome whether or not rows exceed the limit.
    async fn check_filters(bytes: Bytes, limit: u64, pattern: &str) {
        let (strict, lax) = (open(bytes.clone(), limit).await, open(bytes, 2 << 30).await);
        let filters = [
            column("word").ilike(pattern),
            column("word").is_in(["x"; 9]).or(column("number").lt(5)),
            is_even().0,
        ];
        for filter in filters {
            let (found, expected) = (rows(&strict, &filter).await, rows(&lax, &filter).await);
            let found = found.unwrap_or_else(|error| panic!("{filter}: {error}"));
            assert!(found == expected.unwrap(), "{filter}");
        }
        let found = strict.scan().aggregate().await.unwrap();
        assert_eq!(found, lax.scan().aggregate().await.unwrap());
    }

    /// Words that begin with an even digit, as the caller finds them, and how often it was asked.
    fn is_even() -> (Expr, Arc<AtomicUsize>) {
        let evaluated = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&evaluated);
        let even = Expr::rows("even", ["word"], move |batch| {
            counted.fetch_add(1, Ordering::SeqCst);
            let words = cast(batch.column(0), &DataType::Utf8)?;
            let is_even = |word: Option<&str>| Some(word?.as_bytes()[0] % 2 == 0);
            Ok(words.as_string::<i32>().iter().map(is_even).collect())
        });
        (even, evaluated)
    }

    #[tokio::test]
    async fn rows_beyond_the_limit_are_not_filtered_or_counted_in_any_number_of_parts() {
        let table = table(40_000, |n| format!("{} is squared ", n * n).repeat(10));
        let file = open(written([table], WriteOptions::new()).await, 100_000).await;
        let (even, evaluated) = is_even();
        let filters = [column("word").ilike("%9%5 IS sq%"), even];
        for filter in filters {
            // The words themselves could not be held in any case.
            let scan = file.scan().with_filter(filter.clone()).with_projection(["number"]);
            let found: Result<Vec<RecordBatch>> = scan.into_stream().unwrap().try_collect().await;
            let error = found.err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("exceed 100000 bytes")), "{filter}");
        }
        let evaluated = evaluated.load(Ordering::SeqCst);
        let most = file.scan().splits().unwrap().len() * (MAX_PARTS + 1);
        assert!((1..=most).contains(&evaluated), "{evaluated} parts");
        let error = file.scan().with_projection(["word"]).aggregate().await.unwrap_err();
        assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
    }
}
