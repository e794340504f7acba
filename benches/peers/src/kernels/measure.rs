//! One case: the same bytes, loaded and decoded by both implementations in turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef as ArrowRef, AsArray};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::{DataType, Field};
use datafusion::error::{DataFusionError, Result};
use reference_vortex::VortexSessionDefault;
use reference_vortex::array::serde::{SerializeOptions, SerializedArray};
use reference_vortex::array::{ArrayContext, VortexSessionExecute};
use reference_vortex::arrow::ArrowSessionExt;
use reference_vortex::buffer::{Alignment, ByteBuffer};
use reference_vortex::error::VortexResult;
use reference_vortex::session::VortexSession;
use reference_vortex::session::registry::ReadContext;
use vortex_core::Limits;
use vortex_core::Registry;
use vortex_core::array::ArrayParts;
use vortex_core::dtype::DType;
use vortex_core::dtype::arrow::from_field;

use super::Outcome;
use super::cases::Case;

/// Minimum alignment of buffers in a file.
const ALIGNMENT: usize = 64;

/// Decodes a case with both implementations in turn.
pub(super) fn run(case: &Case, iterations: usize, alone: bool) -> Result<Outcome> {
    let external = |error| DataFusionError::External(format!("{}: {error}", case.name).into());
    let session = VortexSession::default();
    let bytes = Bytes::of(case, &session).map_err(|error| external(error.to_string()))?;
    let ours = Ours::new(&bytes, &case.plain).map_err(|error| external(error.to_string()))?;
    let reference = Reference::new(&bytes, &case.plain, session);
    let mut outcome = Outcome {
        name: case.name.clone(),
        bytes: decoded_bytes(&case.plain),
        is_stored: case.is_stored,
        ours: Vec::new(),
        reference: Vec::new(),
        objection: None,
    };
    for round in 0..=iterations {
        for side in 0..2 {
            let is_ours = (side + round) % 2 == 0;
            if alone && !is_ours {
                continue;
            }
            let decoded = if is_ours {
                ours.decode().map_err(|error| error.to_string())
            } else {
                reference.decode().map_err(|error| error.to_string())
            };
            let name = if is_ours { "ours" } else { "reference" };
            match decoded {
                // The first round is a warm-up.
                Ok((decoded, _)) if round == 0 => {
                    if decoded.to_data() != case.plain.to_data() {
                        outcome.objection = Some(format!("{name} decodes other values"));
                    }
                }
                Ok((_, time)) if is_ours => outcome.ours.push(time),
                Ok((_, time)) => outcome.reference.push(time),
                Err(error) => outcome.objection = Some(format!("{name} failed: {error}")),
            }
        }
    }
    Ok(outcome)
}

/// Number of bytes that decoding has to produce.
fn decoded_bytes(plain: &ArrowRef) -> usize {
    let strings = |lens: &mut dyn Iterator<Item = usize>| -> usize {
        lens.map(|len| if len > 12 { len } else { 0 }).sum()
    };
    match plain.data_type() {
        DataType::Boolean => plain.len().div_ceil(8),
        DataType::Utf8View => {
            let views = plain.as_string_view();
            views.len() * 16 + strings(&mut views.iter().map(|value| value.map_or(0, str::len)))
        }
        other => plain.len() * other.primitive_width().unwrap_or(1),
    }
}

/// A serialized array, as in a segment.
struct Bytes {
    blob: MutableBuffer,
    context: ArrayContext,
    dtype: reference_vortex::dtype::DType,
}

impl Bytes {
    fn of(case: &Case, session: &VortexSession) -> VortexResult<Self> {
        let array = case.encode(&mut session.create_execution_ctx())?;
        let context = ArrayContext::empty();
        let options = SerializeOptions { offset: 0, include_padding: true };
        let mut blob = MutableBuffer::new(0);
        for part in array.serialize(&context, session, &options)? {
            blob.extend_from_slice(part.as_slice());
        }
        Ok(Self { blob, context, dtype: array.dtype().clone() })
    }
}

struct Ours {
    blob: Buffer,
    ids: Arc<[Arc<str>]>,
    dtype: DType,
    to: DataType,
    len: usize,
    registry: Registry,
}

impl Ours {
    fn new(bytes: &Bytes, plain: &ArrowRef) -> vortex_core::Result<Self> {
        let ids: Arc<[Arc<str>]> = bytes.context.to_ids().iter().map(|id| Arc::from(id.as_str())).collect();
        let nullable = bytes.dtype.is_nullable();
        let mut blob = MutableBuffer::new(bytes.blob.len());
        blob.extend_from_slice(bytes.blob.as_slice());
        Ok(Self {
            blob: Buffer::from(blob),
            ids,
            dtype: from_field(&Field::new("", plain.data_type().clone(), nullable))?,
            to: plain.data_type().clone(),
            len: plain.len(),
            registry: Registry::built_in(),
        })
    }

    fn decode(&self) -> vortex_core::Result<(ArrowRef, Duration)> {
        let start = Instant::now();
        let parts = ArrayParts::parse(self.blob.clone(), Arc::clone(&self.ids), &Limits::default())?;
        let array = parts.load(&self.dtype, self.len, &self.registry, &Limits::default())?;
        let decoded = array.decode(&self.to)?;
        Ok((decoded, start.elapsed()))
    }
}

struct Reference {
    blob: ByteBuffer,
    context: ReadContext,
    dtype: reference_vortex::dtype::DType,
    to: Field,
    len: usize,
    session: VortexSession,
}

impl Reference {
    fn new(bytes: &Bytes, plain: &ArrowRef, session: VortexSession) -> Self {
        Self {
            blob: ByteBuffer::copy_from_aligned(bytes.blob.as_slice(), Alignment::new(ALIGNMENT)),
            context: ReadContext::new(bytes.context.to_ids()),
            dtype: bytes.dtype.clone(),
            to: Field::new("", plain.data_type().clone(), bytes.dtype.is_nullable()),
            len: plain.len(),
            session,
        }
    }

    fn decode(&self) -> VortexResult<(ArrowRef, Duration)> {
        let mut context = self.session.create_execution_ctx();
        let arrow = self.session.arrow();
        let start = Instant::now();
        let parts = SerializedArray::try_from(self.blob.clone())?;
        let array = parts.decode(&self.dtype, self.len, &self.context, &self.session)?;
        let decoded = arrow.execute_arrow(array, Some(&self.to), &mut context)?;
        Ok((decoded, start.elapsed()))
    }
}
