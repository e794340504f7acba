#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use vortex_core::Registry;
use vortex_core_fuzz::build::{self, ArrayBlob, LayoutTree};
use vortex_core_fuzz::{Choices, check, golden};

/// The encoding that is fuzzed, by its place in the registry, and arrays of golden files that use it.
static TARGET: LazyLock<(usize, Vec<ArrayBlob>)> = LazyLock::new(|| {
    let ids = Registry::built_in().encoding_ids();
    let id = std::env::var("ENCODING").unwrap_or_default();
    let at = ids.iter().position(|known| *known == id);
    (
        at.unwrap_or_else(|| panic!("ENCODING is `{id}`, not one of {}", ids.join(" "))),
        golden::arrays_with(&id),
    )
});

fuzz_target!(|bytes: &[u8]| {
    let (root, golden) = &*TARGET;
    let mut choices = Choices::new(bytes);
    let array = match choices.below(golden.len() + 1).checked_sub(1) {
        Some(at) => golden::damaged(&golden[at], &mut choices),
        None => ArrayBlob::choose(&mut choices, *root),
    };
    if let Ok(loaded) = array.load() {
        let _whatever_it_holds = check::array(&loaded, &mut choices);
    }
    // Single rows are read from parts of the bytes.
    let layout = LayoutTree { row_count: array.len, segments: vec![0], ..LayoutTree::default() };
    let file = build::file(&layout, &[array.blob.clone()], &array.ids_in_use());
    if let Ok(file) = check::open(file, Some(array.dtype)) {
        let _whatever_it_holds = check::pushdown(&file, &mut choices);
    }
});
