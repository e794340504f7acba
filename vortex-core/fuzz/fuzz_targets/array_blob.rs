#![no_main]

use libfuzzer_sys::fuzz_target;
use vortex_core::array::ArrayParts;
use vortex_core::encodings::Registry;
use vortex_core_fuzz::build::Tree;
use vortex_core_fuzz::{Choices, check, limits};

fuzz_target!(|bytes: &[u8]| {
    let registry = Registry::built_in();
    let ids = registry.ids();
    let mut choices = Choices::new(bytes);
    let root = choices.below(ids.len()) as u16;
    let dtype = choices.dtype(2);
    let len = choices.integer(40);
    let mut tree = Tree::choose(&mut choices, &ids, len, 3);
    tree.encoding = root;
    let table: Vec<_> = ids.iter().map(|id| (*id).into()).collect();
    let parts = ArrayParts::parse(tree.blob().into(), table.into(), &limits());
    let Ok(len) = usize::try_from(len) else { return };
    if let Ok(array) = parts.and_then(|parts| parts.load(&dtype, len, &registry, &limits())) {
        let _whatever_it_holds = check::array(&array, &mut choices);
    }
});
