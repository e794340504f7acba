//! Examples; each is a file beside `Cargo.toml`.
