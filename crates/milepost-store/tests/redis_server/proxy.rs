//! A way to the server that can be cut, and that can lose what the server answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    pub(crate) address: String,
    /// Counts cuts: a connection ends when there is a new one.
    cuts: watch::Sender<u64>,
    closed: Arc<AtomicBool>,
    loses_answers: Arc<AtomicBool>,
}

impl Proxy {
    /// To `host:port`.
    pub(crate) async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (cuts, cut) = watch::channel(0);
        let (closed, loses_answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_closed, loses) = (closed.clone(), loses_answers.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if is_closed.load(Ordering::SeqCst) {
                    continue;
                }
                let (server, mut cut, loses) = (server.clone(), cut.clone(), loses.clone());
                cut.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        () = pass(client, server, &loses) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, cuts, closed, loses_answers }
    }

    /// Ends every connection; until `open`, none is taken.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn open(&self) {
        self.loses_answers.store(false, Ordering::SeqCst);
        self.closed.store(false, Ordering::SeqCst);
    }

    /// From now on questions arrive, and their connection ends instead of an answer.
    pub(crate) fn lose_answers(&self) {
        self.loses_answers.store(true, Ordering::SeqCst);
    }
}

async fn pass(client: TcpStream, server: TcpStream, loses_answers: &AtomicBool) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    };
    let back = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            if loses_answers.load(Ordering::SeqCst) || to_client.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}
