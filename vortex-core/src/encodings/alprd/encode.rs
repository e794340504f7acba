//! Finding where to split floats into two parts, and splitting them.

use arrow::buffer::NullBuffer;

use super::{ID, MAX_ENTRIES, Metadata};
use crate::dtype::PType;
use crate::encodings::bit_packed;
use crate::encodings::primitive;
use crate::encodings::shared::patches::EncodedPatches;
use crate::kernels::Word;
use crate::wire::WriteNode;

/// Maximum number of bits of a left part.
const MAX_LEFT: usize = 16;

/// Bits of an exception: its row index and its left part.
const EXCEPTION: usize = 32;

/// Where floats are split, and their most frequent left parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cut {
    right_width: usize,
    dictionary: Vec<u16>,
    /// Number of bits per row.
    pub(crate) bits: f64,
}

impl Cut {
    fn code_width(&self) -> usize {
        (usize::BITS - (self.dictionary.len() - 1).leading_zeros()).max(1) as usize
    }
}

/// The cut with which some floats take the least space.
pub(crate) fn find_cut<W: Word>(sample: &[u64]) -> Option<Cut> {
    let cuts = (1..=MAX_LEFT).map(|left| cut_at(sample, W::BITS - left));
    cuts.reduce(|best, cut| if cut.bits < best.bits { cut } else { best })
}

fn cut_at(sample: &[u64], right_width: usize) -> Cut {
    let mut parts: Vec<u64> = sample.iter().map(|bits| bits >> right_width).collect();
    parts.sort_unstable();
    let mut groups: Vec<(usize, u64)> =
        parts.chunk_by(|left, right| left == right).map(|group| (group.len(), group[0])).collect();
    groups.sort_unstable_by_key(|(count, part)| (std::cmp::Reverse(*count), *part));
    let exceptions: usize = groups.iter().skip(MAX_ENTRIES).map(|(count, _)| count).sum();
    // Left parts have at most 16 bits.
    let dictionary = groups.iter().take(MAX_ENTRIES).map(|(_, part)| *part as u16).collect();
    let cut = Cut { right_width, dictionary, bits: 0.0 };
    let exceptions = (EXCEPTION * exceptions) as f64 / sample.len() as f64;
    Cut { bits: (right_width + cut.code_width()) as f64 + exceptions, ..cut }
}

/// A node of floats, given as bits, split into two parts. Null rows are not patched.
pub(crate) fn encode<W: Word>(
    floats: &[W],
    cut: &Cut,
    nulls: Option<&NullBuffer>,
    validity: Option<WriteNode>,
) -> WriteNode {
    let width = cut.right_width;
    let mask = u64::MAX >> (u64::BITS as usize - width);
    let (mut codes, mut right) = (Vec::with_capacity(floats.len()), Vec::with_capacity(floats.len()));
    let (mut rows, mut parts) = (Vec::new(), Vec::new());
    let mut dictionary = [None; MAX_ENTRIES];
    dictionary.iter_mut().zip(&cut.dictionary).for_each(|(entry, part)| *entry = Some(*part));
    for (row, bits) in (0u32..).zip(floats) {
        let bits = bits.as_u64();
        right.push(W::narrow(bits & mask));
        // The left part has at most 16 bits, as in the dictionary.
        let part = (bits >> width) as u16;
        match dictionary.iter().position(|entry| *entry == Some(part)) {
            Some(code) => codes.push(code as u16),
            None => {
                codes.push(0u16);
                if nulls.is_none_or(|nulls| nulls.is_valid(row as usize)) {
                    rows.push(row);
                    parts.push(part);
                }
            }
        }
    }
    let codes = bit_packed::encode(&codes, 0, cut.code_width(), None, validity);
    let right = bit_packed::encode(&right, W::ZERO, width, None, None);
    let patches = (!rows.is_empty()).then(|| EncodedPatches::new(&rows, primitive::encode(parts, None)));
    let metadata = Metadata {
        // Widths are at most 64; there are at most 8 entries.
        right_bit_width: width as u32,
        entry_count: cut.dictionary.len() as u32,
        entries: cut.dictionary.iter().copied().map(u32::from).collect(),
        codes_ptype: PType::U16 as i32,
        patches: patches.as_ref().map(|patches| patches.message.clone()),
    };
    let node = WriteNode::new(ID).message(&metadata).child(codes).child(right);
    node.children(patches.into_iter().flat_map(|patches| [patches.indices, patches.values]))
}
