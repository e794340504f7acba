//! Sizes as text.

/// Reads a number of bytes, such as `512`, `64k` or `10 GiB`; units are powers of 1024. Options accept the same, as
/// does the command line.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        unit => return Err(format!("unknown unit `{unit}`; use k, m, g or t")),
    };
    let number: u64 = digits.trim_end().parse().map_err(|_| format!("`{text}` is not a size like 10g"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("10G"), Ok(10 << 30));
        assert_eq!(parse_size("3mb"), Ok(3 << 20));
        assert_eq!(parse_size(" 256 KiB "), Ok(256 << 10));
        for wrong in ["", "g", "-1k", "1x", "1.5g", "k1", "99999999999999t"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
