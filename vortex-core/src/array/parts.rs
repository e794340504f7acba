//! Decoding the parts of nested arrays, within one limit for all of them together.
//!
//! Every array limits its own bytes. A file, however, can give a struct any number of fields, and a list any
//! number of items, each as large as an array may be. Nested arrays therefore decode their parts through
//! [`Parts`], which adds them up, whatever the depth. The sum belongs to the thread, as decoding is one
//! recursion that never waits; encodings between a struct and its fields need not know of it.

use std::cell::Cell;

use arrow::array::ArrayData;
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;

use super::{ArrayRef, ArrowRef, EncodedArray};
use crate::Result;
use crate::limits::Limits;

thread_local! {
    /// How many nested arrays this thread is decoding, one within the other.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The bytes of all parts that it has decoded for the outermost of them.
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The parts of a nested array that is being decoded.
pub(crate) struct Parts {
    limits: Limits,
}

impl Parts {
    /// Begins to decode the parts of `array`.
    pub(crate) fn of(array: &dyn EncodedArray) -> Self {
        if DEPTH.get() == 0 {
            BYTES.set(0);
        }
        DEPTH.set(DEPTH.get() + 1);
        Self { limits: array.limits() }
    }

    /// Decodes a part.
    ///
    /// # Errors
    /// If all parts together exceed the limits, or as [`EncodedArray::decode`].
    pub(crate) fn decode(&self, part: &ArrayRef, to: &DataType) -> Result<ArrowRef> {
        let decoded = part.decode(to)?;
        // Nested parts have added up theirs.
        if !to.is_nested() {
            BYTES.set(BYTES.get().saturating_add(byte_len(&decoded.to_data())));
            self.limits.decoded_bytes(usize::try_from(BYTES.get()).unwrap_or(usize::MAX), 1)?;
        }
        Ok(decoded)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

fn byte_len(data: &ArrayData) -> u64 {
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    data.buffers().iter().chain(nulls).map(Buffer::len).fold(0, |sum, len| sum.saturating_add(len as u64))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::dtype::{DType, PType, StructType};
    use crate::limits::Limits;

    fn constants(fields: usize) -> (Tree, DType) {
        let field = DType::Primitive(PType::I64, false);
        let names = (0..fields).map(|at| (format!("f{at}").into(), field.clone()));
        let tree = (0..fields).fold(Tree::new("vortex.struct"), |tree, _| {
            // A scalar of protobuf: sint64 7.
            tree.child(Tree::new("vortex.constant").buffer([0x18u8, 14]))
        });
        (tree, DType::Struct(Arc::new(StructType::new(names)), false))
    }

    #[test]
    fn fields_are_limited_together() {
        let (tree, dtype) = constants(10);
        let limits = Limits::new().with_max_decoded_bytes(5000);
        let array = tree.load_within(&dtype, 100, &limits).unwrap();
        let to = data_type(&dtype).unwrap();
        for _ in 0..3 {
            let error = array.decode(&to).unwrap_err().to_string();
            assert!(error.contains("exceed 5000 bytes"), "{error}");
            assert_eq!(array.slice(0..50).unwrap().decode(&to).unwrap().len(), 50);
        }
    }

    #[test]
    fn fields_of_list_items_are_limited_together() {
        let (item, dtype) = constants(100);
        let offsets = Tree::primitive(&[0u32, 1 << 20]);
        let tree = Tree::new("vortex.list")
            .metadata(vec![0x08, 0x80, 0x80, 0x40, 0x10, 2])
            .child(item)
            .child(offsets);
        let dtype = DType::List(Arc::new(dtype), false);
        let limits = Limits::new().with_max_decoded_bytes(64 << 20);
        let array = tree.load_within(&dtype, 1, &limits).unwrap();
        assert!(array.decode(&data_type(&dtype).unwrap()).is_err(), "100 fields of 8 MiB");
    }
}
