//! Regenerates `vortex-core/src/wire/generated` from `vortex-core/schema/*.fbs`.

use std::path::Path;
use std::process::{Command, ExitCode};

const SCHEMAS: [&str; 4] = ["array", "dtype", "file", "message"];

fn main() -> ExitCode {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = schema.join("../src/wire/generated");
    let status = Command::new(flatc::flatc())
        .arg("--rust")
        .arg("-o")
        .arg(&out)
        .args(SCHEMAS.map(|name| schema.join(format!("{name}.fbs"))))
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("flatc ended with {status}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("flatc did not start: {error}");
            ExitCode::FAILURE
        }
    }
}
