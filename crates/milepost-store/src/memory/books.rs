//! What is kept beside tasks: by key, in the order in which it came, and by when it is over.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use milepost_core::planted::planted;
use milepost_core::time::Timestamp;

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::error::StoreError;
use crate::model::Page;

use super::read::page;

#[derive(Debug, Default)]
pub(super) struct Books {
    last_no: i64,
    kept: BTreeMap<Book, Kept>,
}

/// Of one book.
#[derive(Debug, Default)]
struct Kept {
    entries: BTreeMap<i64, Entry>,
    nos: HashMap<String, i64>,
    ends: BTreeSet<(Timestamp, i64)>,
}

impl Books {
    /// Whether all of it can be written.
    pub(super) fn check(&self, change: &BookChange) -> Result<(), StoreError> {
        let is_there = |entry: &Entry| Ok::<_, StoreError>(self.entry(entry.book, &entry.key, entry.at).is_some());
        match change.kept(is_there)? {
            Some(kept) if !planted("a message is taken in twice") => Err(kept),
            Some(_) | None => Ok(()),
        }
    }

    /// What has been checked.
    pub(super) fn write(&mut self, change: BookChange) {
        for (book, key) in change.strike {
            self.kept.entry(book).or_default().strike(&key);
        }
        for entry in change.keep {
            self.last_no += 1;
            self.kept.entry(entry.book).or_default().keep(self.last_no, entry);
        }
    }

    pub(super) fn entries(&self, query: &EntryQuery) -> Page<Entry> {
        let first = query.after.map_or(0, |after| after + 1);
        let entries = self.kept.get(&query.book).into_iter().flat_map(|kept| kept.entries.range(first..));
        let still = entries.filter(|(_, entry)| !entry.is_over(query.now));
        page(still.map(|(no, entry)| (*no, entry.clone())), query.limit)
    }

    pub(super) fn entry(&self, book: Book, key: &str, now: Timestamp) -> Option<Entry> {
        self.find(book, key).filter(|entry| !entry.is_over(now)).cloned()
    }

    fn find(&self, book: Book, key: &str) -> Option<&Entry> {
        let kept = self.kept.get(&book)?;
        kept.nos.get(key).map(|no| &kept.entries[no])
    }
}

impl Kept {
    fn keep(&mut self, no: i64, entry: Entry) {
        while let Some((end, old)) = self.ends.first().copied()
            && end <= entry.at
        {
            let key = self.entries[&old].key.clone();
            self.strike(&key);
        }
        self.strike(&entry.key);
        self.nos.insert(entry.key.clone(), no);
        self.ends.extend(entry.until.map(|until| (until, no)));
        self.entries.insert(no, entry);
    }

    fn strike(&mut self, key: &str) {
        let Some(no) = self.nos.remove(key) else { return };
        let entry = self.entries.remove(&no).expect("what has a key is in the book");
        if let Some(until) = entry.until {
            self.ends.remove(&(until, no));
        }
    }
}
