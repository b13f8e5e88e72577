//! Live progress: a stream of what happens to a plan, which takes up a broken connection where it broke.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use milepost_core::api::{EndMessage, ProgressMessage, Snapshot, StateMessage};
use milepost_core::id::PlanId;
use reqwest::header::{ACCEPT, HeaderName};
use reqwest::{Body, Method};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sse_stream::{Sse, SseStream};

use super::connection::{Client, Query, content_type};
use super::error::ClientError;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// A server says something every 15 seconds; one that is silent for three times as long is gone.
const LONGEST_SILENCE: Duration = Duration::from_secs(45);
/// Before the first attempt to connect again; each further wait is twice as long, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Attempts in a row without a word from the server, about a minute of them, before the watcher is told.
const MOST_ATTEMPTS: u32 = 16;

/// Something that a watcher of a plan learns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum WatchEvent {
    /// Everything as it is. It comes first, and again when too much was missed to tell.
    Snapshot(Snapshot),
    Progress(ProgressMessage),
    State(StateMessage),
    /// The server has trouble with the stream, and goes on with it if it can.
    Error {
        message: String,
    },
    /// The connection broke and stands again; what happened in between comes next.
    Reconnected,
    /// The plan has ended, and so does the stream.
    End(EndMessage),
}

impl Client {
    /// What happens to a plan, until it ends. An error is the last item.
    pub fn watch(&self, plan: &PlanId) -> impl Stream<Item = Result<WatchEvent, ClientError>> + Send + use<> {
        let watching = Watching {
            client: self.clone(),
            plan: plan.clone(),
            words: None,
            last_id: None,
            connected: false,
            attempts: 0,
            over: false,
        };
        futures::stream::unfold(watching, |mut watching| async move {
            let item = watching.next().await?;
            Some((item, watching))
        })
    }
}

struct Watching {
    client: Client,
    plan: PlanId,
    /// The connection, while there is one.
    words: Option<Pin<Box<SseStream<Body>>>>,
    last_id: Option<String>,
    /// It once stood.
    connected: bool,
    /// To connect again, since the server last said anything.
    attempts: u32,
    over: bool,
}

impl Watching {
    async fn next(&mut self) -> Option<Result<WatchEvent, ClientError>> {
        if self.over {
            return None;
        }
        let item = self.step().await;
        self.over = matches!(item, Err(_) | Ok(WatchEvent::End(_)));
        Some(item)
    }

    async fn step(&mut self) -> Result<WatchEvent, ClientError> {
        loop {
            let Some(words) = &mut self.words else {
                let again = self.connected;
                self.connect().await?;
                if again {
                    return Ok(WatchEvent::Reconnected);
                }
                continue;
            };
            match tokio::time::timeout(LONGEST_SILENCE, words.next()).await {
                Ok(Some(Ok(sse))) => {
                    self.attempts = 0;
                    if let Some(event) = self.take(sse)? {
                        return Ok(event);
                    }
                }
                // Broken off, ended without an `end`, or silent for too long.
                Ok(Some(Err(_)) | None) | Err(_) => self.words = None,
            }
        }
    }

    /// The first connection stands at once or not at all; one that stood is worth some patience.
    async fn connect(&mut self) -> Result<(), ClientError> {
        loop {
            if self.connected {
                if self.attempts == MOST_ATTEMPTS {
                    return Err(self.client.unreachable("the connection breaks again and again"));
                }
                tokio::time::sleep(LONGEST_WAIT.min(FIRST_WAIT * 2u32.pow(self.attempts))).await;
                self.attempts += 1;
            }
            match self.open().await {
                Ok(words) => {
                    self.words = Some(words);
                    self.connected = true;
                    return Ok(());
                }
                Err(error) if self.connected && error.is_passing() && self.attempts < MOST_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn open(&self) -> Result<Pin<Box<SseStream<Body>>>, ClientError> {
        let path = ["plans", self.plan.as_str(), "progress", "stream"];
        let mut request =
            self.client.request(Method::GET, &path, &Query::default()).header(ACCEPT, "text/event-stream");
        if let Some(id) = &self.last_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let response = tokio::time::timeout(LONGEST_SILENCE, self.client.send(request));
        let response = response.await.map_err(|_| self.client.unreachable("no answer came in time"))??;
        if content_type(&response) != "text/event-stream" {
            return Err(self.client.nonsense(format!("a stream of `{}`", content_type(&response))));
        }
        Ok(Box::pin(SseStream::new(Body::from(response))))
    }

    /// None for what we do not know: a newer server may say more than we understand.
    fn take(&mut self, sse: Sse) -> Result<Option<WatchEvent>, ClientError> {
        if sse.id.is_some() {
            self.last_id = sse.id;
        }
        let (Some(kind), Some(data)) = (&sse.event, &sse.data) else { return Ok(None) };
        Ok(Some(match kind.as_str() {
            "snapshot" => WatchEvent::Snapshot(self.read(kind, data)?),
            "progress" => WatchEvent::Progress(self.read(kind, data)?),
            "state" => WatchEvent::State(self.read(kind, data)?),
            "end" => WatchEvent::End(self.read(kind, data)?),
            "error" => WatchEvent::Error { message: words_of(data) },
            _ => return Ok(None),
        }))
    }

    fn read<T: DeserializeOwned>(&self, kind: &str, data: &str) -> Result<T, ClientError> {
        serde_json::from_str(data).map_err(|error| self.client.nonsense(format!("a `{kind}` that is none: {error}")))
    }
}

/// An error of the stream is a problem like any other, or plain words.
fn words_of(data: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(data).ok();
    let field = |name: &str| value.as_ref()?.get(name)?.as_str().map(str::to_owned);
    field("detail").or_else(|| field("message")).unwrap_or_else(|| data.to_owned())
}
