//! What a command wrote to `$MILEPOST_OUTPUT`: one JSON object, or `key=value` lines.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use milepost_core::failure::{ErrorType, Failure};
use serde_json::{Map, Value};

/// The limit of a stage's result.
const LIMIT_BYTES: u64 = 1024 * 1024;

pub(super) fn read(path: &Path) -> Result<Map<String, Value>, Failure> {
    let unreadable = |error| invalid(format!("the file MILEPOST_OUTPUT cannot be read: {error}"));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        // Removed by the command: it has no outputs.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Map::new()),
        Err(error) => return Err(unreadable(error)),
    };
    // Opening a pipe that the command put there would wait for somebody to write to it.
    if !metadata.is_file() {
        return Err(invalid("MILEPOST_OUTPUT is not a file any more".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(LIMIT_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > LIMIT_BYTES {
        let size = metadata.len();
        return Err(Failure::fatal(
            ErrorType::Persistence,
            format!("the outputs have {size} bytes, at most {LIMIT_BYTES} can be kept; pass a reference instead"),
        ));
    }
    parse(&bytes).map_err(invalid)
}

fn invalid(reason: String) -> Failure {
    Failure::fatal(ErrorType::Validation, reason)
}

fn parse(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} of the outputs is not UTF-8")
    })?;
    // No key begins with a brace, so the two forms cannot be confused.
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| format!("the outputs are not one JSON object: {error}"));
    }
    let lines = text.split('\n').zip(1..).filter(|(line, _)| !line.trim().is_empty());
    lines.map(|(line, number)| pair(line).map_err(|wrong| format!("line {number} of the outputs {wrong}"))).collect()
}

fn pair(line: &str) -> Result<(String, Value), String> {
    let (key, value) = line.split_once('=').ok_or("has no `=`; expected key=value")?;
    let shape = |(i, c): (usize, char)| {
        c == '_' || c.is_ascii_alphabetic() || (i > 0 && (c.is_ascii_digit() || matches!(c, '.' | '-')))
    };
    if key.is_empty() || !key.chars().enumerate().all(shape) {
        let shown: String = key.chars().take(40).collect();
        return Err(format!(
            "has the key {shown:?}; expected a letter or `_` first, then letters, digits, `_`, `.`, `-`"
        ));
    }
    Ok((key.to_owned(), Value::String(value.to_owned())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(text: &[u8]) -> Result<Value, String> {
        parse(text).map(Value::Object)
    }

    #[test]
    fn lines_are_split_at_their_first_equals_sign_and_values_stay_as_they_are() {
        assert_eq!(parsed(b""), Ok(json!({})));
        assert_eq!(parsed(b"a=1\n\n  \nb.c-d= x=y \n_e="), Ok(json!({"a": "1", "b.c-d": " x=y ", "_e": ""})));
        assert_eq!(parsed(b"a=1\na=2\n"), Ok(json!({"a": "2"})));
    }

    #[test]
    fn one_json_object_keeps_its_types() {
        assert_eq!(parsed(b"\n {\"a\": [1, null], \"b\": {}}\n"), Ok(json!({"a": [1, null], "b": {}})));
    }

    #[test]
    fn malformed_outputs_are_refused_with_their_line() {
        for (text, words) in [
            (&b"a=1\nno equals sign\n"[..], "line 2"),
            (b"=1", "line 1"),
            (b"1a=1", "line 1"),
            (b" a=1", "line 1"),
            (b"a=1\nb=\xff\n", "line 2"),
            (b"{\"a\": 1}\n{\"b\": 2}", "line 2"),
            (b"{\"a\": }", "line 1"),
            (b"[1]", "line 1"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
