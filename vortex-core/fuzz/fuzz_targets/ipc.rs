#![no_main]

use libfuzzer_sys::fuzz_target;
use vortex_core::ipc::IpcReadOptions;
use vortex_core_fuzz::{check, limits};

/// Messages read of streams that have more.
const MAX_MESSAGES: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let Ok(stream) = IpcReadOptions::new().with_limits(limits()).open(bytes) else { return };
    for batch in stream.take(MAX_MESSAGES) {
        let Ok(batch) = batch else { return };
        batch.columns().iter().for_each(check::valid);
    }
});
