//! A server of a few lines on a free loopback port: remembers what it received and answers what a test tells it to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it came: names of headers in lower case.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

pub(crate) enum Answer {
    /// And wait for the next request.
    Reply(String),
    /// Then close the connection.
    ReplyAndClose(String),
    /// Then send the letter x for as long as somebody listens.
    ReplyEndlessly(String),
    /// Never anything.
    Silence,
}

/// An answer with a body whose length is told.
pub(crate) fn reply(status: &str, headers: &str, body: &str) -> Answer {
    Answer::Reply(format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()))
}

pub(crate) fn json(status: &str, body: &serde_json::Value) -> Answer {
    reply(status, "Content-Type: application/json\r\n", &body.to_string())
}

#[derive(Default)]
struct State {
    received: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
    sent_endlessly: AtomicUsize,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let (shared, answer) = (state.clone(), Arc::new(answer));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (shared, answer) = (shared.clone(), answer.clone());
                tokio::spawn(async move {
                    // An error only means that the other side went away.
                    let _ = serve(stream, &shared, &*answer).await;
                    shared.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, state, accepting }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.received.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn closed(&self) -> usize {
        self.state.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn sent_endlessly(&self) -> usize {
        self.state.sent_endlessly.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    state: &State,
    answer: &(dyn Fn(&Received) -> Answer + Send + Sync),
) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let received = receive(&mut stream, &mut buffer).await?;
        state.received.lock().unwrap().push(received.clone());
        match answer(&received) {
            Answer::Reply(text) => stream.write_all(text.as_bytes()).await?,
            Answer::ReplyAndClose(text) => return stream.write_all(text.as_bytes()).await,
            Answer::ReplyEndlessly(text) => {
                stream.write_all(text.as_bytes()).await?;
                loop {
                    let sent = stream.write(&[b'x'; 16 * 1024]).await?;
                    state.sent_endlessly.fetch_add(sent, Ordering::SeqCst);
                }
            }
            Answer::Silence => {
                // Until the other side gives up.
                return more(&mut stream, &mut buffer).await;
            }
        }
    }
}

async fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Received> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        more(stream, buffer).await?;
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while buffer.len() < end + 4 + length {
        more(stream, buffer).await?;
    }
    let body = String::from_utf8_lossy(&buffer[end + 4..end + 4 + length]).into_owned();
    buffer.drain(..end + 4 + length);
    Ok(Received { method: words.next().unwrap_or_default(), target: words.next().unwrap_or_default(), headers, body })
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    match stream.read_buf(buffer).await? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
