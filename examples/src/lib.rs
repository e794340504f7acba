//! Examples; each is a file next to `Cargo.toml`.
