//! One client's stream: first how things are, or what it missed; then what happens. It reads the store only to catch up,
//! at the pace at which the client takes things, and is handed the rest by the hub.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use milepost_core::api::{EndMessage, PlanView, Snapshot, TaskProgress};
use milepost_core::task::{TaskStatus, TaskView};
use milepost_store::{ChangeQuery, Changed, Position, StoreError, TaskQuery, TasksOf, report};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::hub::{Hub, Seat};
use super::mailbox::Closed;
use super::message::{self, Batch, Watched};
use crate::app::{App, plan_progress};
use crate::metrics::OpenStream;
use crate::problem::{Answer, Problem};

/// A comment goes out this often, so that neither end nor a proxy between them takes silence for death.
const COMMENT_EVERY: Duration = Duration::from_secs(15);
/// Changes that are read at once while catching up.
const PAGE: usize = 64;
/// Tasks in a snapshot.
const MOST_TASKS: usize = 1000;

/// Where a client wants to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume {
    /// With a snapshot.
    Fresh,
    /// With what came after this, all of it.
    After(Position),
}

pub(crate) struct Stream {
    hub: Arc<Hub>,
    watched: Watched,
    /// All up to here has been sent, or was of no interest to this client.
    last: Position,
    ready: VecDeque<Bytes>,
    phase: Phase,
    comments: Interval,
    _counted: OpenStream,
}

enum Phase {
    /// Reads what it missed.
    CatchUp,
    /// Has read what there was, and closes the gap between that and what the hub hands out.
    Join,
    Live(Seat),
    Over,
}

impl Stream {
    /// Reads the snapshot, so that whatever is wrong can still be answered with an error.
    pub(crate) async fn open(app: &App, watched: Watched, resume: Resume) -> Answer<Self> {
        let hub = app.hub().clone();
        // Before anything else is read: what is committed meanwhile comes again, and nothing is left out.
        let newest = hub.store().newest().await?;
        let mut ready = VecDeque::from([message::opening()]);
        let last = match resume {
            Resume::Fresh => {
                let snapshot = snapshot(&hub, &watched).await?;
                ready.push_back(message::snapshot(&snapshot, newest));
                newest
            }
            Resume::After(position) if position <= newest => position,
            Resume::After(Position(position)) => {
                let Position(newest) = newest;
                let detail =
                    format!("there is no position {position} yet, the newest is {newest}: is it of another store?");
                return Err(Problem::bad_request(detail));
            }
        };
        let mut comments = interval_at(Instant::now() + COMMENT_EVERY, COMMENT_EVERY);
        comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let counted = app.metrics().open_stream();
        Ok(Self { hub, watched, last, ready, phase: Phase::CatchUp, comments, _counted: counted })
    }

    /// The next piece; none when the stream is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            let step = match &self.phase {
                Phase::CatchUp => self.catch_up().await,
                Phase::Join => self.join().await,
                Phase::Live(_) => self.live().await,
                Phase::Over => return None,
            };
            match step {
                Ok(Some(phase)) => self.phase = phase,
                Ok(None) => {}
                Err(error) => self.fail(error),
            }
        }
    }

    async fn catch_up(&mut self) -> Result<Option<Phase>, StoreError> {
        let page = self.page().await?;
        Ok((!page.more).then_some(Phase::Join))
    }

    /// Takes a seat and looks once more: what came before it is read here, what comes after it is handed out.
    async fn join(&mut self) -> Result<Option<Phase>, StoreError> {
        let seat = self.hub.join(&self.watched).await?;
        loop {
            // Read before the page, so that nothing that led to the end is missing before it.
            let end = self.end().await?;
            let page = self.page().await?;
            match end {
                _ if page.more => return Ok(Some(Phase::CatchUp)),
                None => return Ok(Some(Phase::Live(seat))),
                Some(end) if page.found == 0 => {
                    let mut batch = Batch::default();
                    batch.end(&end, self.last);
                    self.send(batch);
                    return Ok(Some(Phase::Over));
                }
                // It may have been taken up again.
                Some(_) => {}
            }
        }
    }

    async fn live(&mut self) -> Result<Option<Phase>, StoreError> {
        let Phase::Live(seat) = &self.phase else { return Ok(None) };
        let batch = tokio::select! {
            biased;
            () = self.hub.closing().cancelled() => {
                self.ready.push_back(message::comment(": the server is stopping, come back\n\n"));
                return Ok(Some(Phase::Over));
            }
            _ = self.comments.tick() => {
                self.ready.push_back(message::comment(":\n\n"));
                return Ok(None);
            }
            batch = seat.next() => batch,
        };
        match batch {
            Ok(batch) => {
                let extract = batch.extract(self.watched.task.as_ref(), self.last);
                self.last = extract.last;
                self.ready.extend(extract.pieces);
                Ok(extract.ends.then_some(Phase::Over))
            }
            // What was not read in time is in the store.
            Err(Closed::Overflowed | Closed::Left) => Ok(Some(Phase::CatchUp)),
        }
    }

    /// Reads the next page of what came after the last that was sent.
    async fn page(&mut self) -> Result<Page, StoreError> {
        let query = ChangeQuery { after: self.last, plan: Some(self.watched.plan.clone()), limit: PAGE };
        let changes = self.hub.store().changes(query).await?;
        let mut batch = Batch::default();
        let mut found = 0;
        for change in &changes.items {
            let wanted = match (&change.what, &self.watched.task) {
                (_, None) => true,
                (Changed::Task { task, .. }, Some(watched)) => task == watched,
                (Changed::Plan { .. }, Some(_)) => false,
            };
            if wanted {
                batch.state(change);
                found += 1;
            }
        }
        self.send(batch);
        self.last = changes.upto;
        Ok(Page { more: changes.more, found })
    }

    fn send(&mut self, batch: Batch) {
        let extract = batch.sealed().extract(self.watched.task.as_ref(), self.last);
        self.ready.extend(extract.pieces);
    }

    /// The last message, if what is watched has ended.
    async fn end(&self) -> Result<Option<EndMessage>, StoreError> {
        let plan_id = self.watched.plan.clone();
        let missing = |what, id: String| StoreError::NotFound { what, id };
        match &self.watched.task {
            None => {
                let row = self.hub.store().plan(&plan_id).await?;
                let row = row.ok_or_else(|| missing("plan", plan_id.to_string()))?;
                let plan_status = Some(row.status);
                Ok(row.ended_at.map(|_| EndMessage { plan_id, plan_status, task_id: None, task_status: None }))
            }
            Some(id) => {
                let stored = self.hub.store().task(id).await?;
                let status = stored.ok_or_else(|| missing("task", id.to_string()))?.task.status();
                let (task_id, task_status) = (Some(id.clone()), Some(status));
                Ok(status.is_ended().then_some(EndMessage { plan_id, plan_status: None, task_id, task_status }))
            }
        }
    }

    /// The client hears why, and comes back to the position it has.
    fn fail(&mut self, error: StoreError) {
        let mut batch = Batch::default();
        batch.trouble(&Problem::from(error));
        self.send(batch);
        self.phase = Phase::Over;
    }
}

struct Page {
    more: bool,
    /// Changes that the client was waiting for.
    found: usize,
}

impl IntoResponse for Stream {
    fn into_response(self) -> Response {
        let pieces = futures::stream::unfold(self, |mut stream| async {
            stream.next().await.map(|bytes| (Ok::<_, Infallible>(bytes), stream))
        });
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            // Says to nginx, and to others that know it, that each event is to be passed on at once.
            (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
        ];
        (headers, Body::from_stream(pieces)).into_response()
    }
}

async fn snapshot(hub: &Hub, watched: &Watched) -> Answer<Snapshot> {
    let plan = hub.store().plan(&watched.plan).await?;
    let row = plan.ok_or_else(|| Problem::not_found("plan", watched.plan.as_str()))?;
    let plan = PlanView::from(&row);
    let engine = hub.engine();
    let (mut rate, mut eta_seconds) = (None, None);
    let tasks = match &watched.task {
        None => {
            let of = TasksOf::Plan(watched.plan.clone());
            let statuses = vec![TaskStatus::Running, TaskStatus::Paused, TaskStatus::RollingBack];
            let page = hub.store().tasks(TaskQuery { of, statuses, after: None, limit: MOST_TASKS }).await?;
            let progress = plan_progress(engine, &row).await?;
            (rate, eta_seconds) = (progress.rate, progress.eta_seconds);
            page.items.iter().map(|row| engine.live_progress(report::task_progress(row))).collect()
        }
        Some(id) => {
            let stored = hub.store().task(id).await?;
            let stored = stored.ok_or_else(|| Problem::not_found("task", id.as_str()))?;
            vec![engine.live_progress(TaskProgress::from(&TaskView::from(&stored)))]
        }
    };
    Ok(Snapshot { plan, rate, eta_seconds, tasks })
}

#[cfg(test)]
mod tests {
    use milepost_core::id::PlanId;
    use milepost_core::plan::{ParseOptions, parse};
    use milepost_engine::{Engine, Options, Registry};
    use milepost_store::memory::MemoryStore;
    use milepost_store::{Resubmit, Start};

    use super::*;
    use crate::app::Settings;

    #[tokio::test(start_paused = true)]
    async fn a_comment_comes_every_fifteen_seconds() {
        let engine = Engine::new(Arc::new(MemoryStore::new()), Registry::new(), Options::new("node-1"));
        let plan = PlanId::parse("p").unwrap();
        let text = "{plan: p, stages: [{name: s, uses: noop}], tasks: [{id: t}]}";
        let parsed = parse(text.as_bytes(), &ParseOptions::new("plan.yaml", plan.clone())).unwrap();
        engine.submit(Arc::new(parsed), Start::Later, Resubmit::Same).await.unwrap();
        let app = App::new(engine, Settings::default());
        let mut stream = Stream::open(&app, Watched { plan, task: None }, Resume::Fresh).await.unwrap();
        assert!(stream.next().await.unwrap().starts_with(b"retry: "));
        assert!(stream.next().await.unwrap().starts_with(b"id: "));
        for _ in 0..3 {
            let asked_at = Instant::now();
            assert_eq!(stream.next().await.unwrap(), ":\n\n");
            assert_eq!(asked_at.elapsed(), COMMENT_EVERY);
        }
    }
}
