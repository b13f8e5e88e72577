//! A simulated process: everything it spawned runs, stands still, or is gone, all at once.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use milepost_engine::Spawner;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How soon it is noticed in real time that a process has thawed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Whether a process runs.
#[derive(Debug)]
pub(crate) struct Life {
    state: Mutex<State>,
    dead: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    frozen: bool,
    dead: bool,
    /// To be polled again when it thaws.
    waiting: Vec<Waker>,
    spawned: Vec<AbortHandle>,
}

impl Life {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), dead: watch::Sender::new(false) })
    }

    /// Everything that is spawned by this belongs to the process.
    pub(crate) fn spawner(self: &Arc<Self>) -> Spawner {
        let life = self.clone();
        Spawner::new(move |future| life.spawn(future))
    }

    pub(crate) fn spawn(self: &Arc<Self>, future: BoxFuture<'static, ()>) {
        let handle = tokio::spawn(Lived { life: self.clone(), future }).abort_handle();
        let mut state = self.state();
        if state.dead {
            handle.abort();
        } else {
            state.spawned.retain(|spawned| !spawned.is_finished());
            state.spawned.push(handle);
        }
    }

    /// Nothing of it is polled any more, from this moment on.
    pub(crate) fn kill(&self) {
        let mut state = self.state();
        state.dead = true;
        state.spawned.drain(..).for_each(|spawned| spawned.abort());
        drop(state);
        self.dead.send_replace(true);
    }

    pub(crate) fn freeze(&self) {
        self.state().frozen = true;
    }

    pub(crate) fn thaw(&self) {
        let mut state = self.state();
        state.frozen = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }

    pub(crate) fn runs(&self) -> bool {
        let state = self.state();
        !state.dead && !state.frozen
    }

    /// Resolves when it does not stand still any more. Only for processes in real time.
    pub(crate) async fn thawed(&self) {
        while self.state().frozen {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Resolves when it has been killed.
    pub(crate) async fn died(&self) {
        let mut dead = self.dead.subscribe();
        // The sender lives as long as this.
        let _ = dead.wait_for(|dead| *dead).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Lived {
    life: Arc<Life>,
    future: BoxFuture<'static, ()>,
}

impl Future for Lived {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.life.state();
            if state.dead {
                return Poll::Ready(());
            }
            if state.frozen {
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.future.as_mut().poll(context)
    }
}
