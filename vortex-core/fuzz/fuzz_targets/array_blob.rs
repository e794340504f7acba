#![no_main]

use libfuzzer_sys::fuzz_target;
use vortex_core::Registry;
use vortex_core_fuzz::build::ArrayBlob;
use vortex_core_fuzz::{Choices, check};

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let root = choices.below(Registry::built_in().encoding_ids().len());
    if let Ok(array) = ArrayBlob::choose(&mut choices, root).load() {
        let _whatever_it_holds = check::array(&array, &mut choices);
    }
});
