#![no_main]

use libfuzzer_sys::fuzz_target;
use vortex_core::Registry;
use vortex_core_fuzz::build::{self, LayoutTree, Tree};
use vortex_core_fuzz::{Choices, check};

fuzz_target!(|bytes: &[u8]| {
    let mut ids = Registry::built_in().encoding_ids();
    let mut choices = Choices::new(bytes);
    // Not much can be said of scans of files that have these.
    ids.retain(|id| !check::may_contradict(id) || choices.flag());
    let dtype = choices.dtype(2);
    let rows = choices.integer(20);
    let segments: Vec<_> =
        (0..choices.below(4)).map(|_| Tree::choose(&mut choices, &ids, rows, 1).blob()).collect();
    let layout = LayoutTree::choose(&mut choices, rows, segments.len(), 3);
    if let Ok(file) = check::open(build::file(&layout, &segments, &ids), Some(dtype)) {
        let _whatever_it_holds = check::pushdown(&file, &mut choices);
    }
});
