#![no_main]

use libfuzzer_sys::fuzz_target;
use vortex_core::array::ArrayParts;
use vortex_core::Registry;
use vortex_core_fuzz::build::Tree;
use vortex_core_fuzz::{Choices, check, limits};

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let dtype = choices.dtype(3);
    let len = choices.below(20);
    let scalar = choices.rest();
    let tree = Tree { buffers: vec![scalar.to_vec()], ..Tree::default() };
    let parts = ArrayParts::parse(tree.blob().into(), ["vortex.constant".into()].into(), &limits());
    let loaded = parts.and_then(|parts| parts.load(&dtype, len, &Registry::built_in(), &limits()));
    if let Ok(array) = loaded {
        let _whatever_it_holds = check::array(&array, &mut Choices::new(scalar));
    }
});
