//! DataFusion file format for Vortex files.

#![expect(dead_code, reason = "the scan that uses the conversions follows")]

mod convert;
