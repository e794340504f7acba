//! Files written by real releases: the committed golden files, and the full set if it is available.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::UInt64Array;
use arrow::compute::take_record_batch;
use vortex_core::expr::{FieldPath, column};
use vortex_core::file::OpenOptions;
use vortex_core::io::LocalFile;
use vortex_core::scan::{Aggregate, Measures, RowAccess, ScanMetrics, WantedAggregates};
use vortex_core::{VortexFile, verify};

use crate::given::{collect_blocking, files_of, golden, golden_files, is_invalid_arrow, open_blocking};
use crate::{allocations, compare};

/// Rows per zone of all writers.
const ZONE_LEN: u64 = 8192;

/// The location of the full set: next to a maintainer's checkout, or given by the environment.
fn full_set() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let root = std::env::var_os("VORTEX_FIXTURES").map_or(beside, PathBuf::from);
    root.join("manifest.json").is_file().then_some(root)
}

/// The files of a manifest.
fn entries(root: &Path) -> Vec<serde_json::Value> {
    let manifest = std::fs::read_to_string(root.join("manifest.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("valid JSON");
    manifest["files"].as_array().expect("a list of files").clone()
}

fn paths(root: &Path) -> Vec<PathBuf> {
    entries(root).iter().map(|entry| root.join(entry["file"].as_str().unwrap())).collect()
}

/// Checks every file of a manifest; returns the number of files and the differences.
fn check_all(root: &Path) -> (usize, BTreeMap<String, String>) {
    let (mut count, mut failures) = (0, BTreeMap::new());
    for entry in entries(root) {
        let (file, expected) = (entry["file"].as_str().unwrap(), entry["expected"].as_str().unwrap());
        count += 1;
        if let Err(what) = compare::check(&root.join(file), &root.join(expected)) {
            failures.insert(file.to_owned(), what);
        }
    }
    (count, failures)
}

#[test]
fn golden_files_equal_their_expected_contents() {
    let root = golden_files();
    let (count, failures) = check_all(&root);
    let listed: BTreeSet<PathBuf> = paths(&root).into_iter().collect();
    let folders = root.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let of_releases =
        folders.filter(|path| path.is_dir() && !path.ends_with("corrupt") && !path.ends_with("ipc"));
    let files = of_releases.flat_map(|folder| files_of(&folder).collect::<Vec<_>>());
    let missing: Vec<PathBuf> = files.filter(|path| !listed.contains(path)).collect();
    assert!(count > 0 && missing.is_empty(), "not in the manifest: {missing:?}");
    assert!(failures.is_empty(), "{} of {count} differ: {failures:#?}", failures.len());
}

#[test]
fn every_file_of_the_full_set_equals_its_expected_contents() {
    let Some(root) = full_set() else {
        eprintln!("the full set of files is not available; the golden files cover each encoding");
        return;
    };
    let (count, failures) = check_all(&root);
    println!("{} equal of {count}", count - failures.len());
    for (file, what) in &failures {
        println!("{file}: {}", what.chars().take(300).collect::<String>());
    }
    assert!(failures.is_empty(), "{} of {count} differ", failures.len());
}

/// Checks in particular statistics that are called exact: old releases do so for some that are not.
#[tokio::test]
async fn files_of_all_releases_are_what_they_say_of_themselves() {
    for root in [Some(golden_files()), full_set()].into_iter().flatten() {
        for path in paths(&root) {
            let source = Arc::new(LocalFile::open(&path).unwrap());
            let found = verify(source, &OpenOptions::new()).await.unwrap();
            assert_eq!(found.problems.len(), 0, "{}: {:?}", path.display(), found.problems.first());
        }
    }
}

#[test]
fn a_root_that_may_be_null_has_no_statistics_of_its_own() {
    let file = open_blocking(&golden("0.36.0/root_struct_n.vortex")).unwrap();
    let columns: Vec<_> = file.footer().columns().map(|(name, dtype)| (name, dtype.is_nullable())).collect();
    assert_eq!(columns, [("value", true)]);
    assert!(file.footer().statistics().is_some_and(|fields| !fields.is_empty()));
    assert!(file.footer().column_statistics(0).is_none(), "those are of its fields");
}

#[test]
fn statistics_prune_no_row_of_a_null_test() {
    for path in paths(&full_set().unwrap_or_else(golden_files)) {
        let file = open_blocking(&path).unwrap();
        for field in file.schema().unwrap().fields() {
            for test in [column(field.name()).is_null(), column(field.name()).is_not_null()] {
                let scan = file.scan().with_projection([field.name()]).with_filter(test.clone());
                let all = collect_blocking(scan.clone().with_pruning(false)).unwrap();
                let pruned = collect_blocking(scan).unwrap();
                assert_eq!(pruned.num_rows(), all.num_rows(), "{test} in {}", path.display());
            }
        }
    }
}

/// Statistics of the file and of its zones give the same aggregates as its rows.
#[tokio::test]
async fn statistics_answer_as_rows_do() {
    let mut answered = 0;
    for path in paths(&full_set().unwrap_or_else(golden_files)) {
        let file = VortexFile::open_path(&path).await.unwrap();
        let rows = file.row_count();
        let Some((first, _)) = file.footer().columns().next() else { continue };
        let any = column(first).is_null().or(column(first).is_not_null());
        let scans =
            [file.scan(), file.scan().with_filter(any), file.scan().with_row_ranges(0..rows.min(ZONE_LEN))];
        for scan in scans {
            let of_rows = scan.clone().with_pruning(false).aggregate().await.unwrap();
            for (at, (name, dtype)) in file.footer().columns().enumerate() {
                for measures in [Measures::ALL, Measures::COUNTS.with_extremes(), Measures::COUNTS] {
                    let metrics = Arc::new(ScanMetrics::default());
                    let scan = scan.clone().with_projection([FieldPath::new([name])]);
                    let wanted = WantedAggregates::new(true, [measures]);
                    let found = scan.with_metrics(Arc::clone(&metrics)).aggregate_only(wanted).await;
                    let (found, wanted) = (&found.unwrap().columns[0], &of_rows.columns[at]);
                    let place = || format!("{name}: {dtype} in {}", path.display());
                    assert_eq!(counts(found), counts(wanted), "{}", place());
                    if measures.min {
                        let extremes = |of: &Aggregate| format!("{:?}", (&of.min, &of.max));
                        assert_eq!(extremes(found), extremes(wanted), "{}", place());
                    }
                    if measures.sum {
                        assert_eq!(found.sum, wanted.sum, "{}", place());
                    }
                    answered += metrics.rows_answered.get();
                }
            }
        }
    }
    assert!(answered > 0);
}

fn counts(of: &Aggregate) -> [u64; 3] {
    [of.row_count, of.null_count, of.nan_count]
}

#[test]
fn rows_fetched_by_themselves_equal_those_of_the_whole_file() {
    for root in [Some(golden_files()), full_set()].into_iter().flatten() {
        for path in paths(&root) {
            let file = open_blocking(&path).unwrap();
            let whole = collect_blocking(file.scan()).unwrap();
            let rows = file.row_count();
            for step in [7, 501] {
                let wanted: Vec<u64> = (0..rows).skip(step / 2).step_by(step).collect();
                let indices = UInt64Array::from(wanted.clone());
                let scan = file.scan().with_row_indices(wanted).with_row_access(RowAccess::Single);
                let single = collect_blocking(scan).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                assert_eq!(single.num_rows(), indices.len(), "{}", path.display());
                if whole.num_columns() == 0 {
                    continue;
                }
                let taken = take_record_batch(&whole, &indices).unwrap();
                assert_eq!(single, taken, "every {step}th row of {}", path.display());
            }
        }
    }
}

/// Damaged files result in an error or other values; never in a panic, a hang, or invalid Arrow data.
#[test]
fn damaged_files_end_in_values_or_errors() {
    for root in [Some(golden_files()), full_set()].into_iter().flatten() {
        let corrupt = root.join("corrupt");
        let (mut errors, mut values, mut peak) = (0, 0, 0);
        for path in files_of(&corrupt) {
            let watch = allocations::watch(errors + values);
            match open_blocking(&path).and_then(|file| collect_blocking(file.scan())) {
                Ok(_) => values += 1,
                Err(error) => {
                    assert!(!is_invalid_arrow(&error), "{}: {error}", path.display());
                    errors += 1;
                }
            }
            peak = watch.peak().max(peak);
        }
        // A panic or a hang would have ended the test.
        assert!(errors > 0 && errors + values > 20);
        println!(
            "{errors} damaged files are refused, {values} decode; 0 panics; at most {peak} bytes in use"
        );
    }
}
