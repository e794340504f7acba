//! The keys of a JSON object in their order, which parsers that sort them lose.

/// The keys of the object in a line; those up to the damage if there is any.
pub(super) fn of_object(line: &str) -> Vec<String> {
    let (mut keys, mut depth) = (Vec::new(), 0);
    // Where the string begins that the scan is in, and where the last one was.
    let (mut open, mut last) = (None, None);
    let mut is_escaped = false;
    for (at, letter) in line.char_indices() {
        match (open, letter) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(start), '"') => (open, last) = (None, Some(start..at + 1)),
            (Some(_), _) => {}
            (None, '"') => open = Some(at),
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']') => depth -= 1,
            (None, ':') if depth == 1 => {
                let key = last.take().and_then(|range| serde_json::from_str(&line[range]).ok());
                keys.extend::<Option<String>>(key);
            }
            (None, _) => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_object_itself_count() {
        let line = r#" {"z": 1, "a\"b": {"x": [{"y": 2}]}, "c": "d: \"e\": ", "ü":[":"], "\u0041": null}"#;
        assert_eq!(of_object(line), ["z", "a\"b", "c", "ü", "A"]);
    }

    #[test]
    fn damage_ends_the_list() {
        assert_eq!(of_object(r#"{"a": 1, "b"#), ["a"]);
        assert_eq!(of_object("no object"), Vec::<String>::new());
        assert_eq!(of_object("}}}{:"), Vec::<String>::new());
    }
}
