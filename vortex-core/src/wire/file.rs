//! The container's tables: postscript, footer, layout tree.

use std::sync::Arc;

use super::generated::file::file as fb;
use super::{aligned, broken, verifier};
use crate::limits::Limits;
use crate::{Error, Result};

/// Maximum number of entries of user metadata.
pub(crate) const MAX_USER_METADATA: usize = 16;
/// Maximum length of the key of an entry, in bytes.
pub(crate) const MAX_USER_KEY_LEN: usize = 64;

/// The position of one part of the file description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PostscriptSegment {
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) alignment_exponent: u8,
}

/// The postscript, which locates the footer and the other parts.
#[derive(Debug, Clone)]
pub(crate) struct Postscript {
    pub(crate) dtype: Option<PostscriptSegment>,
    pub(crate) layout: PostscriptSegment,
    pub(crate) statistics: Option<PostscriptSegment>,
    pub(crate) footer: PostscriptSegment,
    pub(crate) metadata: Vec<(String, PostscriptSegment)>,
}

impl Postscript {
    pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let bytes = aligned(bytes);
        let root = flatbuffers::root_with_opts::<fb::Postscript<'_>>(&verifier(limits, bytes.len()), &bytes)
            .map_err(broken("postscript"))?;
        let needed = |segment: Option<fb::PostscriptSegment<'_>>, what: &str| {
            segment
                .map(read_segment)
                .transpose()?
                .ok_or_else(|| Error::corrupt(format!("postscript lacks the position of the {what}")))
        };
        Ok(Self {
            dtype: root.dtype().map(read_segment).transpose()?,
            layout: needed(root.layout(), "layout")?,
            statistics: root.statistics().map(read_segment).transpose()?,
            footer: needed(root.footer(), "footer")?,
            metadata: root
                .metadata()
                .unwrap_or_default()
                .iter()
                .map(|entry| Ok((entry.key().to_owned(), read_segment(entry.segment())?)))
                .collect::<Result<_>>()?,
        })
    }
}

fn read_segment(segment: fb::PostscriptSegment<'_>) -> Result<PostscriptSegment> {
    if let Some(compression) = segment._compression().filter(|c| c.scheme() != fb::CompressionScheme::None) {
        return Err(Error::unsupported("metadata compression", compression.scheme().0));
    }
    if segment._encryption().is_some() {
        return Err(Error::unsupported("feature", "encryption"));
    }
    Ok(PostscriptSegment {
        offset: segment.offset(),
        length: segment.length(),
        alignment_exponent: segment.alignment_exponent(),
    })
}

/// The position of one data segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentSpec {
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) alignment_exponent: u8,
    pub(crate) compression: u8,
    pub(crate) encryption: u16,
}

/// The tables of the footer.
#[derive(Debug, Clone)]
pub(crate) struct FooterTables {
    pub(crate) array_ids: Arc<[Arc<str>]>,
    pub(crate) layout_ids: Arc<[Arc<str>]>,
    pub(crate) segments: Vec<SegmentSpec>,
}

impl FooterTables {
    pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let bytes = aligned(bytes);
        let root = flatbuffers::root_with_opts::<fb::Footer<'_>>(&verifier(limits, bytes.len()), &bytes)
            .map_err(broken("footer"))?;
        let segments = root
            .segment_specs()
            .ok_or_else(|| Error::corrupt("footer without segment table"))?
            .iter()
            .map(|spec| SegmentSpec {
                offset: spec.offset(),
                length: spec.length(),
                alignment_exponent: spec.alignment_exponent(),
                compression: spec._compression(),
                encryption: spec._encryption(),
            })
            .collect();
        let (arrays, layouts) =
            (root.array_specs().unwrap_or_default(), root.layout_specs().unwrap_or_default());
        Ok(Self {
            array_ids: ids(arrays.iter().map(|spec| spec.id()))?,
            layout_ids: ids(layouts.iter().map(|spec| spec.id()))?,
            segments,
        })
    }
}

/// Number of encodings or layouts that a file can tell apart: it refers to them by 16 bits.
const MAX_IDS: usize = 1 << 16;

fn ids<'a>(ids: impl ExactSizeIterator<Item = &'a str>) -> Result<Arc<[Arc<str>]>> {
    if ids.len() > MAX_IDS {
        return Err(Error::corrupt(format!("{} ids of encodings or layouts, at most {MAX_IDS}", ids.len())));
    }
    Ok(ids.map(Arc::from).collect())
}

/// Bytes that a layout node takes at least if it has one parent: a table, and its place in that of the parent.
const MIN_LAYOUT_BYTES: usize = 8;
/// Bytes of the two counters of an `Arc`.
const SHARED_BYTES: usize = 2 * size_of::<usize>();

/// A layout node as stored, without dtype.
#[derive(Debug, Clone)]
pub(crate) struct RawLayout {
    pub(crate) encoding: u16,
    pub(crate) row_count: u64,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) children: Box<[Arc<RawLayout>]>,
    pub(crate) segments: Box<[u32]>,
}

impl RawLayout {
    pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let bytes = aligned(bytes);
        // Flatbuffers may share one table between many parents, so that few bytes could describe any number of
        // nodes. Writers do not do that.
        let most = u32::try_from(bytes.len() / MIN_LAYOUT_BYTES).unwrap_or(u32::MAX);
        let limits = limits.with_max_layouts(limits.max_layouts.min(most));
        let root = flatbuffers::root_with_opts::<fb::Layout<'_>>(&verifier(&limits, bytes.len()), &bytes)
            .map_err(broken("layout"))?;
        let mut layouts_left = limits.max_layouts;
        Self::read(root, limits.max_depth, &mut layouts_left)
    }

    /// Bytes in memory, those of all children included.
    pub(crate) fn memory_size(&self) -> usize {
        let child = |child: &Arc<Self>| size_of_val(child) + SHARED_BYTES + child.memory_size();
        let children: usize = self.children.iter().map(child).sum();
        size_of::<Self>() + self.metadata.len() + size_of_val(&*self.segments) + children
    }

    // Nodes are counted as they are visited, once per parent.
    fn read(layout: fb::Layout<'_>, depth_left: u32, layouts_left: &mut u32) -> Result<Self> {
        if depth_left == 0 || *layouts_left == 0 {
            return Err(Error::limit(
                "layout tree has too many or too deep nodes for `max_layouts` and `max_depth`",
            ));
        }
        *layouts_left -= 1;
        let children = layout
            .children()
            .unwrap_or_default()
            .iter()
            .map(|child| Self::read(child, depth_left - 1, layouts_left).map(Arc::new))
            .collect::<Result<_>>()?;
        Ok(Self {
            encoding: layout.encoding(),
            row_count: layout.row_count(),
            metadata: layout.metadata().map(|bytes| bytes.bytes()).unwrap_or_default().into(),
            children,
            segments: layout.segments().map(|segments| segments.iter().collect()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::*;

    /// A tree of `levels` levels of nodes, each of which is the child of its parent `times` times.
    fn shared(times: usize, levels: usize) -> Vec<u8> {
        let mut b = FlatBufferBuilder::new();
        let mut node = fb::Layout::create(&mut b, &fb::LayoutArgs::default());
        for _ in 1..levels {
            let children = Some(b.create_vector(&vec![node; times]));
            node = fb::Layout::create(&mut b, &fb::LayoutArgs { children, ..Default::default() });
        }
        b.finish_minimal(node);
        b.finished_data().to_vec()
    }

    #[test]
    fn layouts_are_limited_by_the_bytes_that_describe_them() {
        let few = RawLayout::parse(&shared(2, 3), &Limits::default()).unwrap();
        assert_eq!((few.children.len(), few.children[1].children.len()), (2, 2));
        assert!(few.memory_size() > 7 * size_of::<RawLayout>(), "each is in memory once per parent");
        for many in [shared(200_000, 2), shared(10, 5), shared(2, 40)] {
            let error = RawLayout::parse(&many, &Limits::default()).unwrap_err();
            assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
        }
    }

    #[test]
    fn ids_are_limited_by_the_numbers_that_refer_to_them() {
        let parse = |count| {
            let mut b = FlatBufferBuilder::new();
            let id = Some(b.create_string("x"));
            let specs: Vec<_> =
                (0..count).map(|_| fb::LayoutSpec::create(&mut b, &fb::LayoutSpecArgs { id })).collect();
            let layout_specs = Some(b.create_vector(&specs));
            let segment_specs = Some(b.create_vector::<fb::SegmentSpec>(&[]));
            let args = fb::FooterArgs { layout_specs, segment_specs, ..Default::default() };
            let root = fb::Footer::create(&mut b, &args);
            b.finish_minimal(root);
            FooterTables::parse(b.finished_data(), &Limits::default())
        };
        assert_eq!(parse(1 << 16).unwrap().layout_ids.len(), 1 << 16);
        let error = parse((1 << 16) + 1).unwrap_err().to_string();
        assert!(error.contains("65537 ids"), "{error}");
    }

    #[test]
    fn layouts_with_one_parent_each_are_not_limited_by_their_bytes() {
        let mut b = FlatBufferBuilder::new();
        let leaves: Vec<_> =
            (0..100_000).map(|_| fb::Layout::create(&mut b, &fb::LayoutArgs::default())).collect();
        let children = Some(b.create_vector(&leaves));
        let root = fb::Layout::create(&mut b, &fb::LayoutArgs { children, ..Default::default() });
        b.finish_minimal(root);
        let root = RawLayout::parse(b.finished_data(), &Limits::default()).unwrap();
        assert_eq!(root.children.len(), 100_000);
    }
}
