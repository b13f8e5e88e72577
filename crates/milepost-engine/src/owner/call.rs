//! The other end: asks the owner of a store, if there is one.

use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::address::Address;

#[derive(Debug)]
pub enum CallError {
    /// Nobody listens: there is no owner, it is only just starting, or just leaving.
    Nobody,
    /// It was asked, and whether it did it nobody knows.
    Lost(io::Error),
}

/// Asks the owner of this file, if it has one.
pub async fn call<A: DeserializeOwned>(database: &Path, request: &impl Serialize) -> Result<A, CallError> {
    let mut stream = connect(database).await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => CallError::Nobody,
        _ => CallError::Lost(error),
    })?;
    let mut line = serde_json::to_vec(request).map_err(|error| CallError::Lost(error.into()))?;
    line.push(b'\n');
    let mut answer = String::new();
    let sent = stream.write_all(&line).await;
    // An owner that refuses without reading has answered all the same.
    let received = BufReader::new(stream).read_line(&mut answer).await;
    match (sent, received) {
        // It left between our connecting and its listening; nothing was read.
        (Err(_), Ok(0) | Err(_)) => Err(CallError::Nobody),
        (Ok(()), Ok(0)) => Err(CallError::Lost(io::ErrorKind::UnexpectedEof.into())),
        (Ok(()), Err(error)) => Err(CallError::Lost(error)),
        (_, Ok(_)) => serde_json::from_str(&answer).map_err(|error| CallError::Lost(error.into())),
    }
}

async fn connect(database: &Path) -> io::Result<UnixStream> {
    let address = Address::of(database)?;
    UnixStream::connect(address.path()).await
}
