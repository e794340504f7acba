//! Builds array blobs and files out of trees, by the slots of the format's tables.

use std::sync::Arc;

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Push, PushAlignment, Table, Vector, WIPOffset};

use vortex_core::array::{ArrayParts, EncodedRef};
use vortex_core::dtype::DType;
use vortex_core::{Registry, Result};

use crate::{Choices, limits};

/// An array as it lies in a segment, and what its bytes do not tell.
#[derive(Debug, Clone)]
pub struct ArrayBlob {
    pub blob: Vec<u8>,
    /// What the numbers of encodings mean.
    pub ids: Arc<[Arc<str>]>,
    pub dtype: DType,
    pub len: u64,
}

/// A node of an array tree to be.
#[derive(Debug, Default)]
pub struct Tree {
    pub encoding: u16,
    pub metadata: Vec<u8>,
    pub buffers: Vec<Vec<u8>>,
    pub children: Vec<Tree>,
}

/// A node of a layout tree to be.
#[derive(Debug, Default)]
pub struct LayoutTree {
    pub kind: u16,
    pub row_count: u64,
    pub metadata: Vec<u8>,
    pub segments: Vec<u32>,
    pub children: Vec<LayoutTree>,
}

/// Ids of the layouts that trees refer to.
pub const LAYOUTS: [&str; 9] = [
    "vortex.flat",
    "vortex.chunked",
    "vortex.struct",
    "vortex.stats",
    "vortex.zoned",
    "vortex.dict",
    "vortex.list",
    "vortex.indexed",
    "unknown",
];

fn position(ids: &[&str], id: &str) -> u16 {
    ids.iter().position(|candidate| *candidate == id).unwrap_or(0) as u16
}

impl ArrayBlob {
    /// An array of any type whose root has encoding `root` of those built in.
    pub fn choose(choices: &mut Choices<'_>, root: usize) -> Self {
        let ids = Registry::built_in().encoding_ids();
        let dtype = choices.dtype(2);
        let len = choices.integer(40);
        let mut tree = Tree::choose(choices, &ids, len, 3);
        tree.encoding = root as u16;
        Self { blob: tree.blob(), ids: ids.into_iter().map(Arc::from).collect(), dtype, len }
    }

    /// Checks the tree against type and length.
    pub fn load(&self) -> Result<EncodedRef> {
        let parts = ArrayParts::parse(self.blob.clone().into(), Arc::clone(&self.ids), &limits())?;
        parts.load(&self.dtype, usize::try_from(self.len).unwrap_or(0), &Registry::built_in(), &limits())
    }

    /// The ids of encodings, those of no node replaced by one that nothing has.
    pub fn ids_in_use(&self) -> Vec<&str> {
        let parts = ArrayParts::parse(self.blob.clone().into(), Arc::clone(&self.ids), &limits());
        let used = parts.map(|parts| parts.encodings()).unwrap_or_default();
        let is_used = |id: &str| used.iter().any(|(_, used)| used == id);
        self.ids.iter().map(|id| if is_used(id) { &**id } else { "unused" }).collect()
    }
}

impl Tree {
    /// A tree for about `len` rows; `ids` are the encodings it may use.
    pub fn choose(choices: &mut Choices<'_>, ids: &[&str], len: u64, depth: usize) -> Tree {
        if depth == 0 || choices.below(3) == 0 {
            return Self::leaf(choices, ids, len);
        }
        let encoding = choices.below(ids.len()) as u16;
        let metadata = if choices.below(8) == 0 { choices.some_bytes() } else { choices.message(len, 2) };
        let buffers = (0..choices.below(4)).map(|_| choices.some_bytes()).collect();
        let children = (0..choices.below(5)).map(|_| Self::choose(choices, ids, len, depth - 1)).collect();
        Tree { encoding, metadata, buffers, children }
    }

    /// Something that fits many places: what it takes to get past the first check.
    fn leaf(choices: &mut Choices<'_>, ids: &[&str], len: u64) -> Tree {
        let constant = |scalar: Vec<u8>| Tree {
            encoding: position(ids, "vortex.constant"),
            buffers: vec![scalar],
            ..Tree::default()
        };
        match choices.below(6) {
            0 => constant(vec![0x18, choices.byte() & 0x7f]),
            1 => constant(vec![0x10, choices.byte() & 1]),
            2 => constant(vec![0x08, 0]),
            3 => {
                let text = choices.some_bytes();
                constant([vec![0x42, text.len().min(127) as u8], text].concat())
            }
            4 => Tree {
                encoding: position(ids, "vortex.bool"),
                buffers: vec![choices.take((len as usize % (1 << 12)).div_ceil(8) + 1)],
                ..Tree::default()
            },
            _ => {
                let rows = (len as usize % (1 << 12)) + choices.below(3);
                let width = 1 << choices.below(4);
                Tree {
                    encoding: position(ids, "vortex.primitive"),
                    buffers: vec![choices.take(rows * width)],
                    ..Tree::default()
                }
            }
        }
    }

    /// The tree as `[buffers][flatbuffer][length]`.
    pub fn blob(&self) -> Vec<u8> {
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        let mut builder = FlatBufferBuilder::new();
        let root = self.write(&mut builder, &mut bytes, &mut records);
        let records = builder.create_vector(&records);
        let table = builder.start_table();
        builder.push_slot_always(slot(0), root);
        builder.push_slot_always(slot(1), records);
        let table = builder.end_table(table);
        builder.finish_minimal(table);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(builder.finished_data());
        bytes.extend((builder.finished_data().len() as u32).to_le_bytes());
        bytes
    }

    fn write<'b>(
        &self,
        builder: &mut FlatBufferBuilder<'b>,
        bytes: &mut Vec<u8>,
        records: &mut Vec<Record<8>>,
    ) -> WIPOffset<Table<'b>> {
        let mut own = Vec::new();
        for buffer in &self.buffers {
            let padding = bytes.len().next_multiple_of(8) - bytes.len();
            bytes.resize(bytes.len() + padding, 0);
            bytes.extend(buffer);
            own.push(records.len() as u16);
            records.push(Record((padding as u64 | 3 << 16 | (buffer.len() as u64) << 32).to_le_bytes()));
        }
        let children: Vec<_> =
            self.children.iter().map(|child| child.write(builder, bytes, records)).collect();
        let children: WIPOffset<Vector<'b, ForwardsUOffset<Table<'b>>>> = builder.create_vector(&children);
        let (metadata, own) = (builder.create_vector(&self.metadata), builder.create_vector(&own));
        let table = builder.start_table();
        builder.push_slot_always(slot(0), self.encoding);
        builder.push_slot_always(slot(1), metadata);
        builder.push_slot_always(slot(2), children);
        builder.push_slot_always(slot(3), own);
        WIPOffset::new(builder.end_table(table).value())
    }
}

impl LayoutTree {
    /// A tree of about `rows` rows over `segments` segments.
    pub fn choose(choices: &mut Choices<'_>, rows: u64, segments: usize, depth: usize) -> Self {
        let row_count = if choices.below(4) == 0 { choices.integer(rows) } else { rows };
        if depth == 0 || choices.below(3) == 0 {
            let segments = vec![choices.below(segments + 1) as u32];
            return Self { kind: 0, row_count, segments, ..Self::default() };
        }
        let kind = choices.below(LAYOUTS.len()) as u16;
        let message = choices.message(row_count, 1);
        let metadata = match LAYOUTS[usize::from(kind)] {
            "vortex.flat" | "vortex.chunked" | "vortex.struct" => Vec::new(),
            "vortex.zoned" | "vortex.indexed" => [vec![1], message].concat(),
            "vortex.stats" => choices.some_bytes(),
            _ => message,
        };
        let children = (0..choices.below(4)).map(|_| Self::choose(choices, row_count, segments, depth - 1));
        let children = children.collect();
        Self { kind, row_count, metadata, segments: Vec::new(), children }
    }

    fn write<'b>(&self, builder: &mut FlatBufferBuilder<'b>) -> WIPOffset<Table<'b>> {
        let children: Vec<_> = self.children.iter().map(|child| child.write(builder)).collect();
        let children: WIPOffset<Vector<'b, ForwardsUOffset<Table<'b>>>> = builder.create_vector(&children);
        let metadata = builder.create_vector(&self.metadata);
        let segments = builder.create_vector(&self.segments);
        let table = builder.start_table();
        builder.push_slot_always(slot(0), self.kind);
        builder.push_slot_always(slot(1), self.row_count);
        builder.push_slot_always(slot(2), metadata);
        builder.push_slot_always(slot(3), children);
        builder.push_slot_always(slot(4), segments);
        WIPOffset::new(builder.end_table(table).value())
    }
}

/// A file of these segments under this layout; its dtype is not in it.
pub fn file(layout: &LayoutTree, segments: &[Vec<u8>], encodings: &[&str]) -> Vec<u8> {
    let mut file = b"VTXF\0\0\0\0".to_vec();
    let mut specs = Vec::new();
    for segment in segments {
        let mut record = [0; 16];
        record[..8].copy_from_slice(&(file.len() as u64).to_le_bytes());
        record[8..12].copy_from_slice(&(segment.len() as u32).to_le_bytes());
        specs.push(Record(record));
        file.extend(segment);
        file.resize(file.len().next_multiple_of(8), 0);
    }
    let mut builder = FlatBufferBuilder::new();
    let root = layout.write(&mut builder);
    builder.finish_minimal(root);
    let layout = append(&mut file, builder.finished_data());

    let mut builder = FlatBufferBuilder::new();
    let encodings = id_table(&mut builder, encodings);
    let layouts = id_table(&mut builder, &LAYOUTS);
    let specs = builder.create_vector(&specs);
    let table = builder.start_table();
    builder.push_slot_always(slot(0), encodings);
    builder.push_slot_always(slot(1), layouts);
    builder.push_slot_always(slot(2), specs);
    let table = builder.end_table(table);
    builder.finish_minimal(table);
    let footer = append(&mut file, builder.finished_data());

    let mut builder = FlatBufferBuilder::new();
    let (layout, footer) = (part(&mut builder, layout), part(&mut builder, footer));
    let table = builder.start_table();
    builder.push_slot_always(slot(1), layout);
    builder.push_slot_always(slot(3), footer);
    let table = builder.end_table(table);
    builder.finish_minimal(table);
    file.extend(builder.finished_data());
    file.extend(1u16.to_le_bytes());
    file.extend((builder.finished_data().len() as u16).to_le_bytes());
    file.extend(b"VTXF");
    file
}

fn append(file: &mut Vec<u8>, bytes: &[u8]) -> (u64, u32) {
    let at = file.len() as u64;
    file.extend(bytes);
    file.resize(file.len().next_multiple_of(8), 0);
    (at, bytes.len() as u32)
}

fn part<'b>(builder: &mut FlatBufferBuilder<'b>, (offset, length): (u64, u32)) -> WIPOffset<Table<'b>> {
    let table = builder.start_table();
    builder.push_slot_always(slot(0), offset);
    builder.push_slot_always(slot(1), length);
    WIPOffset::new(builder.end_table(table).value())
}

fn id_table<'b>(
    builder: &mut FlatBufferBuilder<'b>,
    ids: &[&str],
) -> WIPOffset<Vector<'b, ForwardsUOffset<Table<'b>>>> {
    let mut tables: Vec<WIPOffset<Table<'b>>> = Vec::new();
    for id in ids {
        let id = builder.create_string(id);
        let table = builder.start_table();
        builder.push_slot_always(slot(0), id);
        tables.push(WIPOffset::new(builder.end_table(table).value()));
    }
    builder.create_vector(&tables)
}

/// Where a slot lies in a vtable.
fn slot(at: u16) -> u16 {
    4 + 2 * at
}

/// A struct of `N` bytes, as it lies in a vector.
#[derive(Debug, Clone, Copy)]
struct Record<const N: usize>([u8; N]);

impl<const N: usize> Push for Record<N> {
    type Output = Self;

    unsafe fn push(&self, target: &mut [u8], _written: usize) {
        target[..N].copy_from_slice(&self.0);
    }

    fn size() -> usize {
        N
    }

    fn alignment() -> PushAlignment {
        PushAlignment::new(8)
    }
}
