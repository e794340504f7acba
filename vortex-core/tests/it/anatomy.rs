//! Locates the fields of a file's tables without the crate under test.
//!
//! Traverses the flatbuffers of an intact file manually and records every meaningful integer, so that
//! damage can be aimed at it.

use std::ops::Range;

/// The meaning of an integer in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum What {
    PartOffset,
    PartLen,
    SegmentOffset,
    SegmentLen,
    Alignment,
    LayoutKind,
    RowCount,
    SegmentId,
    LayoutTable,
    Encoding,
    ArrayTable,
    BufferIdx,
    BufferPadding,
    BufferLen,
    Metadata,
    TypeTag,
    TypeParameter,
    TypeTable,
    VectorLen,
    Statistic,
    TreeLen,
    PostscriptLen,
}

/// An integer in the file: its position and width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) at: usize,
    pub(crate) width: usize,
    pub(crate) what: What,
}

/// The sites and tables of one file.
#[derive(Debug, Default)]
pub(crate) struct Anatomy {
    pub(crate) sites: Vec<Site>,
    /// The ranges of the flatbuffers.
    pub(crate) tables: Vec<Range<usize>>,
    /// The ranges of the data segments.
    pub(crate) segments: Vec<Range<usize>>,
}

/// A flatbuffer table at a position of the file.
#[derive(Clone, Copy)]
struct Table<'a> {
    file: &'a [u8],
    at: usize,
}

pub(crate) fn read_uint(file: &[u8], at: usize, width: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(&file[at..at + width]);
    u64::from_le_bytes(wide)
}

fn position(file: &[u8], at: usize) -> usize {
    at + read_uint(file, at, 4) as usize
}

impl<'a> Table<'a> {
    fn root(file: &'a [u8], start: usize) -> Self {
        Self { file, at: position(file, start) }
    }

    /// The position of the field in a slot, if it is present.
    fn field(&self, slot: usize) -> Option<usize> {
        let back = read_uint(self.file, self.at, 4) as u32 as i32;
        let vtable = usize::try_from(self.at as i64 - i64::from(back)).ok()?;
        let entry = 4 + 2 * slot;
        if entry >= read_uint(self.file, vtable, 2) as usize {
            return None;
        }
        let offset = read_uint(self.file, vtable + entry, 2) as usize;
        (offset > 0).then_some(self.at + offset)
    }

    fn table(&self, slot: usize) -> Option<Table<'a>> {
        let at = self.field(slot)?;
        Some(Table { file: self.file, at: position(self.file, at) })
    }

    /// The position of the length of a vector, which is followed by its items, and the length.
    fn vector(&self, slot: usize) -> Option<(usize, usize)> {
        let at = position(self.file, self.field(slot)?);
        Some((at, read_uint(self.file, at, 4) as usize))
    }
}

impl Anatomy {
    pub(crate) fn of(file: &[u8]) -> Self {
        let mut anatomy = Anatomy::default();
        let eof = file.len() - 8;
        anatomy.site(eof + 2, 2, What::PostscriptLen);
        let start = eof - read_uint(file, eof + 2, 2) as usize;
        anatomy.tables.push(start..eof);
        let postscript = Table::root(file, start);
        let parts: Vec<_> = (0..4).map(|slot| anatomy.part(postscript, slot)).collect();
        anatomy.tables.extend(parts.iter().flatten().cloned());
        let [dtype, layout, statistics, footer] = parts.as_slice() else { unreachable!("four parts") };
        if let Some(range) = dtype {
            anatomy.dtype(Table::root(file, range.start));
        }
        if let Some(range) = layout {
            anatomy.layout(Table::root(file, range.start));
        }
        if let Some(range) = statistics {
            let (at, count) = Table::root(file, range.start).vector(0).unwrap_or((range.start, 0));
            for item in 0..count {
                anatomy.statistics(Table { file, at: position(file, at + 4 + 4 * item) });
            }
        }
        if let Some(range) = footer {
            anatomy.footer(Table::root(file, range.start));
        }
        anatomy
    }

    fn site(&mut self, at: usize, width: usize, what: What) {
        self.sites.push(Site { at, width, what });
    }

    fn field(&mut self, table: Table<'_>, slot: usize, width: usize, what: What) {
        if let Some(at) = table.field(slot) {
            self.site(at, width, what);
        }
    }

    fn part(&mut self, postscript: Table<'_>, slot: usize) -> Option<Range<usize>> {
        let part = postscript.table(slot)?;
        self.field(part, 0, 8, What::PartOffset);
        self.field(part, 1, 4, What::PartLen);
        self.field(part, 2, 1, What::Alignment);
        let start = read_uint(part.file, part.field(0)?, 8) as usize;
        Some(start..start + read_uint(part.file, part.field(1)?, 4) as usize)
    }

    fn footer(&mut self, footer: Table<'_>) {
        for slot in 0..2 {
            if let Some((at, _)) = footer.vector(slot) {
                self.site(at, 4, What::VectorLen);
            }
        }
        let Some((at, count)) = footer.vector(2) else { return };
        self.site(at, 4, What::VectorLen);
        for spec in (0..count).map(|item| at + 4 + 16 * item) {
            self.site(spec, 8, What::SegmentOffset);
            self.site(spec + 8, 4, What::SegmentLen);
            self.site(spec + 12, 1, What::Alignment);
            let start = read_uint(footer.file, spec, 8) as usize;
            let end = start + read_uint(footer.file, spec + 8, 4) as usize;
            self.segments.push(start..end);
            if end <= footer.file.len() && end - start > 4 {
                self.segment(footer.file, start, end);
            }
        }
    }

    fn segment(&mut self, file: &[u8], start: usize, end: usize) {
        let tree_len = read_uint(file, end - 4, 4) as usize;
        self.site(end - 4, 4, What::TreeLen);
        let tree = (end - 4).saturating_sub(tree_len);
        if tree < start {
            return;
        }
        self.tables.push(tree..end - 4);
        let root = Table::root(file, tree);
        if let Some((at, count)) = root.vector(1) {
            self.site(at, 4, What::VectorLen);
            for buffer in (0..count).map(|item| at + 4 + 8 * item) {
                self.site(buffer, 2, What::BufferPadding);
                self.site(buffer + 2, 1, What::Alignment);
                self.site(buffer + 4, 4, What::BufferLen);
            }
        }
        if let Some(node) = root.table(0) {
            self.array(node);
        }
    }

    fn array(&mut self, node: Table<'_>) {
        self.field(node, 0, 2, What::Encoding);
        self.metadata(node, 1);
        self.children(node, 2, What::ArrayTable, Self::array);
        if let Some((at, count)) = node.vector(3) {
            self.site(at, 4, What::VectorLen);
            (0..count).for_each(|item| self.site(at + 4 + 2 * item, 2, What::BufferIdx));
        }
    }

    fn layout(&mut self, node: Table<'_>) {
        self.field(node, 0, 2, What::LayoutKind);
        self.field(node, 1, 8, What::RowCount);
        self.metadata(node, 2);
        self.children(node, 3, What::LayoutTable, Self::layout);
        if let Some((at, count)) = node.vector(4) {
            self.site(at, 4, What::VectorLen);
            (0..count).for_each(|item| self.site(at + 4 + 4 * item, 4, What::SegmentId));
        }
    }

    fn metadata(&mut self, node: Table<'_>, slot: usize) {
        if let Some((at, count)) = node.vector(slot) {
            self.site(at, 4, What::VectorLen);
            (0..count).for_each(|item| self.site(at + 4 + item, 1, What::Metadata));
        }
    }

    fn children(&mut self, node: Table<'_>, slot: usize, what: What, visit: fn(&mut Self, Table<'_>)) {
        let Some((at, count)) = node.vector(slot) else { return };
        self.site(at, 4, What::VectorLen);
        for item in (0..count).map(|item| at + 4 + 4 * item) {
            self.site(item, 4, what);
            visit(self, Table { file: node.file, at: position(node.file, item) });
        }
    }

    fn dtype(&mut self, dtype: Table<'_>) {
        self.field(dtype, 0, 1, What::TypeTag);
        let tag = dtype.field(0).map_or(0, |at| dtype.file[at]);
        let Some(inner) = dtype.table(1) else { return };
        let nested = |anatomy: &mut Self, slot: usize| {
            if let (Some(at), Some(table)) = (inner.field(slot), inner.table(slot)) {
                anatomy.site(at, 4, What::TypeTable);
                anatomy.dtype(table);
            }
        };
        match tag {
            7 => {
                self.children(inner, 1, What::TypeTable, Self::dtype);
                self.field(inner, 2, 1, What::TypeParameter);
            }
            8 => {
                nested(self, 0);
                self.field(inner, 1, 1, What::TypeParameter);
            }
            9 => {
                nested(self, 1);
                self.metadata(inner, 2);
            }
            10 => {
                nested(self, 0);
                self.field(inner, 1, 4, What::TypeParameter);
                self.field(inner, 2, 1, What::TypeParameter);
            }
            _ => (0..3).for_each(|slot| self.field(inner, slot, 1, What::TypeParameter)),
        }
    }

    fn statistics(&mut self, stats: Table<'_>) {
        for slot in [0, 2, 4] {
            self.metadata(stats, slot);
        }
        [1, 3, 5, 6, 7].iter().for_each(|slot| self.field(stats, *slot, 1, What::Statistic));
        [8, 9, 10].iter().for_each(|slot| self.field(stats, *slot, 8, What::Statistic));
    }
}
