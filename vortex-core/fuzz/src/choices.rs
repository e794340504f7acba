//! Bytes of a fuzzer as a sequence of choices. When they run out, every choice is the first.

use std::sync::Arc;

use vortex_core::dtype::{DType, DecimalType, Extension, MapType, PType, StructType};

/// The choices not made yet.
#[derive(Debug)]
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// An integer: small, at an edge of some width, near `like`, or anything.
    pub fn integer(&mut self, like: u64) -> u64 {
        match self.below(8) {
            0 => like,
            1 => like.wrapping_add(1),
            2 => like / 2,
            3 | 4 => u64::from(self.byte()),
            5 => 1 << self.below(64),
            6 => (1 << self.below(64)) - 1,
            _ => self.word(),
        }
    }

    pub fn take(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    /// Up to 255 bytes.
    pub fn some_bytes(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte()).min(self.bytes.len());
        self.take(len)
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.bytes
    }

    pub fn ptype(&mut self) -> PType {
        PType::ALL[self.below(PType::ALL.len())]
    }

    /// A type, nested at most `depth` times.
    pub fn dtype(&mut self, depth: usize) -> DType {
        let (kind, nullable) = (self.below(if depth == 0 { 8 } else { 13 }), self.flag());
        match kind {
            0..=2 => DType::Primitive(self.ptype(), nullable),
            3 => DType::Bool(nullable),
            4 => DType::Utf8(nullable),
            5 => DType::Binary(nullable),
            6 => {
                let precision = self.byte() % 76 + 1;
                let scale = (self.byte() % (precision + 1)) as i8;
                DType::Decimal(DecimalType::try_new(precision, scale).expect("in range"), nullable)
            }
            7 => self.extension(nullable),
            8 => DType::List(Arc::new(self.dtype(depth - 1)), nullable),
            9 => {
                let size = self.integer(3) as u32;
                DType::FixedSizeList(Arc::new(self.dtype(depth - 1)), size, nullable)
            }
            10 => {
                let count = self.below(4);
                let fields: Vec<_> =
                    (0..count).map(|at| (at.to_string().into(), self.dtype(depth - 1))).collect();
                DType::Struct(Arc::new(StructType::new(fields)), nullable)
            }
            11 => {
                let key = self.dtype(0).with_nullable(false);
                let value = self.dtype(depth - 1);
                match MapType::try_new(key, value, self.flag()) {
                    Ok(map) => DType::Map(Arc::new(map), nullable),
                    Err(_) => DType::Null,
                }
            }
            _ => {
                if nullable {
                    DType::Null
                } else {
                    DType::Variant(self.flag())
                }
            }
        }
    }

    fn extension(&mut self, nullable: bool) -> DType {
        let unit = self.byte() % 5;
        let number = |ptype| DType::Primitive(ptype, nullable);
        let made = match self.below(5) {
            0 => Extension::try_new("vortex.date", number(PType::I32), vec![4]),
            1 => Extension::try_new(
                "vortex.timestamp",
                number(PType::I64),
                vec![unit % 4, 3, 0, b'U', b'T', b'C'],
            ),
            2 => Extension::try_new("vortex.time", number(PType::I64), vec![unit % 2]),
            3 => {
                let byte = Arc::new(DType::Primitive(PType::U8, false));
                Extension::try_new("vortex.uuid", DType::FixedSizeList(byte, 16, nullable), vec![])
            }
            _ => Extension::try_new("unknown", number(PType::I16), self.some_bytes()),
        };
        DType::Extension(Arc::new(made.expect("its own storage")))
    }

    /// Bytes that parse as a protobuf message, of integers near `like` as a rule.
    pub fn message(&mut self, like: u64, depth: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..self.below(6) {
            let tag = self.byte() % 8 + 1;
            if depth > 0 && self.below(4) == 0 {
                let inner = self.message(like, depth - 1);
                bytes.extend([tag << 3 | 2, inner.len().min(127) as u8]);
                bytes.extend(inner.iter().take(127));
            } else {
                bytes.push(tag << 3);
                let mut value = self.integer(like);
                while value > 127 {
                    bytes.push(value as u8 | 128);
                    value >>= 7;
                }
                bytes.push(value as u8);
            }
        }
        bytes
    }
}
