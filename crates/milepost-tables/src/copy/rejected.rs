//! The file of rejected rows: one JSON object a line.
//!
//! Lines are on the disk before the commit that counts them, so a mark never counts a line that is not there. Lines that
//! no mark counts, because a crash came in between, are cut off by the attempt that goes on.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::fs::{self, File};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::batch::Spoilt;
use crate::database::Rejected;
use crate::error::TableError;

#[derive(Debug)]
pub(super) struct RejectedFile {
    /// None: they are counted, and not kept.
    path: Option<PathBuf>,
    table: String,
    /// Made by the first row.
    file: Option<File>,
}

#[derive(Serialize)]
struct Line<'a> {
    table: &'a str,
    reason: &'a str,
    column: Option<&'a str>,
    row: &'a serde_json::Map<String, serde_json::Value>,
}

impl RejectedFile {
    /// Of what earlier attempts wrote, the first `counted` lines stay.
    pub(super) async fn open(path: Option<PathBuf>, table: String, counted: u64) -> Result<Self, TableError> {
        if let Some(path) = &path {
            let cut = if counted == 0 { remove(path).await } else { keep(path, counted).await };
            cut.map_err(|error| unusable(path, &error))?;
        }
        Ok(Self { path, table, file: None })
    }

    pub(super) async fn add(&mut self, spoilt: &[Spoilt], rejected: &[Rejected]) -> Result<(), TableError> {
        let Some(path) = &self.path else { return Ok(()) };
        if spoilt.is_empty() && rejected.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        let spoilt = spoilt.iter().map(|row| (row.reason.as_str(), None, &row.row));
        let rejected = rejected.iter().map(|row| (row.reason.as_str(), row.column.as_deref(), &row.values));
        for (reason, column, row) in spoilt.chain(rejected) {
            let line = Line { table: &self.table, reason, column, row };
            serde_json::to_writer(&mut text, &line).expect("a map of JSON values is JSON");
            text.push(b'\n');
        }
        append(&mut self.file, path, &text).await.map_err(|error| unusable(path, &error))
    }
}

async fn append(file: &mut Option<File>, path: &Path, text: &[u8]) -> io::Result<()> {
    let file = match file {
        Some(file) => file,
        None => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).await?;
            }
            file.insert(fs::OpenOptions::new().create(true).append(true).open(path).await?)
        }
    };
    file.write_all(text).await?;
    file.flush().await?;
    file.sync_data().await
}

async fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whoever took the file away, or a part of it, has what was in it.
async fn keep(path: &Path, lines: u64) -> io::Result<()> {
    let file = match fs::OpenOptions::new().read(true).write(true).open(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut reader = BufReader::new(file);
    let (mut length, mut line) = (0, Vec::new());
    for _ in 0..lines {
        line.clear();
        if reader.read_until(b'\n', &mut line).await? == 0 || line.last() != Some(&b'\n') {
            break;
        }
        length += line.len() as u64;
    }
    reader.into_inner().set_len(length).await
}

fn unusable(path: &Path, error: &io::Error) -> TableError {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            TableError::Refused(format!(
                "rejected rows cannot be written to {shown}: {error}; name another file with `rejected`"
            ))
        }
        _ => TableError::Away {
            database: format!("the file {shown}"),
            doing: "take rejected rows",
            reason: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spoilt(id: u64) -> Spoilt {
        let row = json!({ "id": id }).as_object().cloned().unwrap();
        Spoilt { row, reason: format!("column \"id\" holds {id}") }
    }

    #[tokio::test]
    async fn an_attempt_that_goes_on_keeps_the_lines_that_are_counted_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/rejected.ndjson");
        let mut file = RejectedFile::open(Some(path.clone()), "t".into(), 0).await.unwrap();
        assert!(!path.exists(), "without rejected rows there is no file");
        file.add(&[], &[]).await.unwrap();
        assert!(!path.exists());
        file.add(&[spoilt(1), spoilt(2)], &[]).await.unwrap();
        file.add(&[spoilt(3)], &[]).await.unwrap();
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut f| io::Write::write_all(&mut f, b"{\"to"))
            .unwrap();

        let mut file = RejectedFile::open(Some(path.clone()), "t".into(), 2).await.unwrap();
        file.add(&[spoilt(4)], &[]).await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.iter().map(|row| row["row"]["id"].clone()).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(rows[0]["reason"], "column \"id\" holds 1");
        assert_eq!(rows[0]["table"], "t");

        RejectedFile::open(Some(path.clone()), "t".into(), 0).await.unwrap();
        assert!(!path.exists(), "an attempt from zero has rejected nothing yet");
    }
}
