//! How arrays lie over segments.
//!
//! A [`Layout`] is a node of a tree that says, for a range of rows, which segments it needs and
//! how the arrays in them make up the column. It knows segments by id only and never waits:
//! a scan asks what is wanted, fetches it, and asks again until nothing more is.

mod chunked;
mod dict;
mod flat;
mod indexed;
mod list;
mod masked;
mod node;
mod pieces;
mod segments;
mod struct_;
mod unknown;
mod zoned;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::UInt64Array;
pub(crate) use dict::metadata as dict_metadata;
pub use node::LayoutNode;
pub use pieces::PieceSet;
pub use segments::SegmentSet;
pub(crate) use zoned::metadata as zone_metadata;
pub use zoned::{Aggregate, ZoneMap, Zones};

use crate::Result;
use crate::array::ArrayRef;
use crate::dtype::DType;
use crate::encodings::chunked::chunked;
use crate::file::SegmentId;

/// A shared [`Layout`].
pub type LayoutRef = Arc<dyn Layout>;

/// How the rows of one column, or of the whole file, lie over segments.
pub trait Layout: Debug + Send + Sync + 'static {
    /// The id, as in the file.
    fn id(&self) -> &str;

    /// The logical type.
    fn dtype(&self) -> &DType;

    /// Number of rows.
    fn row_count(&self) -> u64;

    /// Layouts below this one, named, for showing.
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

    /// The layout of struct field `at`, where fields are stored apart from each other. Its
    /// rows are null where the struct is.
    ///
    /// # Errors
    /// If the field's layout is broken.
    fn field(&self, _at: usize) -> Result<Option<LayoutRef>> {
        Ok(None)
    }

    /// Adds the segments that reading `rows` needs and `have` lacks. What a follow-up needs may
    /// be known only once the first segments are there; reading is possible when nothing is
    /// added.
    ///
    /// # Errors
    /// If the layout cannot be read.
    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()>;

    /// The rows as an array, decoded as little as possible.
    ///
    /// # Errors
    /// If segments are missing or corrupt.
    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<ArrayRef>;

    /// Single rows, which rise, as an array; from only the bytes that they need, where the layout
    /// knows how to find these. By default all segments between the first and the last row are
    /// read.
    ///
    /// # Errors
    /// If bytes are missing, which have then been asked for, or are corrupt.
    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<ArrayRef> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(chunked(self.dtype(), Vec::new(), have.limits()));
        };
        let all = *first..last.saturating_add(1);
        have.want_segments(|have, want| self.request(&all, have, want))?;
        let wanted = UInt64Array::from_iter_values(rows.iter().map(|row| row - first));
        self.read(&all, have.segments())?.take(&wanted)
    }

    /// Statistics per zone of rows, if there are any.
    fn zones(&self) -> Option<&Zones> {
        None
    }
}

/// Makes layouts of one id from serialized nodes.
pub trait LayoutKind: Send + Sync + 'static {
    /// The id, as in the file's table of layouts.
    fn id(&self) -> &'static str;

    /// Makes the layout of a node.
    ///
    /// # Errors
    /// If the node is not what the layout asks for.
    fn load(&self, node: &LayoutNode) -> Result<LayoutRef>;
}

/// The layouts built in.
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

/// A row count as a length in memory.
pub(crate) fn len_of(rows: u64) -> Result<usize> {
    usize::try_from(rows).map_err(|_| crate::Error::limit(format!("{rows} rows in one chunk")))
}
