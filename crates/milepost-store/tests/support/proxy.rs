//! A way to the server that can be watched, held up and cut.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    commands: AtomicU64,
    /// A command with these words in it waits until it is let through.
    held: Mutex<Option<&'static str>>,
    reached: Notify,
    released: Notify,
    /// After a command with these words the connection is cut, once the server has done it and before it can say so.
    cut_after: Mutex<Option<&'static str>>,
    refuses: AtomicBool,
    cut: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            commands: AtomicU64::new(0),
            held: Mutex::default(),
            reached: Notify::new(),
            released: Notify::new(),
            cut_after: Mutex::default(),
            refuses: AtomicBool::new(false),
            cut: watch::channel(0).0,
        });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !shared.refuses.load(Ordering::Relaxed) {
                    let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                    tokio::spawn(pass(client, server, shared.clone()));
                }
            }
        });
        Self { port, state }
    }

    /// How many commands went through so far; many statements may go in one.
    pub(crate) fn commands(&self) -> u64 {
        self.state.commands.load(Ordering::Relaxed)
    }

    pub(crate) fn hold(&self, words: &'static str) {
        *self.state.held.lock().unwrap() = Some(words);
    }

    pub(crate) async fn reached(&self) {
        self.state.reached.notified().await;
    }

    pub(crate) fn release(&self) {
        *self.state.held.lock().unwrap() = None;
        self.state.released.notify_one();
    }

    pub(crate) fn cut_after(&self, words: &'static str) {
        *self.state.cut_after.lock().unwrap() = Some(words);
    }

    pub(crate) fn cut(&self) {
        self.state.refuses.store(true, Ordering::Relaxed);
        self.state.cut.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn mend(&self) {
        self.state.refuses.store(false, Ordering::Relaxed);
    }
}

async fn pass(client: TcpStream, server: TcpStream, state: Arc<State>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let mut cut = state.cut.subscribe();
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    let silent = Arc::new(AtomicBool::new(false));
    let answers = async {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            if silent.load(Ordering::Relaxed) {
                return;
            }
            if to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = ask(from_client, to_server, &state, &silent) => {}
        () = answers => {}
        _ = cut.changed() => {}
    }
}

/// Packet by packet: the first of a command has the number 0.
async fn ask(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, state: &State, silent: &AtomicBool) {
    loop {
        let mut head = [0; 4];
        if client.read_exact(&mut head).await.is_err() {
            return;
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        let mut body = vec![0; length];
        if client.read_exact(&mut body).await.is_err() {
            return;
        }
        if head[3] == 0 {
            state.commands.fetch_add(1, Ordering::Relaxed);
        }
        let has = |words: &Mutex<Option<&'static str>>| {
            let words = *words.lock().unwrap();
            words.is_some_and(|words| body.windows(words.len()).any(|window| window == words.as_bytes()))
        };
        if has(&state.held) {
            state.reached.notify_one();
            state.released.notified().await;
        }
        if has(&state.cut_after) {
            *state.cut_after.lock().unwrap() = None;
            silent.store(true, Ordering::Relaxed);
        }
        if server.write_all(&head).await.is_err() || server.write_all(&body).await.is_err() {
            return;
        }
    }
}
