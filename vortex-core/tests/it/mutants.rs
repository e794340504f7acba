//! Damage to files that is likely to be read: it is aimed at their tables.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};

use crate::anatomy::{Anatomy, Site, What, read_uint};
use crate::given::golden_files;
use crate::pieces::long_segments;
use crate::random::Random;

/// An intact file.
pub(crate) struct Specimen {
    pub(crate) path: PathBuf,
    bytes: Vec<u8>,
    anatomy: Anatomy,
}

/// All golden files that are intact.
pub(crate) fn specimens() -> Vec<Specimen> {
    let mut folders = vec![golden_files()];
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() && !path.ends_with("corrupt") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "vortex") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("a readable file");
        let anatomy = Anatomy::of(&bytes);
        Specimen { path, bytes, anatomy }
    };
    paths.into_iter().map(read).collect()
}

fn write_uint(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    if let Some(target) = bytes.get_mut(at..at + width) {
        target.copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

/// A file with segments of which single rows are read in pieces: golden files have few of these.
pub(crate) async fn of_long_segments() -> Specimen {
    let item = Field::new("item", DataType::Utf8View, true);
    let fields = vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::BinaryView, false)];
    let types = [
        DataType::Int64,
        DataType::Float64,
        DataType::Utf8View,
        DataType::Decimal128(38, 10),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::List(Arc::new(item)),
        DataType::Struct(fields.into()),
    ];
    let bytes = long_segments(&types, 8000).await.to_vec();
    let anatomy = Anatomy::of(&bytes);
    Specimen { path: "of long segments".into(), bytes, anatomy }
}

impl Random {
    /// An integer likely to break arithmetic: limits of widths, and neighbours of the previous value.
    fn hostile(&mut self, was: u64) -> u64 {
        let power = 1u64 << self.below(64);
        match self.below(9) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => 1 << 63,
            4 => power,
            5 => power - 1,
            6 => was.wrapping_add(1),
            7 => was.wrapping_sub(1),
            _ => self.next(),
        }
    }
}

/// Damages a file in one to four places.
pub(crate) fn mutate(specimen: &Specimen, random: &mut Random) -> Vec<u8> {
    let mut bytes = specimen.bytes.clone();
    for _ in 0..=random.below(4) {
        mutate_once(&mut bytes, &specimen.anatomy, random);
    }
    bytes
}

fn mutate_once(bytes: &mut Vec<u8>, anatomy: &Anatomy, random: &mut Random) {
    match random.below(20) {
        0 => {
            let at = random.below(bytes.len());
            flip(bytes, at, random);
        }
        1..=3 => {
            if let Some(table) = random.pick(&anatomy.tables).cloned() {
                let at = table.start + random.below(table.len());
                flip(bytes, at, random);
            }
        }
        4..=6 => {
            if let Some(segment) = random.pick(&anatomy.segments).cloned() {
                let width = 1 << random.below(4);
                let at = segment.start + random.below(segment.len()) / width * width;
                let value = random.hostile(0);
                write_uint(bytes, at, width, value);
            }
        }
        7..=11 => {
            if let Some(Site { at, width, .. }) = any_site(anatomy, random)
                && at + width <= bytes.len()
            {
                let value = random.hostile(read_uint(bytes, at, width));
                write_uint(bytes, at, width, value);
            }
        }
        12..=15 => exchange(bytes, anatomy, random),
        16 | 17 => resize_rows(bytes, anatomy, random),
        18 => {
            let (from, to) = (random.below(bytes.len()), random.below(bytes.len()));
            let len = (1 << random.below(12)).min(bytes.len() - from.max(to));
            bytes.copy_within(from..from + len, to);
        }
        _ => {
            // Cuts out a piece but keeps the end: without its magic, nothing would be read.
            let tail = bytes.len().saturating_sub(8 + random.below(400));
            let start = random.below(tail);
            let end = start + random.below(tail - start);
            bytes.drain(start..end);
            // Positions are those of the intact file, so later damage requires the same length.
            bytes.resize(bytes.len().max(16), 0);
        }
    }
}

fn flip(bytes: &mut [u8], at: usize, random: &mut Random) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << random.below(8);
    }
}

/// A site of a random kind, so that rare kinds are hit as often as common ones.
fn any_site(anatomy: &Anatomy, random: &mut Random) -> Option<Site> {
    let kind = random.pick(&anatomy.sites)?.what;
    let kind = if random.below(2) == 0 { KINDS[random.below(KINDS.len())] } else { kind };
    let sites: Vec<Site> = anatomy.sites.iter().filter(|site| site.what == kind).copied().collect();
    random.pick(&sites).copied()
}

const KINDS: [What; 14] = [
    What::RowCount,
    What::Encoding,
    What::LayoutKind,
    What::SegmentId,
    What::SegmentLen,
    What::SegmentOffset,
    What::BufferLen,
    What::BufferIdx,
    What::Metadata,
    What::VectorLen,
    What::TypeTag,
    What::TypeParameter,
    What::Statistic,
    What::TreeLen,
];

/// Gives a site the value of another one of its kind: tables that are valid but in the wrong place pass
/// every structural check.
fn exchange(bytes: &mut [u8], anatomy: &Anatomy, random: &mut Random) {
    let Some(site) = random.pick(&anatomy.sites).copied() else { return };
    let alike: Vec<Site> = anatomy.sites.iter().filter(|other| other.what == site.what).copied().collect();
    let Some(other) = random.pick(&alike) else { return };
    if site.at.max(other.at) + 8 > bytes.len() {
        return;
    }
    let value = read_uint(bytes, other.at, other.width);
    let is_reference = matches!(site.what, What::LayoutTable | What::ArrayTable | What::TypeTable);
    // References are relative to their own position.
    let value = if is_reference { (value + other.at as u64).wrapping_sub(site.at as u64) } else { value };
    write_uint(bytes, site.at, site.width, value);
}

/// Changes all equal row counts in the same way, so that they still agree.
fn resize_rows(bytes: &mut [u8], anatomy: &Anatomy, random: &mut Random) {
    let rows: Vec<Site> = anatomy.sites.iter().filter(|site| site.what == What::RowCount).copied().collect();
    let Some(one) = random.pick(&rows) else { return };
    let end = rows.iter().map(|site| site.at + 8).max().unwrap_or(0);
    if end > bytes.len() {
        return;
    }
    let was = read_uint(bytes, one.at, 8);
    let value = if random.below(2) == 0 { random.hostile(was) } else { 1 << (10 + random.below(39)) };
    for site in rows {
        if read_uint(bytes, site.at, 8) == was {
            write_uint(bytes, site.at, 8, value);
        }
    }
}
