#![no_main]

use libfuzzer_sys::fuzz_target;
use vortex_core_fuzz::check;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = check::open(bytes.to_vec(), None) {
        let _whatever_it_holds = check::file(&file);
    }
});
