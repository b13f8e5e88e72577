//! A way to a server on which one answer gets lost.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Relay {
    pub(crate) port: u16,
    lose: Arc<Mutex<Option<&'static str>>>,
}

impl Relay {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let lose: Arc<Mutex<Option<&'static str>>> = Arc::default();
        let words = lose.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(pass(client, server, words.clone()));
            }
        });
        Self { port, lose }
    }

    /// The next question with these words in it reaches the server, and its answer nobody.
    pub(crate) fn lose_the_answer_to(&self, words: &'static str) {
        *self.lose.lock().unwrap() = Some(words);
    }
}

async fn pass(client: TcpStream, server: TcpStream, lose: Arc<Mutex<Option<&'static str>>>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut lost = false;
    loop {
        tokio::select! {
            count = from_client.read(&mut asked) => {
                let Ok(count @ 1..) = count else { return };
                lost |= is_meant(&lose, &asked[..count]);
                if to_server.write_all(&asked[..count]).await.is_err() {
                    return;
                }
            }
            count = from_server.read(&mut answered) => {
                let Ok(count @ 1..) = count else { return };
                // The server has done it by the time it has something to say.
                if lost || to_client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn is_meant(lose: &Mutex<Option<&'static str>>, question: &[u8]) -> bool {
    let mut words = lose.lock().unwrap();
    let meant = words.is_some_and(|words| question.windows(words.len()).any(|found| found == words.as_bytes()));
    if meant {
        *words = None;
    }
    meant
}
