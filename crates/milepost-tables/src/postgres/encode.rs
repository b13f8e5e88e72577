//! Rows as COPY reads them.

use bytes::{BufMut, Bytes, BytesMut};

use crate::batch::{Batch, Cell};

use super::fit::Fit;
use super::names::float;

/// What is sent at once: enough for one call of the system to be cheap, little enough for the server to begin early.
const PIECE: usize = 128 * 1024;

/// Why a row cannot be sent.
#[derive(Debug)]
pub(super) struct Unfit {
    pub(super) column: usize,
    /// Goes on after the value.
    pub(super) reason: String,
}

/// Collects rows until there is a piece to send. Its memory is used again as soon as a piece is on its way.
#[derive(Debug)]
pub(super) struct Encoder {
    fits: Vec<Fit>,
    buffer: BytesMut,
}

impl Encoder {
    pub(super) fn new(fits: Vec<Fit>) -> Self {
        Self { fits, buffer: BytesMut::new() }
    }

    /// Drops what was not sent.
    pub(super) fn clear(&mut self) {
        self.buffer.clear();
    }

    /// Adds a row, or nothing of it.
    pub(super) fn add(&mut self, batch: &Batch, row: usize) -> Result<(), Unfit> {
        if self.buffer.capacity() - self.buffer.len() < 1024 {
            self.buffer.reserve(PIECE + PIECE / 4);
        }
        let start = self.buffer.len();
        for (column, (cell, fit)) in batch.row(row).iter().zip(&self.fits).enumerate() {
            if let Err(reason) = add_cell(batch, *cell, *fit, &mut self.buffer) {
                self.buffer.truncate(start);
                return Err(Unfit { column, reason });
            }
            self.buffer.put_u8(b'\t');
        }
        if let Some(last) = self.buffer.last_mut().filter(|_| !self.fits.is_empty()) {
            *last = b'\n';
        }
        Ok(())
    }

    /// The rows so far, if they are enough for a piece.
    pub(super) fn piece(&mut self) -> Option<Bytes> {
        (self.buffer.len() >= PIECE).then(|| self.buffer.split().freeze())
    }

    /// The rows that are left.
    pub(super) fn rest(&mut self) -> Option<Bytes> {
        (!self.buffer.is_empty()).then(|| self.buffer.split().freeze())
    }
}

fn add_cell(batch: &Batch, cell: Cell, fit: Fit, into: &mut BytesMut) -> Result<(), String> {
    if fit != Fit::Any || matches!(cell, Cell::Bytes(_)) {
        fit.check(batch, cell)?;
    }
    match cell {
        Cell::Null => into.put_slice(b"\\N"),
        // Integers take it as well.
        Cell::Bool(value) => into.put_u8(if value { b'1' } else { b'0' }),
        Cell::Int(value) => {
            if value < 0 {
                into.put_u8(b'-');
            }
            digits(value.unsigned_abs(), into);
        }
        Cell::Uint(value) => digits(value, into),
        Cell::Float(value) if fit == Fit::Real && value.is_finite() => {
            into.put_slice(format!("{:?}", value as f32).as_bytes());
        }
        Cell::Float(value) => into.put_slice(float(value).as_bytes()),
        Cell::Text(span) | Cell::Bytes(span) if fit == Fit::Bytes => hex(batch.bytes(span), into),
        Cell::Text(span) | Cell::Bytes(span) => text(batch.bytes(span), into)?,
    }
    Ok(())
}

fn digits(mut value: u64, into: &mut BytesMut) {
    let mut reversed = [0; 20];
    let mut at = reversed.len();
    loop {
        at -= 1;
        reversed[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    into.put_slice(&reversed[at..]);
}

/// Most texts hold nothing that has to be escaped; whether one does is seen many bytes at a time.
fn text(bytes: &[u8], into: &mut BytesMut) -> Result<(), String> {
    let suspect = |byte: &u8| (*byte < 0x20) | (*byte == b'\\');
    for part in bytes.chunks(32) {
        if !part.iter().fold(false, |found, byte| found | suspect(byte)) {
            into.put_slice(part);
            continue;
        }
        for byte in part {
            match byte {
                b'\\' => into.put_slice(b"\\\\"),
                b'\n' => into.put_slice(b"\\n"),
                b'\r' => into.put_slice(b"\\r"),
                b'\t' => into.put_slice(b"\\t"),
                0 => return Err("which holds the character 0, and no text of PostgreSQL does".into()),
                _ => into.put_u8(*byte),
            }
        }
    }
    Ok(())
}

fn hex(bytes: &[u8], into: &mut BytesMut) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    into.reserve(3 + bytes.len() * 2);
    into.put_slice(b"\\\\x");
    for part in bytes.chunks(32) {
        let mut pairs = [0; 64];
        for (pair, byte) in pairs.chunks_exact_mut(2).zip(part) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        into.put_slice(&pairs[..part.len() * 2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(batch: &Batch, fits: Vec<Fit>) -> String {
        let mut encoder = Encoder::new(fits);
        for row in 0..batch.rows() {
            encoder.add(batch, row).unwrap();
        }
        String::from_utf8(encoder.rest().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_row_is_a_line_whatever_its_texts_hold() {
        let mut batch = Batch::new(4);
        batch.push(Cell::Int(i64::MIN));
        batch.push_text("a\tb\nc\rd\\N");
        batch.push(Cell::Null);
        batch.push_bytes(&[0, 0xff]);
        let fits = vec![Fit::Any, Fit::Any, Fit::Any, Fit::Bytes];
        assert_eq!(encoded(&batch, fits), "-9223372036854775808\ta\\tb\\nc\\rd\\\\N\t\\N\t\\\\x00ff\n");
    }

    #[test]
    fn a_row_that_cannot_be_leaves_nothing_behind() {
        let mut batch = Batch::new(2);
        for text in ["good", "bad\0"] {
            batch.push(Cell::Uint(u64::MAX));
            batch.push_text(text);
        }
        let mut encoder = Encoder::new(vec![Fit::Any, Fit::Any]);
        encoder.add(&batch, 0).unwrap();
        assert_eq!(encoder.add(&batch, 1).unwrap_err().column, 1);
        assert_eq!(encoder.rest().unwrap(), "18446744073709551615\tgood\n".as_bytes());
    }
}
