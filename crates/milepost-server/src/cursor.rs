//! Where the next page of a list begins, as text that only this server reads.

use milepost_core::api::List;
use milepost_store::Page;

use crate::extract::Refused;

/// Sixteen digits, base 16; the document says so of every `cursor`.
pub(crate) fn write(place: i64) -> String {
    format!("{:016x}", place.max(0))
}

pub(crate) fn read(text: &str) -> Result<i64, Refused> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
    let place = i64::from_str_radix(text, 16).ok().filter(|_| digits);
    place.ok_or_else(|| Refused::Expected("the `nextCursor` of an earlier answer".to_owned()))
}

/// A page of the store as a list of the API.
pub(crate) fn list<T, U>(page: Page<T>, view: impl Fn(&T) -> U) -> List<U> {
    List { items: page.items.iter().map(view).collect(), next_cursor: page.next.map(write) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_nothing_else_does() {
        for place in [0, 1, 255, i64::MAX] {
            assert_eq!(read(&write(place)), Ok(place));
        }
        for bad in ["", "1", "zzzzzzzzzzzzzzzz", "ffffffffffffffff", "+000000000000001", "000000000000000A"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
