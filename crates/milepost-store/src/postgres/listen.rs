//! Being called by others: a connection of its own that listens, or, behind a pooler where nobody can, a look now and then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;

use crate::error::StoreError;

use super::connect::Notifications;
use super::store::Inner;

/// How often to look where there is no listening.
const LOOK: Duration = Duration::from_secs(2);
/// Looks before listening is tried again: a server may have been put in the pooler's place.
const LOOKS: usize = 150;
/// How long word of ourselves may take to come back.
const PROBE: Duration = Duration::from_secs(2);
const PROBE_WORD: &str = "probe";
/// Before another try after a connection was lost.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Ear {
    inner: Arc<Inner>,
    bell: Arc<Bell>,
    /// Started by the first who waits: whoever never asks costs no connection.
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Ear {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, bell: Arc::default(), listener: Mutex::default() }
    }

    pub(super) async fn called(&self) {
        {
            let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            if listener.is_none() {
                *listener = Some(tokio::spawn(listen_for_ever(self.inner.clone(), self.bell.clone())));
            }
        }
        self.bell.wait().await;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get_mut().unwrap_or_else(PoisonError::into_inner) {
            listener.abort();
        }
    }
}

/// Wakes all who wait; when nobody does, the next who would.
#[derive(Debug, Default)]
struct Bell {
    notify: Notify,
    waiting: AtomicUsize,
}

impl Bell {
    async fn wait(&self) {
        struct Waits<'a>(&'a AtomicUsize);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
        let notified = self.notify.notified();
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waits = Waits(&self.waiting);
        notified.await;
    }

    fn ring(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.notify.notify_waiters();
        } else {
            self.notify.notify_one();
        }
    }
}

async fn listen_for_ever(inner: Arc<Inner>, bell: Arc<Bell>) {
    loop {
        match begin(&inner).await {
            Ok(Some((client, notifications))) => {
                // What was said before this was heard by nobody.
                bell.ring();
                listen(&inner, &bell, notifications).await;
                drop(client);
            }
            Ok(None) => {
                tracing::debug!("nobody can listen on this connection; looking every {LOOK:?} instead");
                look(&inner, &bell).await;
            }
            Err(error) => tracing::debug!(%error, "listening for other nodes failed; trying again"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A connection that hears what is said on another. None when it does not: between the two is a pooler, and what it
/// listens on is somebody else's by now.
async fn begin(inner: &Inner) -> Result<Option<(tokio_postgres::Client, Notifications)>, StoreError> {
    let server = &inner.server;
    let (client, driver, mut notifications) = server.connection().await?;
    tokio::spawn(driver);
    let channel = server.place.channel();
    let words = format!("LISTEN {channel}");
    let listening = client.batch_execute(&words);
    let failed = super::connect::unavailable("listen");
    tokio::time::timeout(PROBE, listening).await.map_err(&failed)?.map_err(super::connect::unavailable("listen"))?;
    let word = format!("{PROBE_WORD} {:p}", &client);
    let parameters: &super::connect::Parameters<'_> = &[(&channel, Type::TEXT), (&word, Type::TEXT)];
    server.write("listen", "SELECT pg_notify($1, $2)", parameters).await?;
    let heard = async {
        while let Some(notification) = notifications.recv().await {
            if notification.payload() == word {
                return true;
            }
        }
        false
    };
    let heard = tokio::time::timeout(PROBE, heard).await.unwrap_or(false);
    Ok(heard.then_some((client, notifications)))
}

/// Until the connection is lost.
async fn listen(inner: &Inner, bell: &Bell, mut notifications: Notifications) {
    while let Some(notification) = notifications.recv().await {
        let word = notification.payload();
        let own = inner.session.number().map(|number| number.to_string());
        if !word.starts_with(PROBE_WORD) && own.as_deref() != Some(word) {
            bell.ring();
        }
    }
}

async fn look(inner: &Inner, bell: &Bell) {
    let mut seen = None;
    for _ in 0..LOOKS {
        match inner.server.read("look for calls", "SELECT calls FROM @.counters", &[]).await {
            Ok(rows) => {
                let calls: i64 = rows[0].get(0);
                // The first look cannot know what was said before it.
                if seen.replace(calls) != Some(calls) {
                    bell.ring();
                }
            }
            Err(error) => tracing::debug!(%error, "looking for other nodes failed; trying again"),
        }
        tokio::time::sleep(LOOK).await;
    }
}
