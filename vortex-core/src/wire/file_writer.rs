//! Writing the container's tables: layout tree, footer, postscript.

use flatbuffers::{FlatBufferBuilder, WIPOffset};

use super::array_writer::Ids;
use super::file::{FooterTables, Postscript, PostscriptSegment};
use super::generated::file::file as fb;
use crate::Result;

/// A layout node to be written.
#[derive(Debug, Clone)]
pub(crate) struct WriteLayout {
    id: &'static str,
    row_count: u64,
    metadata: Vec<u8>,
    children: Vec<WriteLayout>,
    segment: Option<u32>,
}

impl WriteLayout {
    pub(crate) fn new(id: &'static str, row_count: u64, children: Vec<WriteLayout>) -> Self {
        Self { id, row_count, metadata: Vec::new(), children, segment: None }
    }

    pub(crate) fn row_count(&self) -> u64 {
        self.row_count
    }

    pub(crate) fn metadata(mut self, metadata: Vec<u8>) -> Self {
        self.metadata = metadata;
        self
    }

    /// The segment that the node itself refers to.
    pub(crate) fn segment(mut self, segment: u32) -> Self {
        self.segment = Some(segment);
        self
    }

    /// The number of nodes of the tree.
    pub(crate) fn node_count(&self) -> usize {
        1 + self.children.iter().map(Self::node_count).sum::<usize>()
    }

    /// Serializes the tree, whose nodes refer to `ids`, in order of first use.
    ///
    /// # Errors
    /// If there are more kinds of layouts than numbers for them.
    pub(crate) fn to_bytes(&self, ids: &mut Ids) -> Result<Vec<u8>> {
        let mut builder = FlatBufferBuilder::new();
        let root = self.write(&mut builder, ids)?;
        builder.finish_minimal(root);
        Ok(builder.finished_data().to_vec())
    }

    fn write<'b>(&self, b: &mut FlatBufferBuilder<'b>, ids: &mut Ids) -> Result<WIPOffset<fb::Layout<'b>>> {
        let children = self.children.iter().map(|child| child.write(b, ids)).collect::<Result<Vec<_>>>()?;
        let encoding = ids.number(self.id)?;
        let metadata = (!self.metadata.is_empty()).then(|| b.create_vector(&self.metadata));
        let children = (!children.is_empty()).then(|| b.create_vector(&children));
        let segments = self.segment.map(|segment| b.create_vector(&[segment]));
        let args = fb::LayoutArgs { encoding, row_count: self.row_count, metadata, children, segments };
        Ok(fb::Layout::create(b, &args))
    }
}

impl FooterTables {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut b = FlatBufferBuilder::new();
        let arrays = self.array_ids.iter().map(|id| {
            let id = Some(b.create_string(id));
            fb::ArraySpec::create(&mut b, &fb::ArraySpecArgs { id })
        });
        let arrays: Vec<_> = arrays.collect();
        let layouts = self.layout_ids.iter().map(|id| {
            let id = Some(b.create_string(id));
            fb::LayoutSpec::create(&mut b, &fb::LayoutSpecArgs { id })
        });
        let layouts: Vec<_> = layouts.collect();
        let segments = self.segments.iter().map(|spec| {
            let (compression, encryption) = (spec.compression, spec.encryption);
            fb::SegmentSpec::new(spec.offset, spec.length, spec.alignment_exponent, compression, encryption)
        });
        let segments: Vec<_> = segments.collect();
        let args = fb::FooterArgs {
            array_specs: Some(b.create_vector(&arrays)),
            layout_specs: Some(b.create_vector(&layouts)),
            segment_specs: Some(b.create_vector(&segments)),
            compression_specs: None,
            encryption_specs: None,
        };
        let root = fb::Footer::create(&mut b, &args);
        b.finish_minimal(root);
        b.finished_data().to_vec()
    }
}

impl Postscript {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut b = FlatBufferBuilder::new();
        let entries = self.metadata.iter().map(|(key, part)| {
            let key = Some(b.create_string(key));
            let segment = Some(segment(&mut b, part));
            fb::PostscriptMetadata::create(&mut b, &fb::PostscriptMetadataArgs { key, segment })
        });
        let entries: Vec<_> = entries.collect();
        let metadata = (!entries.is_empty()).then(|| b.create_vector(&entries));
        let args = fb::PostscriptArgs {
            dtype: self.dtype.as_ref().map(|part| segment(&mut b, part)),
            layout: Some(segment(&mut b, &self.layout)),
            statistics: self.statistics.as_ref().map(|part| segment(&mut b, part)),
            footer: Some(segment(&mut b, &self.footer)),
            metadata,
        };
        let root = fb::Postscript::create(&mut b, &args);
        b.finish_minimal(root);
        b.finished_data().to_vec()
    }
}

fn segment<'b>(
    b: &mut FlatBufferBuilder<'b>,
    part: &PostscriptSegment,
) -> WIPOffset<fb::PostscriptSegment<'b>> {
    let args = fb::PostscriptSegmentArgs {
        offset: part.offset,
        length: part.length,
        alignment_exponent: part.alignment_exponent,
        _compression: None,
        _encryption: None,
    };
    fb::PostscriptSegment::create(b, &args)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limits::Limits;
    use crate::wire::file::{RawLayout, SegmentSpec};

    #[test]
    fn tables_parse_into_what_was_written() {
        let limits = Limits::default();
        let part = |offset| PostscriptSegment { offset, length: 7, alignment_exponent: 3 };
        let postscript = Postscript {
            dtype: Some(part(1)),
            layout: part(2),
            statistics: None,
            footer: part(3),
            metadata: vec![("a".into(), part(4)), ("b".into(), part(5))],
        };
        let parsed = Postscript::parse(&postscript.to_bytes(), &limits).unwrap();
        assert_eq!((parsed.dtype, parsed.layout, parsed.statistics), (Some(part(1)), part(2), None));
        assert_eq!(parsed.metadata, postscript.metadata);

        let spec = SegmentSpec { offset: 8, length: 1, alignment_exponent: 4, compression: 2, encryption: 0 };
        let tables = FooterTables {
            array_ids: ["x".into()].into(),
            layout_ids: ["l".into(), "m".into()].into(),
            segments: vec![spec],
        };
        let parsed = FooterTables::parse(&tables.to_bytes(), &limits).unwrap();
        assert_eq!(parsed.segments, [spec]);
        assert_eq!((parsed.array_ids, parsed.layout_ids), (tables.array_ids, tables.layout_ids));
    }

    #[test]
    fn layouts_are_numbered_children_first() {
        let flat = WriteLayout::new("vortex.flat", 5, vec![]).segment(0);
        let chunked = WriteLayout::new("vortex.chunked", 5, vec![]).metadata(vec![9]);
        let tree = WriteLayout::new("vortex.struct", 5, vec![flat, chunked]);
        let mut ids = Ids::default();
        let bytes = tree.to_bytes(&mut ids).unwrap();
        let expected = ["vortex.flat", "vortex.chunked", "vortex.struct"].map(Arc::from);
        assert_eq!(*ids.into_table(), expected);
        let parsed = RawLayout::parse(&bytes, &Limits::default()).unwrap();
        assert_eq!((parsed.encoding, parsed.row_count), (2, 5));
        assert_eq!((parsed.children[0].encoding, parsed.children[0].segments.as_ref()), (0, &[0][..]));
        assert_eq!(parsed.children[1].metadata.as_ref(), [9]);
    }
}
