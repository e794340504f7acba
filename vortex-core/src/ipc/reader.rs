//! Reading a stream, message by message.

use std::io::Read;
use std::ops::Range;

use arrow::array::{AsArray as _, RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use crate::Registry;
use crate::array::{ArrayParts, EncodedRef};
use crate::dtype::DType;
use crate::dtype::arrow::{data_type, schema};
use crate::error::ResultExt as _;
use crate::limits::{Limits, Work};
use crate::wire::{Message, MessageKind, dtype_from_bytes};
use crate::{Error, Result};

/// Maximum length of a message before its body; real ones have some hundred bytes.
const MAX_HEADER: u64 = 1 << 20;

/// Maximum number of rows of a batch. Longer messages result in several batches, since a constant of 2^32
/// rows takes only a few bytes before it is decoded.
const MAX_BATCH_ROWS: usize = 64 << 10;

/// Options of reading a stream.
///
/// ```no_run
/// use std::fs::File;
/// use std::io::BufReader;
///
/// use vortex_core::Limits;
/// use vortex_core::ipc::IpcReadOptions;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = IpcReadOptions::new().with_limits(Limits::new().with_max_decoded_bytes(64 << 20));
/// for batch in options.open(BufReader::new(File::open("visits.stream")?))? {
///     println!("{} rows", batch?.num_rows());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct IpcReadOptions {
    limits: Limits,
    registry: Registry,
}

impl IpcReadOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the limits on what the stream may require of the reader. The defaults are listed at [`Limits`].
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the known encodings; by default, those [built in](Registry::built_in).
    #[must_use]
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Starts reading: reads the first message, which contains the type of all others.
    ///
    /// # Errors
    /// If reading fails, or the first message is not a dtype.
    pub fn open<R: Read>(&self, source: R) -> Result<IpcReader<R>> {
        let mut messages = Messages { source, limits: self.limits, at: 0 };
        let dtype = match messages.next()? {
            Some((MessageKind::DType, body)) => dtype_from_bytes(&body, &self.limits)?,
            Some(_) => return Err(Error::corrupt("the stream does not start with its dtype")),
            None => return Err(Error::corrupt("the stream is empty")),
        };
        let schema = schema(&dtype)?;
        Ok(IpcReader { messages, registry: self.registry.clone(), dtype, schema, array: None, done: false })
    }
}

/// The messages of a stream.
#[derive(Debug)]
struct Messages<R> {
    source: R,
    limits: Limits,
    /// Number of bytes read so far, for error messages.
    at: u64,
}

impl<R: Read> Messages<R> {
    /// The next message and its body, or `None` at the end of the stream.
    fn next(&mut self) -> Result<Option<(MessageKind, Buffer)>> {
        let start = self.at;
        self.read_message().at(|| format!("message at byte {start}"))
    }

    fn read_message(&mut self) -> Result<Option<(MessageKind, Buffer)>> {
        let prefix = self.read(4)?;
        if prefix.is_empty() {
            return Ok(None);
        }
        let Ok(prefix) = <[u8; 4]>::try_from(prefix.as_slice()) else { return Err(ends_early(4)) };
        let header_len = u64::from(u32::from_le_bytes(prefix));
        if header_len > MAX_HEADER {
            return Err(Error::limit(format!("message of {header_len} bytes before its body")));
        }
        let message = Message::parse(&self.read_exactly(header_len)?, &self.limits)?;
        if message.body_len > self.limits.max_decoded_bytes {
            return Err(Error::limit(format!("message body of {} bytes", message.body_len)));
        }
        let body = self.read_exactly(message.body_len)?;
        Ok(Some((message.kind, Buffer::from_vec(body))))
    }

    fn read_exactly(&mut self, len: u64) -> Result<Vec<u8>> {
        let bytes = self.read(len)?;
        if bytes.len() as u64 == len { Ok(bytes) } else { Err(ends_early(len)) }
    }

    /// Reads at most `len` bytes. Memory grows with the bytes that arrive, not with the claimed length.
    fn read(&mut self, len: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let outcome = self.source.by_ref().take(len).read_to_end(&mut bytes);
        outcome.map_err(|error| Error::read("stream", self.at..self.at.saturating_add(len), error))?;
        self.at += bytes.len() as u64;
        Ok(bytes)
    }
}

fn ends_early(len: u64) -> Error {
    Error::corrupt(format!("the stream ends within {len} bytes of a message"))
}

/// Reads the record batches of an IPC stream. If its type is not a struct, batches have a single column
/// called `value`.
#[derive(Debug)]
pub struct IpcReader<R> {
    messages: Messages<R>,
    registry: Registry,
    dtype: DType,
    schema: SchemaRef,
    /// The array of the current message, and its rows that have not been returned yet.
    array: Option<(EncodedRef, Range<usize>)>,
    /// Whether the stream has ended or failed, after which nothing can be interpreted.
    done: bool,
}

impl<R: Read> IpcReader<R> {
    /// Starts reading with default options.
    ///
    /// # Errors
    /// If reading fails, or the first message is not a dtype.
    pub fn try_new(source: R) -> Result<Self> {
        IpcReadOptions::new().open(source)
    }

    /// The logical type of all arrays.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some((array, rows)) = self.array.take() {
                let end = rows.end.min(rows.start.saturating_add(MAX_BATCH_ROWS));
                let batch = self.batch(&array.slice(rows.start..end)?)?;
                if end < rows.end {
                    self.array = Some((array, end..rows.end));
                }
                return Ok(Some(batch));
            }
            match self.messages.next()? {
                None => return Ok(None),
                Some((MessageKind::Array { row_count, ids }, body)) => {
                    let len = usize::try_from(row_count).map_err(Error::limit)?;
                    let limits = &self.messages.limits;
                    let parts = ArrayParts::parse(body, ids, limits)?;
                    let array = parts.load(&self.dtype, len, &self.registry, limits)?;
                    self.array = Some((array, 0..len));
                }
                Some((MessageKind::DType, _)) => return Err(Error::corrupt("a second dtype in the stream")),
            }
        }
    }

    fn batch(&self, array: &EncodedRef) -> Result<RecordBatch> {
        let _work = Work::begin();
        let decoded = array.decode(&data_type(&self.dtype)?)?;
        let columns = match self.dtype.as_columns() {
            Some(_) => decoded.as_struct().columns().to_vec(),
            None => vec![decoded],
        };
        let options = RecordBatchOptions::new().with_row_count(Some(array.len()));
        Ok(RecordBatch::try_new_with_options(SchemaRef::clone(&self.schema), columns, &options)?)
    }
}

impl<R: Read> Iterator for IpcReader<R> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let outcome = self.next_batch();
        self.done = !matches!(outcome, Ok(Some(_)));
        outcome.map_err(|error| ArrowError::ExternalError(Box::new(error))).transpose()
    }
}

impl<R: Read> RecordBatchReader for IpcReader<R> {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}
