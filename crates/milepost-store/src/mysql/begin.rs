//! The first round trip of a transaction: the lock that everybody takes, who is there, and what the group is about.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use milepost_core::time::Timestamp;
use mysql_async::{Conn, Error, Row, ServerError};

use super::books::Books;
use super::codec::{Columns, Sql};
use super::connect::{ALONE, run};
use super::desk::Desk;
use super::heard::late;
use super::sql::{NOW, longest_value, numbers};
use super::states::{Counters, PLAN, PlanState, SessionState, TASK, TaskState};
use super::store::Shared;
use super::writes::Writes;

/// One transaction: the connection that it is on, and what it knows and has to write.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) connection: Conn,
    pub(super) shared: Arc<Shared>,
    pub(super) desk: Desk,
}

/// What the first round trip is to bring beside the lock.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) tasks: BTreeSet<i64>,
    /// What is there already of what is to go into the books.
    pub(super) books: Option<String>,
    /// Questions of later steps, each answered by its own rows in this order.
    pub(super) questions: Vec<String>,
}

const COUNTERS: &str =
    "SELECT position, sessions, fence, offered, plans, tasks, entries FROM milepost_counters WHERE id = 1";

fn sessions_now() -> String {
    format!("SELECT session, ended, expires_at < {NOW} FROM milepost_nodes")
}

impl Turn {
    /// The lock is taken by the second statement; whatever is read after it is the newest there is. A client that is
    /// stopped in between is cut off soon, so that it holds up the others no longer than that.
    pub(super) async fn begin(shared: Arc<Shared>, connection: Conn, wanted: Wanted) -> Sql<(Self, Vec<Vec<Row>>)> {
        let mut connection = connection;
        let sql = format!(
            "SET SESSION wait_timeout = {ALONE}; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
             {COUNTERS} FOR UPDATE; {}; SELECT {NOW}, {} > 0",
            sessions_now(),
            late()
        );
        let mut statements = vec![sql];
        if !wanted.tasks.is_empty() {
            statements.extend(questions_about(&numbers(wanted.tasks.iter().copied())));
        }
        let asks_for_books = wanted.books.is_some();
        statements.extend(wanted.books);
        statements.extend(wanted.questions);
        shared.server.asked.fetch_add(1, Ordering::Relaxed);
        let mut answers = run_if_taken(&shared, &mut connection, &statements.join("; ")).await?.into_iter();
        let counters = read_counters(answers.next().unwrap_or_default())?;
        let sessions = read_sessions(answers.next().unwrap_or_default())?;
        let (mut now, mut too_late) = (Timestamp::default(), false);
        if let Some(row) = answers.next().unwrap_or_default().into_iter().next() {
            let mut columns = Columns::from(row);
            (now, too_late) = (columns.time()?, columns.flag()?);
        }
        let own = shared.session();
        let desk = Desk {
            counters,
            flushed: counters,
            now,
            sessions,
            own,
            plans: HashMap::new(),
            tasks: HashMap::new(),
            writes: Writes::default(),
            books: Books::default(),
            freed: BTreeSet::new(),
            ends_a_session: false,
            lock_ttl: shared.membership.lock_ttl,
            longest: longest_value(shared.packet),
        };
        let mut turn = Self { connection, shared, desk };
        if !wanted.tasks.is_empty() {
            turn.take_tasks(answers.next().unwrap_or_default())?;
            turn.take_plans(answers.next().unwrap_or_default())?;
        }
        if asks_for_books {
            turn.desk.books.know(answers.next().unwrap_or_default())?;
        }
        if too_late {
            turn.forgive().await?;
            turn.desk.sessions = read_sessions(turn.ask_one(&sessions_now()).await?)?;
        }
        turn.end_expired().await?;
        Ok((turn, answers.collect()))
    }

    /// Sessions that have run out end here, before anything is decided that depends on them. Whether one renews its
    /// lease at this very moment is decided by the row, which one of the two changes first. Our own is never ended by
    /// ourselves: as long as nobody else was let in, it goes on.
    async fn end_expired(&mut self) -> Sql<()> {
        let own = self.desk.own;
        let run_out = |session: &&SessionState| session.expired && !session.ended && Some(session.number) != own;
        let expired: Vec<u64> = self.desk.sessions.iter().filter(run_out).map(|session| session.number).collect();
        if expired.is_empty() {
            return Ok(());
        }
        tracing::warn!(sessions = ?expired, "the lease of a node has run out; its tasks are free to be taken over");
        let list = numbers(expired.iter().map(|number| *number as i64));
        let sql = format!(
            "UPDATE milepost_nodes SET ended = 1 WHERE session IN ({list}) AND expires_at < {NOW}; \
             {}",
            sessions_now()
        );
        let answer = self.ask(&sql).await?.pop().unwrap_or_default();
        self.desk.sessions = read_sessions(answer)?;
        self.desk.offer();
        self.desk.ends_a_session = true;
        Ok(())
    }

    /// Sends statements inside the transaction.
    pub(super) async fn ask(&mut self, sql: &str) -> Sql<Vec<Vec<Row>>> {
        self.shared.server.asked.fetch_add(1, Ordering::Relaxed);
        run_if_taken(&self.shared, &mut self.connection, sql).await
    }

    pub(super) async fn ask_one(&mut self, sql: &str) -> Sql<Vec<Row>> {
        Ok(self.ask(sql).await?.into_iter().next().unwrap_or_default())
    }

    /// Keeps what was read, unless it lies here already: then it may have been changed since.
    pub(super) fn take_tasks(&mut self, rows: Vec<Row>) -> Sql<()> {
        for row in rows {
            let task = TaskState::read(&mut Columns::from(row))?;
            self.desk.tasks.entry(task.no).or_insert(task);
        }
        Ok(())
    }

    pub(super) fn take_plans(&mut self, rows: Vec<Row>) -> Sql<Vec<i64>> {
        let mut taken = Vec::with_capacity(rows.len());
        for row in rows {
            let plan = PlanState::read(&mut Columns::from(row))?;
            taken.push(plan.no);
            self.desk.plans.entry(plan.no).or_insert(plan);
        }
        Ok(taken)
    }

    /// Brings plans to the desk.
    pub(super) async fn read_plans(&mut self, plans: impl IntoIterator<Item = i64>) -> Sql<()> {
        let missing: BTreeSet<i64> = plans.into_iter().filter(|no| !self.desk.plans.contains_key(no)).collect();
        if !missing.is_empty() {
            let sql = format!("SELECT {PLAN} FROM sync_tasks p WHERE p.id IN ({})", numbers(missing));
            let rows = self.ask_one(&sql).await?;
            self.take_plans(rows)?;
        }
        Ok(())
    }

    /// Whether this process may write under its own name: it is a visitor, or its session is there.
    pub(super) fn may_write(&self) -> bool {
        let live = |own| self.desk.sessions.iter().any(|session| session.number == own && !session.ended);
        self.desk.own.is_none_or(live)
    }
}

/// The tasks, and the plans that they belong to.
fn questions_about(tasks: &str) -> [String; 2] {
    [
        format!("SELECT {TASK} FROM task_unit_runtimes r WHERE r.id IN ({tasks})"),
        format!(
            "SELECT {PLAN} FROM sync_tasks p JOIN (SELECT DISTINCT task_id FROM task_unit_runtimes \
             WHERE id IN ({tasks})) t ON t.task_id = p.id"
        ),
    ]
}

fn read_counters(rows: Vec<Row>) -> Sql<Counters> {
    let row = rows.into_iter().next();
    let row = row.ok_or_else(|| mysql_async::Error::Other("the row of counters is gone".into()))?;
    let mut columns = Columns::from(row);
    Ok(Counters {
        position: columns.next()?,
        sessions: columns.natural()?,
        fence: columns.natural()?,
        offered: columns.next()?,
        plans: columns.next()?,
        tasks: columns.next()?,
        entries: columns.next()?,
    })
}

fn read_sessions(rows: Vec<Row>) -> Sql<Vec<SessionState>> {
    let session = |row| {
        let mut columns = Columns::from(row);
        Ok(SessionState { number: columns.natural()?, ended: columns.flag()?, expired: columns.flag()? })
    };
    rows.into_iter().map(session).collect()
}

/// What is too much for one packet is refused before it is sent: the server would break off the connection, and with it what
/// others write in the same transaction.
async fn run_if_taken(shared: &Shared, connection: &mut Conn, sql: &str) -> Sql<Vec<Vec<Row>>> {
    let (length, most) = (sql.len(), shared.packet);
    if length >= most {
        let message = format!("{length} bytes at once are more than max_allowed_packet, which is {most}");
        return Err(Error::Server(ServerError { code: 1153, message, state: "08S01".to_owned() }));
    }
    run(connection, sql).await
}
