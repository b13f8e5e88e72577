//! What an address says of the schema that a store lives in.

/// The schema that an address names, and the address without it: what a connection is opened with must not name it,
/// because a pooler refuses what it does not know, and names are written in full instead.
pub(crate) fn take_search_path(url: &str) -> (String, Option<String>) {
    let Some((address, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut schema = None;
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("search_path", path)) => schema = Some(decode(path)),
            Some(("options", options)) => {
                let spaced = decode(options).replace("-csearch_path", "-c search_path");
                let found = spaced.split_once("-c search_path=");
                let Some((before, after)) = found else {
                    kept.push(pair.to_owned());
                    continue;
                };
                let (path, after) = after.split_once(' ').unwrap_or((after, ""));
                schema = Some(path.to_owned());
                let rest = format!("{} {}", before.trim(), after.trim());
                if !rest.trim().is_empty() {
                    kept.push(format!(
                        "options={}",
                        rest.trim().replace('%', "%25").replace(' ', "%20").replace('=', "%3D")
                    ));
                }
            }
            _ => kept.push(pair.to_owned()),
        }
    }
    let first = |path: String| path.split(',').next().unwrap_or_default().trim().trim_matches('"').to_owned();
    let separator = if kept.is_empty() { "" } else { "?" };
    (format!("{address}{separator}{}", kept.join("&")), schema.map(first))
}

/// What `%20` and its like stand for.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::take_search_path;

    #[test]
    fn the_schema_is_taken_out_of_the_address() {
        let cases = [
            ("postgres://h/d", "postgres://h/d", None),
            ("postgres://h/d?search_path=a", "postgres://h/d", Some("a")),
            ("postgres://h/d?options=-c%20search_path%3Da", "postgres://h/d", Some("a")),
            ("postgres://h/d?sslmode=require&options=-csearch_path=a,b", "postgres://h/d?sslmode=require", Some("a")),
            (
                "postgres://h/d?options=-c%20search_path%3Da%20-c%20x%3Dy",
                "postgres://h/d?options=-c%20x%3Dy",
                Some("a"),
            ),
            ("postgres://h/d?options=-c%20x%3Dy", "postgres://h/d?options=-c%20x%3Dy", None),
        ];
        for (url, address, schema) in cases {
            assert_eq!(take_search_path(url), (address.to_owned(), schema.map(str::to_owned)), "{url}");
        }
    }
}
