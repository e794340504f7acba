//! The segments available while layouts are read.

use std::collections::HashMap;
use std::sync::Arc;

use super::LayoutRef;
use crate::array::EncodedRef;
use crate::budget::Reservation;
use crate::dtype::DType;
use crate::limits::Limits;
use crate::segments::{Lease, SegmentId, SegmentTable};
use crate::{Error, Result};

/// The segments that a scan has fetched for one split.
#[derive(Debug)]
pub struct SegmentSet<'a> {
    table: &'a SegmentTable,
    leases: HashMap<SegmentId, Lease>,
}

impl<'a> SegmentSet<'a> {
    pub(crate) fn new(table: &'a SegmentTable) -> Self {
        Self { table, leases: HashMap::new() }
    }

    /// The limits for decoding.
    pub fn limits(&self) -> &Limits {
        &self.table.limits
    }

    pub(crate) fn add(&mut self, leases: impl IntoIterator<Item = Lease>) {
        self.leases.extend(leases.into_iter().map(|lease| (lease.id, lease)));
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// Whether the bytes of a segment are available.
    pub fn has(&self, id: SegmentId) -> bool {
        self.leases.get(&id).is_some_and(|lease| lease.bytes().is_some())
    }

    /// Requests a segment unless it is available.
    pub fn want(&self, id: SegmentId, want: &mut Vec<SegmentId>) {
        if !self.has(id) {
            want.push(id);
        }
    }

    /// The array in a segment, parsed once for all holders of the segment.
    ///
    /// # Errors
    /// If the segment is not available, or is not an array of that type and length.
    pub fn array(&self, id: SegmentId, dtype: &DType, len: usize) -> Result<EncodedRef> {
        self.lease(id)?.array(dtype, len, self.table)
    }

    fn lease(&self, id: SegmentId) -> Result<&Lease> {
        self.leases.get(&id).ok_or_else(|| Error::invalid(format!("segment {} was not requested", id.0)))
    }

    /// Bytes held of the segments that a layout refers to, but for one of them.
    pub(crate) fn held_bytes(&self, layout: &LayoutRef, but: SegmentId) -> u64 {
        let own = layout.segments().into_iter().filter(|id| *id != but);
        let own = own.filter_map(|id| self.leases.get(&id)).map(|lease| lease.held_bytes() as u64);
        // A layout that is broken has no more that could be held.
        let below = layout.children().unwrap_or_default().into_iter();
        own.chain(below.map(|(_, child)| self.held_bytes(&child, but))).fold(0, u64::saturating_add)
    }

    /// Data derived from a segment, shared by all holders of the segment: the first that `fits`, or else that which
    /// `make` returns, in place of what `gives_way`. What it decodes later is to be charged to the share that `make`
    /// receives.
    ///
    /// # Errors
    /// If the segment is not available, or too many layouts derive data from it.
    pub(crate) fn derived<T: std::any::Any + Send + Sync>(
        &self,
        id: SegmentId,
        fits: impl Fn(&T) -> bool,
        gives_way: impl Fn(&T) -> bool,
        make: impl FnOnce(Reservation) -> Arc<T>,
    ) -> Result<Arc<T>> {
        self.lease(id)?.derived(fits, gives_way, make)
    }
}
