//! JSON files that are one array: each of its values becomes a line.
//!
//! DataFusion reads arrays, too, but only those without line breaks within values, and takes an array that is cut short
//! for a whole one.

use std::io::{self, BufRead, Write};

/// Writes each value of an array as a line. What is in a value is left to its parser, except where it ends.
pub(super) fn write_lines(mut text: impl BufRead, mut lines: impl Write) -> io::Result<()> {
    let mut array = Array::default();
    loop {
        let chunk = text.fill_buf()?;
        if chunk.is_empty() {
            array.end()?;
            return lines.flush();
        }
        for &byte in chunk {
            if let Some(byte) = array.next(byte)? {
                lines.write_all(&[byte])?;
            }
        }
        let read = chunk.len();
        text.consume(read);
    }
}

/// Where in an array a scan is.
#[derive(Default)]
struct Array {
    /// Number of brackets and braces around.
    depth: u64,
    is_quoted: bool,
    is_escaped: bool,
    /// Whether some of the current value has been passed.
    has_value: bool,
    /// Whether the current value follows another one.
    has_comma: bool,
    has_ended: bool,
}

impl Array {
    /// Passes a byte, and returns what becomes of it: nothing, itself, a space, or the end of a line.
    fn next(&mut self, byte: u8) -> io::Result<Option<u8>> {
        match byte {
            b'\n' | b'\r' if self.is_quoted => return invalid("a line break within a string"),
            _ if self.is_quoted => {
                self.is_quoted = byte != b'"' || self.is_escaped;
                self.is_escaped = byte == b'\\' && !self.is_escaped;
            }
            b' ' | b'\t' | b'\r' | b'\n' => return Ok(self.has_value.then_some(b' ')),
            _ if self.has_ended => return invalid("text after the end of the array"),
            b'[' if self.depth == 0 => {
                self.depth = 1;
                return Ok(None);
            }
            _ if self.depth == 0 => return invalid("text before the array"),
            b',' | b']' if self.depth == 1 => {
                if !self.has_value && (byte == b',' || self.has_comma) {
                    return invalid("a value is missing beside a comma");
                }
                self.has_ended = byte == b']';
                self.has_comma = byte == b',';
                return Ok(std::mem::take(&mut self.has_value).then_some(b'\n'));
            }
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' if self.depth > 1 => self.depth -= 1,
            b'"' => self.is_quoted = true,
            _ => {}
        }
        self.has_value = true;
        Ok(Some(byte))
    }

    /// Checks that nothing is missing after the last byte.
    fn end(&self) -> io::Result<()> {
        if self.has_ended { Ok(()) } else { invalid("the array has no end: the file is cut short") }
    }
}

fn invalid<T>(what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("JSON: {what}")))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn lines(text: &str) -> Result<String, String> {
        let mut lines = Vec::new();
        let outcome = write_lines(BufReader::with_capacity(3, text.as_bytes()), &mut lines);
        outcome.map(|()| String::from_utf8(lines).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_value_becomes_a_line() {
        for (text, expected) in [
            ("[]", ""),
            (" [ ]\n", ""),
            ("[{\"a\":1},{\"a\":2}]", "{\"a\":1}\n{\"a\":2}\n"),
            ("[\n  {\n \"a\": [1,\r\n2]\n },\n 7 ]\n", "{  \"a\": [1,  2]  }\n7 \n"),
            (r#"[{"],\\":"\""},"[\\"]"#, "{\"],\\\\\":\"\\\"\"}\n\"[\\\\\"\n"),
            ("[1 2]", "1 2\n"),
        ] {
            assert_eq!(lines(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_array_is_an_error() {
        for (text, told) in [
            ("", "no end"),
            ("[", "no end"),
            ("[{\"a\":1}", "no end"),
            ("[{\"a\":1},", "no end"),
            ("[\"]", "no end"),
            ("[1,]", "a value is missing"),
            ("[,1]", "a value is missing"),
            ("[1,,2]", "a value is missing"),
            ("[1] 2", "text after the end"),
            ("[1][2]", "text after the end"),
            ("x[1]", "text before the array"),
            ("[\"a\nb\"]", "a line break within a string"),
        ] {
            assert!(lines(text).unwrap_err().contains(told), "{text}");
        }
    }
}
