//! Rows on their way: cells in one list, and what does not fit into a cell in one heap, so that a row costs no allocation.

use serde::{Deserialize, Serialize};

/// A place in a batch's heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u32,
    length: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    /// Only what is beyond `Int`.
    Uint(u64),
    Float(f64),
    Text(Span),
    Bytes(Span),
}

/// Some rows of one width.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    width: usize,
    cells: Vec<Cell>,
    heap: Vec<u8>,
    /// Rows that the source has and that cannot be what their columns say; not among the rows.
    pub spoilt: Vec<Spoilt>,
    /// The key of the last row that was read for it, be it among the rows or spoilt, if it is read by key: where another
    /// attempt goes on. None: that of the last of the rows.
    pub last: Option<Vec<Value>>,
}

/// A row that could not be read as what its columns are.
#[derive(Debug, Clone, PartialEq)]
pub struct Spoilt {
    /// What could be read of it, by column.
    pub row: serde_json::Map<String, serde_json::Value>,
    /// With the column's name and the value: `column "age" holds the text "old", which is no integer`.
    pub reason: String,
}

impl Batch {
    pub fn new(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    pub fn rows(&self) -> usize {
        self.cells.len().checked_div(self.width).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.spoilt.is_empty()
    }

    /// Roughly what it takes in memory.
    pub fn size(&self) -> usize {
        self.heap.len() + self.cells.len() * size_of::<Cell>()
    }

    pub fn row(&self, row: usize) -> &[Cell] {
        &self.cells[row * self.width..(row + 1) * self.width]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[Cell]> {
        self.cells.chunks_exact(self.width.max(1))
    }

    /// The bytes of a text or of bytes.
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.heap[span.start as usize..][..span.length as usize]
    }

    /// Of a text only.
    pub fn text(&self, span: Span) -> &str {
        std::str::from_utf8(self.bytes(span)).expect("only text is pushed as text")
    }

    pub fn push(&mut self, cell: Cell) {
        self.cells.push(cell);
    }

    pub fn push_text(&mut self, text: &str) {
        let span = self.keep(text.as_bytes());
        self.cells.push(Cell::Text(span));
    }

    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let span = self.keep(bytes);
        self.cells.push(Cell::Bytes(span));
    }

    /// Takes back the cells of a row that turned out not to be one; what they left in the heap stays there unused.
    pub fn drop_unfinished_row(&mut self) {
        let whole = self.cells.len() - self.cells.len() % self.width.max(1);
        self.cells.truncate(whole);
    }

    /// A cell that outlives its batch.
    pub fn value(&self, cell: Cell) -> Value {
        match cell {
            Cell::Null => Value::Null,
            Cell::Bool(value) => Value::Bool(value),
            Cell::Int(value) => Value::Int(value),
            Cell::Uint(value) => Value::Uint(value),
            Cell::Float(value) => Value::Float(value),
            Cell::Text(span) => Value::Text(self.text(span).to_owned()),
            Cell::Bytes(span) => Value::Bytes(self.bytes(span).to_vec()),
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Span {
        let span = Span { start: self.heap.len() as u32, length: bytes.len() as u32 };
        self.heap.extend_from_slice(bytes);
        span
    }
}

/// A cell by itself: part of a key, kept over a break as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
}
