//! What SQLite promises of its books beyond the contract: that they do not grow for ever.

use milepost_core::time::{Millis, Timestamp};
use milepost_store::sqlite::SqliteStore;
use milepost_store::{Book, BookChange, Entry, Store};

const NOW: Timestamp = Timestamp::from_millis(1_764_000_000_000);

fn heard(key: String, at: Timestamp) -> Entry {
    let until = Some(at + Millis::from_secs(10));
    Entry { book: Book::Messages, key, at, until, body: "{}".to_owned() }
}

async fn keep(store: &SqliteStore, keep: Vec<Entry>) {
    store.change_books(BookChange { keep, strike: Vec::new() }).await.unwrap();
}

#[tokio::test]
async fn entries_that_are_over_leave_the_file_with_later_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path).unwrap();
    keep(&store, (0..500).map(|number| heard(format!("old-{number}"), NOW)).collect()).await;
    let later = NOW + Millis::from_secs(60);
    for number in 0..10 {
        keep(&store, vec![heard(format!("new-{number}"), later)]).await;
    }
    store.close();
    let file = rusqlite::Connection::open(&path).unwrap();
    let count: i64 = file.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 10);
}
