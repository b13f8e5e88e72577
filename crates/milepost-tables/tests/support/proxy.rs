//! A way to a server that can be cut: at once, after some bytes, or when the server has done what words asked for.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// How many bytes may still pass, in both directions and over all connections.
    left: AtomicI64,
    /// After these words the connection is cut, once the server has answered and before that is heard.
    cut_after: Mutex<Option<&'static str>>,
    refuses: AtomicBool,
    cuts: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            left: AtomicI64::new(i64::MAX),
            cut_after: Mutex::default(),
            refuses: AtomicBool::new(false),
            cuts: watch::channel(0).0,
        });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !shared.refuses.load(Ordering::SeqCst) {
                    let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                    tokio::spawn(pass(client, server, shared.clone()));
                }
            }
        });
        Self { port, state }
    }

    /// Cuts every connection, and refuses new ones until it is mended.
    pub(crate) fn cut(&self) {
        self.state.cut();
    }

    pub(crate) fn cut_after_bytes(&self, bytes: i64) {
        self.state.left.store(bytes, Ordering::SeqCst);
    }

    /// Whoever sent the words never hears what came of them.
    pub(crate) fn cut_after(&self, words: &'static str) {
        *self.state.cut_after.lock().unwrap() = Some(words);
    }

    pub(crate) fn was_cut(&self) -> bool {
        *self.state.cuts.borrow() > 0
    }

    pub(crate) fn mend(&self) {
        self.state.left.store(i64::MAX, Ordering::SeqCst);
        *self.state.cut_after.lock().unwrap() = None;
        self.state.refuses.store(false, Ordering::SeqCst);
    }
}

impl State {
    fn cut(&self) {
        self.refuses.store(true, Ordering::SeqCst);
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many of so many bytes may pass.
    fn allow(&self, bytes: usize) -> usize {
        let left = self.left.fetch_sub(bytes as i64, Ordering::SeqCst);
        bytes.min(left.max(0) as usize)
    }

    /// Short statements come in one piece.
    fn is_last(&self, bytes: &[u8]) -> bool {
        let mut words = self.cut_after.lock().unwrap();
        let found = words.is_some_and(|words| bytes.windows(words.len()).any(|window| window == words.as_bytes()));
        if found {
            *words = None;
        }
        found
    }
}

async fn pass(client: TcpStream, server: TcpStream, state: Arc<State>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let mut cuts = state.cuts.subscribe();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let silent = AtomicBool::new(false);
    let questions = async {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
            if state.is_last(&bytes[..count]) {
                silent.store(true, Ordering::SeqCst);
            }
            let allowed = state.allow(count);
            if to_server.write_all(&bytes[..allowed]).await.is_err() {
                return;
            }
            if allowed < count {
                state.cut();
                return;
            }
        }
    };
    let answers = async {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            if silent.load(Ordering::SeqCst) {
                state.cut();
                return;
            }
            let allowed = state.allow(count);
            if to_client.write_all(&bytes[..allowed]).await.is_err() {
                return;
            }
            if allowed < count {
                state.cut();
                return;
            }
        }
    };
    tokio::select! {
        () = questions => {}
        () = answers => {}
        _ = cuts.changed() => {}
    }
}
