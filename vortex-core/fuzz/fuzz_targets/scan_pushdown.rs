#![no_main]

use libfuzzer_sys::fuzz_target;
use vortex_core_fuzz::{Choices, check};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = check::open(bytes.to_vec(), None) {
        let _whatever_it_holds = check::pushdown(&file, &mut Choices::new(bytes));
    }
});
