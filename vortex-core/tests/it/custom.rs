//! An encoding and a layout that another crate implements, with what the core makes public.
//!
//! No writer of this repository creates either. Therefore, files and streams are written with the built-in
//! encoding and layout that have the same bytes; then, their ids are replaced by others of the same length.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    Array as _, ArrayData, Float64Array, Int64Array, RecordBatch, StringArray, make_array, new_empty_array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use vortex_core::Registry;
use vortex_core::array::{
    ArrayRef, Decoded, EncodedArray, EncodedRef, Header, Node, Pick, Validity, present,
};
use vortex_core::dtype::DType;
use vortex_core::dtype::arrow::data_type;
use vortex_core::encodings::Encoding;
use vortex_core::expr::{Expr, column};
use vortex_core::file::{OpenOptions, SegmentId};
use vortex_core::io::{MemoryFile, ReadAt, StorageProfile};
use vortex_core::ipc::{IpcReadOptions, IpcReader, IpcWriter};
use vortex_core::layout::{Layout, LayoutKind, LayoutNode, LayoutRef, PieceSet, SegmentSet};
use vortex_core::scan::{RowAccess, ScanBuilder};
use vortex_core::write::WriteOptions;
use vortex_core::{Error, Result, VortexFile, verify};

use crate::given::{Stored, collect_valid, opened, written};
use crate::random::scattered;

/// Numbers in their memory layout, which are decoded when they are loaded. Counts the arrays that it loads, and how
/// often these are decoded.
#[derive(Debug, Clone, Default)]
struct Numbers(Arc<AtomicUsize>, Arc<AtomicUsize>);

const NUMBERS: &str = "custom.primitive";
const BUILT_IN_NUMBERS: &str = "vortex.primitive";

impl Encoding for Numbers {
    fn id(&self) -> &'static str {
        NUMBERS
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let DType::Primitive(ptype, _) = node.dtype() else {
            return Err(Error::corrupt(format!("holds numbers, not {}", node.dtype())));
        };
        node.no_metadata()?;
        node.expect_buffers(1)?;
        // Both are asked for what they need before an error of one of them is returned.
        let (values, validity) = (node.values(0, ptype.byte_width()), node.validity_child(0)?);
        let nulls = validity.decode()?.to_nulls(node.len());
        let bytes = node.limits().count_rows(node.len(), ptype.byte_width())?;
        let values = values?;
        if values.len() != bytes {
            return Err(Error::corrupt(format!("{} bytes of values, expected {bytes}", values.len())));
        }
        // A copy is aligned.
        let data = ArrayData::builder(data_type(node.dtype())?).len(node.len()).nulls(nulls);
        let values = make_array(data.add_buffer(Buffer::from(values.as_slice())).build()?);
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(NumbersArray { header: node.header(NUMBERS), values, decoded: Arc::clone(&self.1) }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

#[derive(Debug)]
struct NumbersArray {
    header: Header,
    values: ArrayRef,
    decoded: Arc<AtomicUsize>,
}

impl EncodedArray for NumbersArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn decompresses(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        present(Arc::clone(&self.values), to)
    }

    fn validity(&self) -> Result<Validity> {
        Ok(Validity::from_nulls(self.values.nulls().cloned()))
    }

    // Filters of its own; other rows are picked by default.
    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let Pick::Filter(mask) = pick else { return self.to_decoded()?.pick(pick) };
        let values = arrow::compute::filter(&self.values, &mask.to_filter())?;
        Ok(Arc::new(Self {
            header: self.header.of_rows(values.len()),
            values,
            decoded: Arc::clone(&self.decoded),
        }))
    }
}

/// One array in one segment.
#[derive(Debug)]
struct Whole;

const WHOLE: &str = "custom.flat";
const BUILT_IN_WHOLE: &str = "vortex.flat";

impl LayoutKind for Whole {
    fn id(&self) -> &'static str {
        WHOLE
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        node.expect_children(0)?;
        let [segment] = node.segments()[..] else { return Err(Error::corrupt("expected one segment")) };
        Ok(Arc::new(WholeLayout { dtype: node.dtype().clone(), rows: node.row_count(), segment }))
    }
}

#[derive(Debug)]
struct WholeLayout {
    dtype: DType,
    rows: u64,
    segment: SegmentId,
}

fn len_of(rows: u64) -> Result<usize> {
    usize::try_from(rows).map_err(Error::limit)
}

impl Layout for WholeLayout {
    fn id(&self) -> &str {
        WHOLE
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn row_count(&self) -> u64 {
        self.rows
    }

    fn segments(&self) -> Vec<SegmentId> {
        vec![self.segment]
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        if !rows.is_empty() {
            have.want(self.segment, want);
        }
        Ok(())
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        if rows.is_empty() {
            let empty = new_empty_array(&data_type(&self.dtype)?);
            return Ok(Arc::new(Decoded::new(self.dtype.clone(), empty, have.limits())));
        }
        let array = have.array(self.segment, &self.dtype, len_of(self.rows)?)?;
        array.slice(len_of(rows.start)?..len_of(rows.end)?)
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        let rows = rows.iter().map(|row| len_of(*row)).collect::<Result<Vec<_>>>()?;
        have.rows(self.segment, &self.dtype, len_of(self.rows)?, &rows)
    }
}

/// Rows whose numbers do not compress, in several zones.
fn rows() -> RecordBatch {
    let noise = |row: i64| scattered(row as u64) as i64;
    let rows = || 0..20_000i64;
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from_iter_values(rows())) as ArrayRef, false),
        ("noise", Arc::new(Int64Array::from_iter(rows().map(|row| (row % 7 > 0).then(|| noise(row))))), true),
        ("real", Arc::new(Float64Array::from_iter_values(rows().map(|row| noise(row) as f64 / 3.0))), false),
        (
            "text",
            Arc::new(StringArray::from_iter_values(rows().map(|row| format!("{:x}", noise(row))))),
            false,
        ),
    ])
    .unwrap()
}

/// The bytes with one id in place of another.
fn renamed(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "{from} is not used");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}

async fn read(options: &OpenOptions, bytes: &[u8]) -> Result<(), Error> {
    let file = options.open(Arc::new(MemoryFile::new(bytes.to_vec()))).await?;
    file.scan().aggregate().await.map(|_| ())
}

#[tokio::test]
async fn predicates_on_a_column_share_what_they_decompress() {
    let noise = rows().project(&[1]).unwrap();
    let bytes = renamed(&written([&noise], WriteOptions::new()).await, BUILT_IN_NUMBERS, NUMBERS);
    let numbers = Numbers::default();
    let registry = Registry::built_in().with_encoding(Arc::new(numbers.clone()));
    let file = OpenOptions::new().with_registry(registry).open_bytes(bytes).unwrap();
    let count = |filter: Expr| {
        numbers.1.store(0, Ordering::Relaxed);
        let scan = file.scan().with_filter(filter).with_projection(Vec::<&str>::new());
        async { collect_valid(scan).await.unwrap().num_rows() }
    };
    let differs = |from: i64| column("noise").not_eq(scattered(from as u64) as i64);
    let all = noise.num_rows() - noise.column(0).null_count();
    for (filter, lacking) in
        [(differs(1), 1), (differs(1).and(differs(2)).and(differs(3)), 3), (differs(1).or(differs(2)), 0)]
    {
        assert_eq!(count(filter.clone()).await, all - lacking, "{filter}");
        let decoded = numbers.1.load(Ordering::Relaxed);
        assert_eq!(
            decoded,
            numbers.0.swap(0, Ordering::Relaxed),
            "of each array that was loaded, for {filter}"
        );
    }
}

#[tokio::test]
async fn files_are_read_with_an_encoding_and_a_layout_of_another_crate() {
    let original = written([&rows()], WriteOptions::new()).await;
    let plain = opened(original.clone()).await;
    let bytes = renamed(&original, BUILT_IN_NUMBERS, NUMBERS);
    let bytes = renamed(&bytes, BUILT_IN_WHOLE, WHOLE);

    let numbers = Numbers::default();
    let with_layout = Registry::built_in().with_layout(Arc::new(Whole));
    let with_both = with_layout.with_encoding(Arc::new(numbers.clone()));
    assert!(with_both.encoding_ids().contains(&NUMBERS) && with_both.layout(WHOLE).is_some());
    for (registry, missing) in [(Registry::built_in(), WHOLE), (with_layout, NUMBERS)] {
        let error = read(&OpenOptions::new().with_registry(registry), &bytes).await.unwrap_err();
        assert!(matches!(error.root(), Error::Unsupported { id, .. } if **id == *missing), "{error}");
    }

    let options = OpenOptions::new().with_registry(with_both);
    let sources: [Arc<dyn ReadAt>; 2] =
        [Arc::new(MemoryFile::new(bytes.clone())), Arc::new(Stored::new(bytes, StorageProfile::LOCAL))];
    for source in sources {
        let file = options.open(Arc::clone(&source)).await.unwrap();
        numbers.0.store(0, Ordering::Relaxed);
        let scans: [fn(&VortexFile) -> ScanBuilder; 7] = [
            |file| file.scan(),
            |file| file.scan().with_row_ranges(7000..9000),
            |file| file.scan().with_filter(column("id").between(8190, 8200)),
            |file| file.scan().with_filter(column("noise").gt(1i64 << 62).and(column("real").lt(0.0))),
            |file| file.scan().with_filter(column("noise").is_null()).with_limit(100),
            |file| file.scan().with_row_indices([3, 8192, 19_999]).with_row_access(RowAccess::Single),
            |file| file.scan().with_row_indices([]).with_row_access(RowAccess::Single),
        ];
        for (at, scan) in scans.into_iter().enumerate() {
            let (found, expected) = (collect_valid(scan(&file)).await, collect_valid(scan(&plain)).await);
            assert_eq!(found.unwrap(), expected.unwrap(), "scan {at}");
        }
        let large: Expr = column("noise").gt(0);
        let (found, expected) = (file.scan().with_filter(large.clone()), plain.scan().with_filter(large));
        assert_eq!(found.aggregate().await.unwrap(), expected.aggregate().await.unwrap());
        assert!(numbers.0.load(Ordering::Relaxed) > 0);
        assert_eq!(verify(source, &options).await.unwrap().problems, []);
    }
}

#[test]
fn streams_are_read_with_an_encoding_of_another_crate() {
    let batch = rows();
    let mut writer = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let original = writer.into_inner();
    let bytes = renamed(&original, BUILT_IN_NUMBERS, NUMBERS);

    let unknown = IpcReader::try_new(bytes.as_slice()).unwrap().next().unwrap().unwrap_err();
    assert!(unknown.to_string().contains(NUMBERS), "{unknown}");

    let numbers = Numbers::default();
    let registry = Registry::built_in().with_encoding(Arc::new(numbers.clone()));
    let reader = IpcReadOptions::new().with_registry(registry).open(bytes.as_slice()).unwrap();
    let found: Vec<_> = reader.map(|batch| batch.unwrap()).collect();
    let expected: Vec<_> =
        IpcReader::try_new(original.as_slice()).unwrap().map(|batch| batch.unwrap()).collect();
    assert_eq!(found, expected);
    assert!(numbers.0.load(Ordering::Relaxed) > 0);
}
