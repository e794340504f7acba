//! Arrays of golden files, undamaged and damaged: where arbitrary choices alone would never make
//! compressed bytes that decode, these are where a fuzzer starts.

use std::path::Path;
use std::sync::Arc;

use vortex_core::Limits;
use vortex_core::array::ArrayParts;
use vortex_core::file::{Footer, OpenOptions};

use crate::Choices;
use crate::build::ArrayBlob;

/// Longer arrays take long and show nothing that shorter ones do not.
const MAX_BYTES: usize = 16 << 10;

/// Arrays kept, the shortest.
const MAX_ARRAYS: usize = 100;

/// Changes made to one array at most.
const MAX_CHANGES: usize = 8;

/// Arrays of golden files that have a node of encoding `id`, the shortest first.
pub fn arrays_with(id: &str) -> Vec<ArrayBlob> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/files");
    let releases = std::fs::read_dir(files).expect("golden files are there").flatten();
    let paths = releases.filter_map(|release| std::fs::read_dir(release.path()).ok()).flatten().flatten();
    let mut arrays = Vec::new();
    for path in paths.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "vortex"))
    {
        let bytes = std::fs::read(&path).expect("it was found just now");
        // Damaged files are among them.
        let Ok(footer) = OpenOptions::new().parse(bytes.clone().into()) else { continue };
        if footer.array_ids().iter().any(|known| **known == *id) {
            collect(&footer, &bytes, id, &mut arrays);
        }
    }
    arrays.sort_by(|left, right| (left.blob.len(), &left.blob).cmp(&(right.blob.len(), &right.blob)));
    arrays.dedup_by(|left, right| left.blob == right.blob);
    arrays.truncate(MAX_ARRAYS);
    arrays
}

fn collect(footer: &Footer, file: &[u8], id: &str, arrays: &mut Vec<ArrayBlob>) {
    let ids: Arc<[Arc<str>]> = footer.array_ids().into();
    let mut layouts = vec![Arc::clone(footer.layout())];
    while let Some(layout) = layouts.pop() {
        layouts.extend(layout.children().unwrap_or_default().into_iter().map(|(_, child)| child));
        for segment in layout.segments().into_iter().filter_map(|id| footer.segment(id).ok()) {
            let place = segment.range().start as usize..segment.range().end as usize;
            let blob = file[place].to_vec();
            let parts = ArrayParts::parse(blob.clone().into(), Arc::clone(&ids), &Limits::default());
            let has = |parts: &ArrayParts| parts.encodings().iter().any(|(_, found)| found == id);
            if blob.len() <= MAX_BYTES && parts.is_ok_and(|parts| has(&parts)) {
                let (dtype, len) = (layout.dtype().clone(), layout.row_count());
                arrays.push(ArrayBlob { blob, ids: Arc::clone(&ids), dtype, len });
            }
        }
    }
}

/// An array with some bytes, its length or its type changed.
pub fn damaged(array: &ArrayBlob, choices: &mut Choices<'_>) -> ArrayBlob {
    let mut array = array.clone();
    for _ in 0..choices.below(MAX_CHANGES) {
        let place = u64::from(choices.byte()) << 8 | u64::from(choices.byte());
        let at = place as usize % array.blob.len();
        match choices.below(8) {
            0..=2 => array.blob[at] ^= choices.byte(),
            3 => array.blob[at] ^= 1 << choices.below(8),
            4 | 5 => {
                let word = choices.integer(array.len).to_le_bytes();
                array.blob[at..].iter_mut().zip(&word[..4]).for_each(|(byte, other)| *byte = *other);
            }
            6 => array.len = choices.integer(array.len),
            _ if choices.flag() => array.dtype = array.dtype.with_nullable(choices.flag()),
            _ => array.dtype = choices.dtype(1),
        }
    }
    array
}
