//! A way to a server on which an answer gets lost, or a question is held up for longer than whoever asked it waits.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

pub(crate) struct Relay {
    pub(crate) port: u16,
    meant: Arc<Mutex<Vec<Meant>>>,
}

/// What is to become of the next question with these words in it.
struct Meant {
    words: &'static str,
    fate: Fate,
}

#[derive(Clone)]
enum Fate {
    LosesItsAnswer,
    /// It waits here; with `forgotten` its connection ends meanwhile, and it is delivered all the same.
    IsHeld {
        held: Held,
        forgotten: bool,
    },
}

/// A question on its way.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Steps>);

#[derive(Default)]
struct Steps {
    reached: Notify,
    released: Notify,
    done: Notify,
}

#[allow(dead_code, reason = "not every test holds a question up")]
impl Held {
    /// Until the question is here.
    pub(crate) async fn reached(&self) {
        self.0.reached.notified().await;
    }

    pub(crate) fn release(&self) {
        self.0.released.notify_one();
    }

    /// Likewise, and until the server has done what it says.
    pub(crate) async fn deliver(&self) {
        self.release();
        self.0.done.notified().await;
    }
}

#[allow(dead_code, reason = "not every test needs all of it")]
impl Relay {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let meant: Arc<Mutex<Vec<Meant>>> = Arc::default();
        let shared = meant.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(pass(client, server, shared.clone()));
            }
        });
        Self { port, meant }
    }

    /// The same address by way of this relay.
    pub(crate) fn url(&self, url: &str, server: u16) -> String {
        url.replacen(&format!(":{server}/"), &format!(":{}/", self.port), 1)
    }

    /// The next question with these words in it reaches the server, and its answer nobody.
    pub(crate) fn lose_the_answer_to(&self, words: &'static str) {
        self.meant.lock().unwrap().push(Meant { words, fate: Fate::LosesItsAnswer });
    }

    /// The next question with these words in it waits until it is released.
    pub(crate) fn hold(&self, words: &'static str) -> Held {
        self.hold_up(words, false)
    }

    /// Likewise, and nobody waits for its answer by then: the connection of whoever asked it ends at once.
    pub(crate) fn hold_and_forget(&self, words: &'static str) -> Held {
        self.hold_up(words, true)
    }

    fn hold_up(&self, words: &'static str, forgotten: bool) -> Held {
        let held = Held::default();
        self.meant.lock().unwrap().push(Meant { words, fate: Fate::IsHeld { held: held.clone(), forgotten } });
        held
    }
}

/// The port of the server that an address leads to.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn port_of(url: &str) -> u16 {
    let address = url.split(['/', '?']).nth(2).expect("an address names a server");
    address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address of a test names a port")
}

async fn pass(client: TcpStream, server: TcpStream, meant: Arc<Mutex<Vec<Meant>>>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut lost = false;
    loop {
        tokio::select! {
            count = from_client.read(&mut asked) => {
                let Ok(count @ 1..) = count else { return };
                match fate_of(&meant, &asked[..count]) {
                    None => {}
                    Some(Fate::LosesItsAnswer) => lost = true,
                    Some(Fate::IsHeld { held, forgotten: false }) => {
                        held.0.reached.notify_one();
                        held.0.released.notified().await;
                    }
                    Some(Fate::IsHeld { held, forgotten: true }) => {
                        drop((from_client, to_client));
                        held.0.reached.notify_one();
                        held.0.released.notified().await;
                        // The server has done it by the time it has something to say.
                        let _ = to_server.write_all(&asked[..count]).await;
                        let _ = from_server.read(&mut answered).await;
                        held.0.done.notify_one();
                        return;
                    }
                }
                if to_server.write_all(&asked[..count]).await.is_err() {
                    return;
                }
            }
            count = from_server.read(&mut answered) => {
                let Ok(count @ 1..) = count else { return };
                if lost || to_client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn fate_of(meant: &Mutex<Vec<Meant>>, question: &[u8]) -> Option<Fate> {
    let mut meant = meant.lock().unwrap();
    let has = |words: &str| question.windows(words.len()).any(|found| found == words.as_bytes());
    let at = meant.iter().position(|meant| has(meant.words))?;
    Some(meant.remove(at).fate)
}
