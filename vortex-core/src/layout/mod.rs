//! How arrays are arranged in segments.
//!
//! A [`Layout`] is a node of a tree that determines, for a range of rows, which segments it needs and how
//! the arrays in them form the column. It knows segments only by id and never waits: a scan asks which
//! segments are needed, fetches them, and asks again until no more are.

mod chunked;
mod dict;
mod flat;
pub(crate) mod ids;
mod indexed;
mod list;
mod masked;
mod node;
mod nulls;
mod pieces;
mod segments;
mod struct_;
mod unknown;
mod zoned;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::UInt64Array;
pub(crate) use dict::metadata as dict_metadata;
pub use node::LayoutNode;
pub use pieces::PieceSet;
pub use segments::SegmentSet;
pub(crate) use zoned::metadata as zone_metadata;
pub use zoned::{ZoneMap, Zones};

use crate::array::EncodedRef;
use crate::dtype::DType;
use crate::encodings::chunked::chunked;
use crate::segments::SegmentId;
use crate::{Error, Result};

/// A shared [`Layout`].
pub type LayoutRef = Arc<dyn Layout>;

/// The arrangement of the rows of one column, or of the whole file, in segments.
pub trait Layout: Debug + Send + Sync + 'static {
    /// The id, as stored in the file.
    fn id(&self) -> &str;

    /// The logical type.
    fn dtype(&self) -> &DType;

    /// Number of rows.
    fn row_count(&self) -> u64;

    /// The layouts below this one, with names for display.
    ///
    /// # Errors
    /// If one of them is broken.
    fn children(&self) -> Result<Vec<(String, LayoutRef)>> {
        Ok(Vec::new())
    }

    /// Segments that this node itself refers to.
    fn segments(&self) -> Vec<SegmentId> {
        Vec::new()
    }

    /// Segments that this node and those below it refer to.
    ///
    /// # Errors
    /// If a layout below this one is broken.
    fn all_segments(&self) -> Result<BTreeSet<SegmentId>> {
        let mut all = BTreeSet::from_iter(self.segments());
        for (_, child) in self.children()? {
            all.extend(child.all_segments()?);
        }
        Ok(all)
    }

    /// The layout of struct field `at`, if fields are stored separately. Its rows are null where the struct is.
    ///
    /// # Errors
    /// If the field's layout is broken.
    fn field(&self, _at: usize) -> Result<Option<LayoutRef>> {
        Ok(None)
    }

    /// A layout that is null in the same rows, without their values, if nulls are stored apart from these.
    ///
    /// # Errors
    /// If a layout below this one is broken.
    fn nulls(&self) -> Result<Option<LayoutRef>> {
        Ok(None)
    }

    /// The number of values in the dictionaries that rows refer to, if all of them do: there are at most so many
    /// different ones.
    fn dictionary_values(&self) -> Option<u64> {
        None
    }

    /// Whether some segments become known only once others are available, as those of list elements do. Asked only
    /// if the type has lists.
    ///
    /// # Errors
    /// If a layout below this one is broken.
    fn takes_rounds(&self) -> Result<bool> {
        self.children()?.iter().try_fold(false, |any, (_, child)| Ok(any || takes_rounds(child)?))
    }

    /// Adds the segments that reading `rows` needs and `have` lacks. Further segments may become known
    /// only once the first ones are available; when nothing is added, the rows can be read.
    ///
    /// # Errors
    /// If the layout cannot be read.
    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()>;

    /// Reads the rows as an array, decoded as little as possible.
    ///
    /// # Errors
    /// If segments are missing or corrupt.
    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef>;

    /// Reads individual rows, in ascending order, as an array, from only the bytes that they need if the
    /// layout can locate these. By default, all segments between the first and the last row are read.
    ///
    /// Read every part before you return an error of one of them, as in
    /// [`load_rows`](crate::encodings::Encoding::load_rows).
    ///
    /// # Errors
    /// If bytes are missing, in which case they have been requested, or are corrupt.
    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(chunked(self.dtype(), Vec::new(), have.limits()));
        };
        let all = *first..last.saturating_add(1);
        have.want_segments(|have, want| self.request(&all, have, want))?;
        let wanted = UInt64Array::from_iter_values(rows.iter().map(|row| row - first));
        self.read(&all, have.segments())?.take(&wanted)
    }

    /// Statistics per zone of rows, if available.
    fn zones(&self) -> Option<&Zones> {
        None
    }

    /// Why statistics per zone are not available although the file has some: data is read without them.
    fn unusable_zones(&self) -> Option<&Error> {
        None
    }
}

/// Creates layouts of one id from serialized nodes.
pub trait LayoutKind: Send + Sync + 'static {
    /// The id, as stored in the file's table of layouts.
    fn id(&self) -> &'static str;

    /// Creates the layout of a node.
    ///
    /// # Errors
    /// If the node does not conform to the layout.
    fn load(&self, node: &LayoutNode) -> Result<LayoutRef>;
}

/// The built-in layouts.
pub(crate) fn built_in() -> Vec<Arc<dyn LayoutKind>> {
    vec![
        Arc::new(chunked::Chunked),
        Arc::new(dict::Dict),
        Arc::new(flat::Flat),
        Arc::new(indexed::Indexed),
        Arc::new(list::List),
        Arc::new(struct_::Struct),
        Arc::new(zoned::Stats),
        Arc::new(zoned::Zoned),
    ]
}

/// Whether some segments of a layout become known only once others are available.
pub(crate) fn takes_rounds(layout: &LayoutRef) -> Result<bool> {
    Ok(has_lists(layout.dtype()) && layout.takes_rounds()?)
}

/// Whether rows of a type hold any number of values of another one.
fn has_lists(dtype: &DType) -> bool {
    match dtype.storage() {
        DType::List(..) | DType::Map(..) | DType::Variant(_) => true,
        DType::Struct(fields, _) => fields.dtypes().iter().any(has_lists),
        DType::FixedSizeList(element, ..) => has_lists(element),
        DType::Union(union, _) => union.variants().dtypes().iter().any(has_lists),
        _ => false,
    }
}

/// Converts a row count to a length in memory.
pub(crate) fn len_of(rows: u64) -> Result<usize> {
    usize::try_from(rows).map_err(|_| crate::Error::limit(format!("{rows} rows in one chunk")))
}
