//! Where the Bloom filters of a file lie.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow::buffer::BooleanBuffer;
use prost::Message as _;

use super::filter::{BLOCK_LEN, block_of, checked, may_hold, push_checksum, stripe_len};
use crate::expr::FieldPath;
use crate::row_ranges::RowRanges;
use crate::{Error, Result};

/// Key of the user metadata entry that tells where the Bloom filters of a file lie.
pub(crate) const BLOOM_FILTERS_KEY: &str = "vortex-core.bloom-filters";

/// Most zones of a group.
pub(crate) const GROUP_ZONES: usize = 1024;

/// Files of more zones are not read with filters: evaluating them would cost more than they save.
const MAX_ZONES: u64 = 1 << 22;

/// Most blocks of a filter, as an exponent of two: twice as many as a zone of 8,192 rows needs.
const MAX_EXPONENT: u32 = 10;

/// Where the filters of a group of zones lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredGroup {
    /// Position of the first stripe in the file.
    pub(crate) offset: u64,
    /// The number of blocks of each filter, as an exponent of two.
    pub(crate) exponent: u8,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Index {
    #[prost(uint64, tag = "1")]
    zone_len: u64,
    #[prost(message, repeated, tag = "2")]
    columns: Vec<Column>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Column {
    #[prost(string, repeated, tag = "1")]
    path: Vec<String>,
    #[prost(uint64, repeated, tag = "2")]
    offsets: Vec<u64>,
    #[prost(uint32, repeated, tag = "3")]
    exponents: Vec<u32>,
}

/// Serializes the entry, given the groups of each column.
pub(crate) fn index_to_bytes<'a>(
    zone_len: u64,
    columns: impl Iterator<Item = (&'a FieldPath, &'a [StoredGroup])>,
) -> Vec<u8> {
    let columns = columns.map(|(path, groups)| Column {
        path: path.names().iter().map(ToString::to_string).collect(),
        offsets: groups.iter().map(|group| group.offset).collect(),
        exponents: groups.iter().map(|group| group.exponent.into()).collect(),
    });
    let mut bytes = Index { zone_len, columns: columns.collect() }.encode_to_vec();
    push_checksum(&mut bytes, 0);
    bytes
}

/// The Bloom filters of a file.
#[derive(Debug, Default)]
pub(crate) struct BloomFilters {
    columns: BTreeMap<FieldPath, ColumnFilters>,
}

impl BloomFilters {
    /// Parses the entry of a file of so many rows and bytes.
    ///
    /// # Errors
    /// If it does not fit the file.
    pub(crate) fn parse(bytes: &[u8], row_count: u64, file_size: u64) -> Result<Self> {
        let damaged = || Error::corrupt("Bloom filters do not fit the file");
        let bytes = checked(bytes).ok_or_else(damaged)?;
        let Index { zone_len, columns } = Index::decode(bytes).map_err(|_| damaged())?;
        let zone_count = row_count.checked_div(zone_len).ok_or_else(damaged)?;
        let zone_count = zone_count + u64::from(zone_count * zone_len < row_count);
        if zone_count > MAX_ZONES {
            return Err(Error::limit(format!(
                "Bloom filters of {zone_count} zones, at most {MAX_ZONES} are read"
            )));
        }
        let mut filters = Self::default();
        for Column { path, offsets, exponents } in columns {
            if offsets.len() != exponents.len() {
                return Err(damaged());
            }
            let groups = offsets.into_iter().zip(exponents).map(|(offset, exponent)| {
                let exponent = (exponent <= MAX_EXPONENT).then_some(exponent as u8)?;
                Some(StoredGroup { offset, exponent })
            });
            let groups = groups.collect::<Option<_>>().ok_or_else(damaged)?;
            let column = ColumnFilters { zone_len, zone_count: zone_count as usize, groups };
            if !column.fits(file_size) || filters.columns.insert(FieldPath::new(path), column).is_some() {
                return Err(damaged());
            }
        }
        Ok(filters)
    }

    /// The filters of a column.
    pub(crate) fn get(&self, path: &FieldPath) -> Option<&ColumnFilters> {
        self.columns.get(path)
    }

    /// The columns that have filters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&FieldPath, &ColumnFilters)> {
        self.columns.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Approximate bytes in memory.
    pub(crate) fn memory_size(&self) -> usize {
        let groups = self.columns.values().map(|column| column.groups.len()).sum::<usize>();
        groups * size_of::<StoredGroup>() + self.columns.len() * 128
    }
}

/// The Bloom filters of a column: one per zone.
#[derive(Debug)]
pub(crate) struct ColumnFilters {
    zone_len: u64,
    zone_count: usize,
    /// Each but the last has the filters of [`GROUP_ZONES`].
    groups: Box<[StoredGroup]>,
}

impl ColumnFilters {
    /// Rows per zone.
    pub(crate) fn zone_len(&self) -> u64 {
        self.zone_len
    }

    /// The groups of zones that hold any of these rows.
    pub(crate) fn groups_of(&self, rows: &RowRanges) -> Vec<usize> {
        let len = self.zone_len.saturating_mul(GROUP_ZONES as u64);
        let holds = |at: &usize| {
            let start = (*at as u64).saturating_mul(len);
            rows.within(&(start..start.saturating_add(len))).next().is_some()
        };
        (0..self.groups.len()).filter(holds).collect()
    }

    /// Whether there are groups for all zones, and all lie within the file.
    fn fits(&self, file_size: u64) -> bool {
        self.groups.len() == self.zone_count.div_ceil(GROUP_ZONES)
            && self.ranges().all(|range| range.is_some_and(|range| range.end <= file_size))
    }

    fn ranges(&self) -> impl Iterator<Item = Option<Range<u64>>> {
        self.groups.iter().enumerate().map(|(at, group)| {
            let len = (self.stripe_len(at) as u64) << group.exponent;
            Some(group.offset..group.offset.checked_add(len)?)
        })
    }

    /// Where each group lies.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Range<u64>> {
        // That they lie within the file was checked.
        self.ranges().flatten()
    }

    /// Bytes in the file.
    pub(crate) fn byte_len(&self) -> u64 {
        self.groups().map(|range| range.end - range.start).sum()
    }

    fn stripe_len(&self, group: usize) -> usize {
        stripe_len(self.zones_of(group).len())
    }

    /// The zones of a group.
    fn zones_of(&self, group: usize) -> Range<usize> {
        group * GROUP_ZONES..((group + 1) * GROUP_ZONES).min(self.zone_count)
    }

    /// Where the stripes of a value lie in these groups.
    pub(crate) fn stripes_of(&self, hash: u64, groups: &[usize]) -> impl Iterator<Item = Range<u64>> {
        groups.iter().filter_map(move |at| {
            let (group, len) = (self.groups.get(*at)?, self.stripe_len(*at) as u64);
            let start = group.offset + block_of(hash, group.exponent) as u64 * len;
            Some(start..start + len)
        })
    }

    /// Checks all stripes of a group.
    ///
    /// # Errors
    /// If one was changed since it was written.
    pub(crate) fn check_group(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let mut stripes = bytes.chunks(self.stripe_len(at));
        if stripes.all(|stripe| checked(stripe).is_some()) { Ok(()) } else { Err(self.changed(at)) }
    }

    fn changed(&self, group: usize) -> Error {
        let zones = self.zones_of(group);
        Error::corrupt(format!("Bloom filters of zones {zones:?} differ from their checksum"))
    }

    /// Whether a zone may hold a value, given its group.
    pub(crate) fn may_hold(&self, zone: usize, hash: u64, group: &[u8]) -> bool {
        let at = zone / GROUP_ZONES;
        let stripe = self.groups.get(at).map_or(0, |group| block_of(hash, group.exponent));
        let start = stripe * self.stripe_len(at) + zone % GROUP_ZONES * BLOCK_LEN;
        group.get(start..start + BLOCK_LEN).is_some_and(|block| may_hold(block, hash))
    }

    /// Which zones may hold a value, given its stripes in some groups. Those of other groups may.
    ///
    /// # Errors
    /// If a stripe was changed since it was written.
    pub(crate) fn holding<'a>(
        &self,
        hash: u64,
        stripes: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> Result<BooleanBuffer> {
        let mut holding = vec![true; self.zone_count];
        for (at, stripe) in stripes {
            let blocks = checked(stripe).ok_or_else(|| self.changed(at))?.chunks_exact(BLOCK_LEN);
            let zones = holding[self.zones_of(at)].iter_mut();
            zones.zip(blocks).for_each(|(zone, block)| *zone = may_hold(block, hash));
        }
        Ok(holding.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::{Filter, stripes};

    const ZONE_LEN: u64 = 8192;

    /// Groups of filters of single values: zone `i` holds `i`.
    fn stored(zones: u64) -> (Vec<u8>, Vec<StoredGroup>) {
        let filters: Vec<Filter> = (0..zones).map(|zone| Filter::of(vec![zone << 40 | zone])).collect();
        let mut bytes = vec![0; 5];
        let groups = filters.chunks(GROUP_ZONES).map(|filters| {
            let offset = bytes.len() as u64;
            let (group, exponent) = stripes(filters);
            bytes.extend(group);
            StoredGroup { offset, exponent }
        });
        let groups = groups.collect();
        (bytes, groups)
    }

    fn entry(groups: &[StoredGroup]) -> Vec<u8> {
        index_to_bytes(ZONE_LEN, [(&FieldPath::from("id"), groups)].into_iter())
    }

    #[test]
    fn values_are_found_in_their_zones_whichever_group_these_are_in() {
        for zones in [1, 5, GROUP_ZONES as u64, GROUP_ZONES as u64 + 3] {
            let (bytes, groups) = stored(zones);
            let row_count = zones * ZONE_LEN - 7;
            let filters = BloomFilters::parse(&entry(&groups), row_count, bytes.len() as u64).unwrap();
            let column = filters.get(&"id".into()).unwrap();
            assert_eq!(column.byte_len(), bytes.len() as u64 - 5);
            for zone in [0, zones / 2, zones - 1] {
                let hash = zone << 40 | zone;
                let rows = zone * ZONE_LEN..(zone + 1) * ZONE_LEN;
                let groups = column.groups_of(&rows.into());
                assert_eq!(groups, [zone as usize / GROUP_ZONES]);
                let groups = column.groups_of(&(0..row_count).into());
                let stripes = column.stripes_of(hash, &groups);
                let stripes = stripes.map(|range| &bytes[range.start as usize..range.end as usize]);
                let holding = column.holding(hash, groups.iter().copied().zip(stripes)).unwrap();
                assert_eq!(holding.len() as u64, zones);
                assert!(holding.value(zone as usize) && holding.count_set_bits() < 4, "{holding:?}");
                assert!(column.holding(hash, std::iter::empty()).unwrap().iter().all(|may| may));
            }
        }
    }

    #[test]
    fn an_entry_that_does_not_fit_the_file_is_an_error() {
        let (bytes, groups) = stored(5);
        let size = bytes.len() as u64;
        let parse = |entry: &[u8], rows, size| BloomFilters::parse(entry, rows, size);
        let rows = 5 * ZONE_LEN;
        assert!(parse(&entry(&groups), rows, size).is_ok());
        assert!(parse(&entry(&groups), rows, size - 1).is_err(), "beyond the end");
        assert!(parse(&entry(&groups), rows + 1, size).is_err(), "a zone without a filter");
        assert!(parse(&entry(&[]), rows, size).is_err(), "no group");
        assert!(parse(&entry(&[]), 0, size).is_ok(), "no rows");
        let far = [StoredGroup { offset: u64::MAX - 3, ..groups[0] }];
        assert!(parse(&entry(&far), rows, size).is_err());
        let large = [StoredGroup { exponent: 63, ..groups[0] }];
        assert!(parse(&entry(&large), rows, size).is_err());
        let path = FieldPath::from("id");
        let twice = [(&path, &*groups), (&path, &*groups)];
        assert!(parse(&index_to_bytes(ZONE_LEN, twice.into_iter()), rows, size).is_err());
        assert!(parse(&index_to_bytes(0, twice.into_iter()), rows, size).is_err(), "zones of no rows");
        assert!(parse(&index_to_bytes(1, twice.into_iter()), u64::MAX, size).is_err(), "too many zones");
        let mut changed = entry(&groups);
        for at in 0..changed.len() {
            changed[at] ^= 1;
            assert!(parse(&changed, rows, size).is_err(), "byte {at}");
            changed[at] ^= 1;
        }
        let mut cut = b"\x08".to_vec();
        push_checksum(&mut cut, 0);
        assert!(parse(&cut, rows, size).is_err());
    }
}
