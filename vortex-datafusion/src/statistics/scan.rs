//! What a scan states of its rows, from the statistics of its files.

use std::mem;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::stats::Precision;
use datafusion_common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion_datasource::PartitionedFile;
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::file_scan_config::{FileScanConfig, FileScanConfigBuilder};

use crate::selection::RowSelection;

/// The scan with statistics and orders from which DataFusion 55 derives nothing wrong.
pub(crate) fn as_stated(scan: FileScanConfig) -> FileScanConfig {
    let scan = without_null_folders(scan);
    // `Some` only if the application has set one.
    match scan.expr_adapter_factory {
        Some(_) => with_estimates(without_values(scan)),
        None => with_estimates(scan),
    }
}

/// The scan without all that its files tell about values and their order, for columns that an adapter of the
/// application computes from those of files.
fn without_values(scan: FileScanConfig) -> FileScanConfig {
    let file_columns = scan.file_source().table_schema().file_schema().fields().len();
    let rows_only = |mut known: Statistics| {
        for column in known.column_statistics.iter_mut().take(file_columns) {
            *column = ColumnStatistics::new_unknown();
        }
        Statistics { total_byte_size: Precision::Absent, ..known }
    };
    let of_file = |file: &PartitionedFile| {
        let known = file.statistics.as_deref().map(|known| Arc::new(rows_only(known.clone())));
        PartitionedFile { statistics: known, ordering: None, ..file.clone() }
    };
    let groups = scan.file_groups.iter().map(|group| group.iter().map(of_file).collect());
    let (groups, known) = (groups.collect(), rows_only(scan.statistics()));
    FileScanConfigBuilder::from(scan)
        .with_file_groups(groups)
        .with_statistics(known)
        .with_output_ordering(Vec::new())
        .build()
}

/// The scan without what DataFusion 55 states of partition columns that are null in some files: that they have no
/// nulls, but bounds. See `tests/it/upstream/statistics.rs`: `a_null_value_of_a_folder_is_no_null`.
fn without_null_folders(scan: FileScanConfig) -> FileScanConfig {
    let files = || scan.file_groups.iter().flat_map(FileGroup::iter);
    let columns = scan.file_source().table_schema().table_partition_cols().len();
    let is_null =
        |file: &PartitionedFile, at: usize| file.partition_values.get(at).is_some_and(ScalarValue::is_null);
    let has_nulls: Vec<bool> = (0..columns).map(|at| files().any(|file| is_null(file, at))).collect();
    if !has_nulls.contains(&true) {
        return scan;
    }
    let file_columns = scan.file_source().table_schema().file_schema().fields().len();
    let without = |known: &Statistics, is_left_out: &dyn Fn(usize) -> bool| {
        let mut known = known.clone();
        let of_folders = known.column_statistics.iter_mut().skip(file_columns).enumerate();
        for (_, column) in of_folders.filter(|(at, _)| is_left_out(*at)) {
            *column = ColumnStatistics::new_unknown();
        }
        known
    };
    let of_table = |known: &Statistics| without(known, &|at| has_nulls.get(at) == Some(&true));
    let of_file = |file: &PartitionedFile| {
        let known = file.statistics.as_deref().map(|known| Arc::new(without(known, &|at| is_null(file, at))));
        PartitionedFile { statistics: known, ..file.clone() }
    };
    let groups = scan.file_groups.iter().map(|group| {
        let files: FileGroup = group.iter().map(of_file).collect();
        match group.file_statistics(None) {
            Some(known) => files.with_statistics(Arc::new(of_table(known))),
            None => files,
        }
    });
    let (groups, known) = (groups.collect(), of_table(&scan.statistics()));
    FileScanConfigBuilder::from(scan).with_file_groups(groups).with_statistics(known).build()
}

/// A scan that states null counts, sums, minima, maxima and distinct counts as estimates, although they may be exact:
/// see `optimizer/exact_statistics.rs`. If only some rows of a file are read, all is an estimate. A row
/// count of zero is stated as an estimate, too: DataFusion 55 computes 0, not null, for the sum of a constant over no
/// rows. So is everything about a single partition: DataFusion 55 states it for filters and limits as well. See
/// `tests/it/upstream/statistics.rs`: `the_sum_of_a_constant_over_no_rows_is_zero`,
/// `statistics_of_a_partition_are_those_of_its_files_whatever_a_limit_leaves`, and
/// `distinct_values_below_joins_are_taken_for_those_above`.
fn with_estimates(scan: FileScanConfig) -> FileScanConfig {
    let mut known = estimates(scan.statistics());
    if selects_rows(&scan) {
        known = known.to_inexact();
    }
    if known.num_rows == Precision::Exact(0) {
        known.num_rows = Precision::Inexact(0);
    }
    let groups = scan.file_groups.iter().cloned().map(|mut group| {
        if let Some(known) = group.statistics_mut() {
            *known = estimates(known.clone()).to_inexact();
        }
        group
    });
    let groups = groups.collect();
    FileScanConfigBuilder::from(scan).with_statistics(known).with_file_groups(groups).build()
}

/// What is known of columns, as estimates. Distinct counts are exact only of partition columns, from DataFusion. A
/// column with a bound that DataFusion 55 cannot compute with has neither minimum nor maximum.
fn estimates(mut known: Statistics) -> Statistics {
    for column in &mut known.column_statistics {
        column.sum_value = mem::take(&mut column.sum_value).to_inexact();
        column.distinct_count = column.distinct_count.to_inexact();
        column.null_count = column.null_count.to_inexact();
        let bounds = [&mut column.min_value, &mut column.max_value];
        let overflows = bounds.iter().any(|bound| bound.get_value().is_some_and(is_extreme));
        for bound in bounds {
            *bound = if overflows { Precision::Absent } else { mem::take(bound).to_inexact() };
        }
    }
    known
}

/// Whether only some rows of a file are read. DataFusion divides files into ranges only later.
fn selects_rows(scan: &FileScanConfig) -> bool {
    let mut files = scan.file_groups.iter().flat_map(FileGroup::iter);
    files.any(|file| file.extension::<RowSelection>().is_some() || file.range.is_some())
}

/// Whether plans would fail that compute with this bound, although it may be that of no row that they read.
fn is_extreme(value: &ScalarValue) -> bool {
    lacks_negative(value) || lacks_nanoseconds(value)
}

/// Whether this is a time that nanoseconds cannot express, such as 9999-12-31, which often stands for "never".
/// DataFusion 55 compares times of different units in the finer one, dates with timestamps in nanoseconds, and cannot
/// plan a filter if a bound overflows. See `tests/it/upstream/statistics.rs`:
/// `filters_cannot_be_planned_if_nanoseconds_cannot_express_a_bound`.
fn lacks_nanoseconds(value: &ScalarValue) -> bool {
    let finest = match value.data_type() {
        DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Nanosecond, zone),
        DataType::Duration(_) => DataType::Duration(TimeUnit::Nanosecond),
        _ => return false,
    };
    !value.is_null() && value.cast_to(&finest).map_or(true, |same| same.is_null())
}

/// Whether this is the least integer of its type, which is its own negative. DataFusion 55 supposes that negatives
/// are in the opposite order, and cannot plan `-a < 5` if that of a bound of `a` overflows. See
/// `tests/it/upstream/statistics.rs`: `filters_cannot_be_planned_if_a_bound_has_no_negative`.
fn lacks_negative(value: &ScalarValue) -> bool {
    value.data_type().is_signed_integer() && value.arithmetic_negate().is_err()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion_datasource::TableSchema;
    use datafusion_datasource::source::DataSource as _;
    use datafusion_execution::object_store::ObjectStoreUrl;

    use super::*;
    use crate::source::VortexSource;

    /// What a scan states of a column, of which its file states `known`.
    fn estimates(data_type: DataType, known: ColumnStatistics) -> ColumnStatistics {
        let schema = Arc::new(Schema::new(vec![Field::new("c", data_type, true)]));
        let file = Statistics {
            num_rows: Precision::Exact(10),
            total_byte_size: Precision::Absent,
            column_statistics: vec![known],
        };
        let source = Arc::new(VortexSource::new(TableSchema::from(&schema)));
        let scan = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source);
        let scan = as_stated(scan.with_statistics(file).build()).statistics();
        assert_eq!(scan.num_rows, Precision::Exact(10));
        scan.column_statistics[0].clone()
    }

    #[test]
    fn a_scan_estimates_what_is_exact_in_its_files() {
        let known = ColumnStatistics {
            null_count: Precision::Exact(2),
            sum_value: Precision::Exact(ScalarValue::Int64(Some(40))),
            min_value: Precision::Exact(ScalarValue::Int32(Some(1))),
            max_value: Precision::Exact(ScalarValue::Int32(Some(9))),
            ..ColumnStatistics::new_unknown()
        };
        let column = estimates(DataType::Int32, known);
        assert_eq!(column.null_count, Precision::Inexact(2));
        assert_eq!(column.sum_value, Precision::Inexact(ScalarValue::Int64(Some(40))));
        assert_eq!(column.min_value, Precision::Inexact(ScalarValue::Int32(Some(1))));
        assert_eq!(column.max_value, Precision::Inexact(ScalarValue::Int32(Some(9))));
    }

    #[test]
    fn partitions_state_nothing_exactly_either() {
        let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Int32, true)]));
        let exact = Precision::Exact(ScalarValue::Int32(Some(1)));
        let column = ColumnStatistics { min_value: exact, ..ColumnStatistics::new_unknown() };
        let known = Statistics {
            num_rows: Precision::Exact(10),
            total_byte_size: Precision::Exact(100),
            column_statistics: vec![column],
        };
        let source = Arc::new(VortexSource::new(TableSchema::from(&schema)));
        let group = FileGroup::new(Vec::new()).with_statistics(Arc::new(known));
        let scan = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source);
        let scan = as_stated(scan.with_file_groups(vec![group]).build());
        let stated = scan.partition_statistics(Some(0)).unwrap();
        assert_eq!(stated.num_rows, Precision::Inexact(10));
        assert_eq!(stated.column_statistics[0].min_value, Precision::Inexact(ScalarValue::Int32(Some(1))));
    }

    #[test]
    fn a_scan_estimates_how_many_values_a_partition_column_has() {
        let exact =
            ColumnStatistics { distinct_count: Precision::Exact(1), ..ColumnStatistics::new_unknown() };
        assert_eq!(estimates(DataType::Int32, exact).distinct_count, Precision::Inexact(1));
    }

    #[test]
    fn a_scan_states_no_extremes_of_integers_that_cannot_be_negated() {
        let pairs: [(ScalarValue, ScalarValue); 4] = [
            (i8::MIN.into(), (-i8::MAX).into()),
            (i16::MIN.into(), (-i16::MAX).into()),
            (i32::MIN.into(), (-i32::MAX).into()),
            (i64::MIN.into(), (-i64::MAX).into()),
        ];
        let stated = |min: &ScalarValue, max: &ScalarValue| {
            let (min_value, max_value) = (Precision::Exact(min.clone()), Precision::Exact(max.clone()));
            let known = ColumnStatistics { min_value, max_value, ..ColumnStatistics::new_unknown() };
            let column = estimates(min.data_type(), known);
            (column.min_value, column.max_value)
        };
        for (least, next) in pairs {
            assert_eq!(stated(&least, &next), (Precision::Absent, Precision::Absent));
            assert_eq!(stated(&least, &least), (Precision::Absent, Precision::Absent));
            let next = Precision::Inexact(next);
            assert_eq!(stated(next.get_value().unwrap(), next.get_value().unwrap()), (next.clone(), next));
        }
    }

    #[test]
    fn a_scan_states_no_extremes_of_times_that_nanoseconds_cannot_express() {
        let never = 2_932_896; // 9999-12-31
        let zone = Some("+02:00".into());
        let pairs: [(ScalarValue, ScalarValue, bool); 8] = [
            (ScalarValue::Date32(Some(0)), ScalarValue::Date32(Some(never)), false),
            (ScalarValue::Date32(Some(i32::MIN)), ScalarValue::Date32(Some(0)), false),
            (ScalarValue::Date32(Some(0)), ScalarValue::Date32(Some(20_000)), true),
            (ScalarValue::Date64(Some(0)), ScalarValue::Date64(Some(i64::from(never) * 86_400_000)), false),
            (
                ScalarValue::TimestampSecond(Some(0), zone.clone()),
                ScalarValue::TimestampSecond(Some(i64::from(never) * 86_400), zone.clone()),
                false,
            ),
            (
                ScalarValue::TimestampSecond(Some(0), zone.clone()),
                ScalarValue::TimestampSecond(None, zone),
                true,
            ),
            (
                ScalarValue::TimestampNanosecond(Some(i64::MIN), None),
                ScalarValue::TimestampNanosecond(Some(i64::MAX), None),
                true,
            ),
            (ScalarValue::DurationSecond(Some(0)), ScalarValue::DurationSecond(Some(i64::MAX)), false),
        ];
        for (min, max, is_stated) in pairs {
            let (min_value, max_value) = (Precision::Exact(min.clone()), Precision::Exact(max.clone()));
            let known = ColumnStatistics { min_value, max_value, ..ColumnStatistics::new_unknown() };
            let column = estimates(min.data_type(), known);
            let stated = (column.min_value, column.max_value);
            let expected = if is_stated {
                (Precision::Inexact(min), Precision::Inexact(max))
            } else {
                (Precision::Absent, Precision::Absent)
            };
            assert_eq!(stated, expected);
        }
    }
}
