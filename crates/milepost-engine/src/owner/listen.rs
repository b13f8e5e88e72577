//! The owner's end: takes verbs from other processes of the same person, each connection by itself.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::address::Address;
use super::hear::{Hear, Operations, written};
use super::operation::Answer;
use crate::engine::Engine;

/// More than any request needs: a signal may carry as much as a stage's result has.
const LONGEST_REQUEST: u64 = 2 * 1024 * 1024;
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long verbs that are being carried out may keep the owner from leaving.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// A request that is on its way when the owner leaves arrives within this.
const LAST_WORDS: Duration = Duration::from_millis(200);
const AT_ONCE: usize = 64;

/// Listens until it is closed.
#[derive(Debug)]
pub struct Listener {
    file: PathBuf,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Listener {
    /// For the owner of the store only: a socket that is there already was left by one that died.
    pub fn bind(database: &Path, engine: &Engine) -> io::Result<Self> {
        Self::bind_with(database, engine, Arc::new(Operations))
    }

    /// The same for an owner that can be asked for more.
    pub fn bind_with(database: &Path, engine: &Engine, hear: Arc<dyn Hear>) -> io::Result<Self> {
        let address = Address::of(database)?;
        remove_stale(&address.file)?;
        let listener = UnixListener::bind(address.path())?;
        std::fs::set_permissions(address.path(), Permissions::from_mode(0o600))?;
        let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
        let owner = Owner { engine: engine.clone(), hear, stop: stop.clone() };
        connections.spawn(accept(listener, owner, connections.clone()));
        Ok(Self { file: address.file, stop, connections })
    }

    /// The file, for a way out that waits for nobody.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Takes no more, and lets those that are being carried out get their answer.
    pub async fn close(self) {
        // Before the lock goes: whoever owns the store next makes a socket of the same name.
        let _ = std::fs::remove_file(&self.file);
        self.stop.cancel();
        self.connections.close();
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.connections.wait()).await;
    }
}

fn remove_stale(file: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(file) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(file),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} is no socket", file.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// What every connection needs.
#[derive(Clone)]
struct Owner {
    engine: Engine,
    hear: Arc<dyn Hear>,
    stop: CancellationToken,
}

async fn accept(listener: UnixListener, owner: Owner, connections: TaskTracker) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            // Only when nobody waits any more: who has connected gets an answer.
            () = owner.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let owner = owner.clone();
                connections.spawn(async move {
                    serve(stream, &owner).await;
                    drop(place);
                });
            }
            Err(_) if owner.stop.is_cancelled() => return,
            Err(error) => {
                tracing::warn!(%error, "a verb of another process could not be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(mut stream: UnixStream, owner: &Owner) {
    let read = tokio::select! {
        biased;
        read = read(&mut stream) => read,
        () = time_is_up(&owner.stop) => Err(Answer::Failed { message: "no request came in time".to_owned() }),
    };
    let mut line = match read {
        Ok(asked) => owner.hear.hear(&asked, &owner.engine).await,
        Err(answer) => written(&answer),
    };
    line.push(b'\n');
    // Who has gone away does not want the answer; what was asked is done all the same.
    let _ = tokio::time::timeout(READ_TIMEOUT, stream.write_all(&line)).await;
}

/// Who says nothing does not keep an owner from leaving.
async fn time_is_up(stop: &CancellationToken) {
    tokio::select! {
        biased;
        () = tokio::time::sleep(READ_TIMEOUT) => {}
        () = stop.cancelled() => tokio::time::sleep(LAST_WORDS).await,
    }
}

async fn read(stream: &mut UnixStream) -> Result<Vec<u8>, Answer> {
    let own = rustix::process::geteuid().as_raw();
    let allowed = stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0);
    if !allowed {
        return Err(Answer::Failed { message: "only the person who runs it may give it orders".to_owned() });
    }
    let mut line = Vec::new();
    let mut reader = BufReader::new(stream.take(LONGEST_REQUEST));
    match reader.read_until(b'\n', &mut line).await {
        Ok(_) if line.ends_with(b"\n") => Ok(line),
        Ok(_) => Err(Answer::Failed { message: "the request is cut off or too long".to_owned() }),
        Err(error) => Err(Answer::Failed { message: format!("the request could not be read: {error}") }),
    }
}
