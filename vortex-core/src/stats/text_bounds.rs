//! Short bounds of long text and byte strings.

/// Maximum number of bytes of a string that a bound keeps.
pub(crate) const MAX_BOUND_BYTES: usize = 64;

/// Truncates to at most [`MAX_BOUND_BYTES`]; for text, to whole characters.
pub(super) fn cut(bytes: &[u8], is_text: bool) -> &[u8] {
    if bytes.len() <= MAX_BOUND_BYTES {
        return bytes;
    }
    let continues = |at: usize| bytes[at] & 0xc0 == 0x80;
    let end = if is_text { (0..=MAX_BOUND_BYTES).rev().find(|at| !continues(*at)) } else { None };
    &bytes[..end.unwrap_or(MAX_BOUND_BYTES)]
}

/// The least bytes, or text, of at most this length that are greater than everything that starts with `prefix`.
pub(super) fn round_up(prefix: &[u8], is_text: bool) -> Option<Vec<u8>> {
    if is_text {
        let text = std::str::from_utf8(prefix).ok()?;
        // The last character that has a successor of the same length; the characters after it are dropped.
        return text.char_indices().rev().find_map(|(at, character)| {
            let next = successor(character).filter(|next| next.len_utf8() == character.len_utf8())?;
            let mut bound = text[..at].to_owned();
            bound.push(next);
            Some(bound.into_bytes())
        });
    }
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut bound = prefix[..=last].to_vec();
    bound[last] += 1;
    Some(bound)
}

/// The next character by code point.
fn successor(character: char) -> Option<char> {
    match character {
        '\u{d7ff}' => Some('\u{e000}'),
        other => char::from_u32(u32::from(other) + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_up_without_growing() {
        assert_eq!(round_up(&[1, 255, 255], false), Some(vec![2]));
        assert_eq!(round_up(&[255; 64], false), None);
        assert_eq!(round_up("a\u{d7ff}".as_bytes(), true), Some("a\u{e000}".as_bytes().to_vec()));
    }
}
