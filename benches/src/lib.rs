//! Benchmarks of `vortex-core`: the bench `compress`, and the programs in `bin/`. The library itself is
//! empty.
