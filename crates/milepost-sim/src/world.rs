//! A world in which one schedule is played: nodes, a store, a network, and people who ask for things.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use futures::FutureExt;

use milepost_core::id::{IdempotencyKey, StageName, TaskId};
use milepost_core::message::Arrival;
use milepost_core::task::By;
use milepost_core::time::{Millis, Timestamp};
use milepost_engine::{Clock, Engine, Ids, Options, Received, Registry, Target, Verb, VerbError};
use milepost_store::memory::MemoryStore;
use milepost_store::{BoxError, Membership, Resubmit, Start, Store, StoreError};
use serde_json::json;
use tokio::time::Instant;

use crate::dice::Dice;
use crate::flows::Program;
use crate::life::Life;
use crate::outside::{Outside, Work};
use crate::proxy::Proxy;
use crate::schedule::{Act, Aim, Network, NodeSetup, Schedule, Step, Via};
use crate::server::{Place, Server};
use crate::shared::{DAWN, Shared, Truth, Weather};
use crate::trace::Trace;
use crate::watch::Watch;
use crate::wire::Wire;

/// What became of a schedule.
#[derive(Debug)]
pub struct Report {
    /// The first rule that was broken, if one was.
    pub violation: Option<String>,
    pub trace: Trace,
    pub commits: u64,
    /// How much time passed in it.
    pub simulated: Duration,
}

impl Schedule {
    /// Plays the schedule to its end, on a virtual clock and in this thread alone.
    pub fn play(&self, trace: Trace) -> Report {
        self.simulate(false, trace)
    }

    /// The same with the judge of schedules on servers, who only has the log.
    #[cfg(feature = "planted")]
    pub fn play_by_log(&self, trace: Trace) -> Report {
        self.simulate(true, trace)
    }

    fn simulate(&self, by_log: bool, trace: Trace) -> Report {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime on a paused clock needs nothing of the system");
        runtime.block_on(async { World::simulated(self, by_log, trace).play().await })
    }

    /// Plays it on a server, in real time and so many times faster, with nodes that reach the server through proxies.
    pub fn play_on(&self, server: &Server, trace: Trace) -> Report {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async {
            match self.faster(PACE).play_in_place(server, trace).await {
                Ok(report) => report,
                Err(error) => {
                    let violation = Some(format!("the server cannot be used: {error}"));
                    Report { violation, trace: Trace::default(), commits: 0, simulated: Duration::ZERO }
                }
            }
        })
    }

    async fn play_in_place(&self, server: &Server, trace: Trace) -> Result<Report, BoxError> {
        let place = server.place().await?;
        let played = match World::on_server(self, place.clone(), trace).await {
            Ok(world) => Ok(world.play().await),
            Err(error) => Err(error),
        };
        // Whatever came of it, nothing is left behind; and what was found is told, also if something is.
        let removed = removed(&place).await;
        let mut report = played?;
        if let Err(error) = removed {
            report.violation.get_or_insert_with(|| format!("what was played cannot be removed: {error}"));
        }
        Ok(report)
    }
}

/// What the nodes had open may still be closing.
async fn removed(place: &Place) -> Result<(), BoxError> {
    for _ in 0..20 {
        if place.remove().await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
    place.remove().await
}

/// Whoever has no answer asks again so soon.
const ASKS_AGAIN: Duration = Duration::from_secs(1);
/// A node that stops in good order is given so long.
const STOPS_WITHIN: Duration = Duration::from_secs(20);
/// Whoever waits longer gives the lease of its task back.
const PARK_AFTER: Millis = Millis::from_secs(30);
/// How often nodes look for what no word was heard of.
const SWEEP: Duration = Duration::from_secs(60);
/// How long a message lasts that expires.
const EXPIRES_AFTER: Duration = Duration::from_secs(5);
/// How much faster schedules are played on servers.
pub const PACE: u32 = 10;
/// How often the log on a server is looked at, besides when something has to be known.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Whoever cannot open the store tries again.
const OPEN_AGAIN: Duration = Duration::from_millis(200);
/// On a busy machine everything takes a while.
const REAL_CLOCK_ERROR_MS: u64 = 1_000;

/// One process of a node; what a schedule calls a node is one process after another.
pub(crate) struct Process {
    pub(crate) number: usize,
    pub(crate) life: Arc<Life>,
    /// Once it has opened the store.
    pub(crate) engine: Arc<OnceLock<Engine>>,
    skew_ms: i64,
}

/// Where the store is.
enum Ground {
    Simulated(MemoryStore),
    Server(Place),
}

pub(crate) struct World<'a> {
    schedule: &'a Schedule,
    pub(crate) shared: Arc<Shared>,
    ground: Ground,
    outside: Outside,
    /// By node.
    processes: Vec<Process>,
    /// Of all processes there ever were: one that lost its name may still be there.
    lives: Vec<Arc<Life>>,
    pub(crate) visitor: Process,
    started: usize,
    asked: usize,
    /// What is to happen to a node later on.
    later: Vec<(Instant, Later)>,
}

/// Somebody who asks for something, each time under another name.
struct Person {
    name: String,
    /// What is asked for leaves a record, unless it is refused.
    writes: bool,
}

#[derive(Debug, Clone, Copy)]
enum Later {
    Start { node: usize, process: usize, renamed: bool },
    Thaw { node: usize, process: usize },
}

impl<'a> World<'a> {
    fn simulated(schedule: &'a Schedule, by_log: bool, trace: Trace) -> Self {
        let root = MemoryStore::beginning_at(DAWN);
        let truth = Truth { store: Arc::new(root.join(Membership::visitor())), by_log, dawn: DAWN };
        let visitor = Arc::new(root.join(Membership::visitor()));
        Self::new(schedule, Ground::Simulated(root), truth, visitor, trace)
    }

    async fn on_server(schedule: &'a Schedule, place: Place, trace: Trace) -> Result<Self, BoxError> {
        let visitor = place.open(Membership::visitor()).await?;
        let store = place.open(Membership::visitor()).await?;
        // The server is on this machine, and so has its clock.
        let dawn = Timestamp::from_millis(UNIX_EPOCH.elapsed()?.as_millis() as i64);
        let truth = Truth { store, by_log: true, dawn };
        Ok(Self::new(schedule, Ground::Server(place), truth, visitor, trace))
    }

    fn new(schedule: &'a Schedule, ground: Ground, truth: Truth, visitor: Arc<dyn Store>, trace: Trace) -> Self {
        let weather = Weather {
            dice: Dice::new(schedule.seed, 2),
            network: schedule.network,
            away_until: None,
            slow: None,
            cut_until: vec![None; schedule.nodes.len()],
        };
        let clock_error_ms = clock_error_ms(schedule) + if truth.by_log { REAL_CLOCK_ERROR_MS } else { 0 };
        let watch = Watch::new(&schedule.plans, clock_error_ms, truth.by_log);
        let shared = Arc::new(Shared::new(truth, watch, weather, trace));
        let outside = Outside::new(shared.clone(), schedule.pace);
        let visitor = self::visitor(visitor, matches!(ground, Ground::Server(_)), &shared);
        let mut world = Self {
            schedule,
            shared,
            ground,
            outside,
            processes: Vec::new(),
            lives: vec![visitor.life.clone()],
            visitor,
            started: 0,
            asked: 0,
            later: Vec::new(),
        };
        for node in 0..schedule.nodes.len() {
            let process = world.process(node, schedule.nodes[node].skew_ms, false);
            world.processes.push(process);
        }
        world
    }

    async fn play(mut self) -> Report {
        let shared = self.shared.clone();
        if shared.by_log {
            self.visitor.life.spawn(look_on(shared.clone()).boxed());
        }
        tokio::select! {
            biased;
            () = shared.over() => {}
            () = self.play_steps() => {}
        }
        for life in &self.lives {
            life.kill();
        }
        let commits = shared.state().watch.commits;
        Report { violation: shared.violation(), simulated: shared.elapsed(), trace: shared.take_trace(), commits }
    }

    async fn play_steps(&mut self) {
        for Step { at_ms, act } in &self.schedule.steps {
            self.wait_until(self.shared.instant(*at_ms)).await;
            self.act(act);
        }
        let last = self.later.iter().map(|(at, _)| *at).max();
        let weather_ends = {
            let state = self.shared.state();
            let weather = &state.weather;
            weather
                .cut_until
                .iter()
                .copied()
                .flatten()
                .chain(weather.away_until)
                .chain(weather.slow.map(|(until, _)| until))
                .max()
        };
        if let Some(last) = last.into_iter().chain(weather_ends).max() {
            self.wait_until(last).await;
        }
        self.shared.state().weather.clears_up();
        self.shared.say("world", || "nothing goes wrong any more".to_owned());
        self.settle().await;
    }

    /// Lets time pass, and does what was put off until then.
    async fn wait_until(&mut self, until: Instant) {
        loop {
            let next =
                self.later.iter().enumerate().min_by_key(|(index, (at, _))| (*at, *index)).map(|(index, _)| index);
            let Some(index) = next.filter(|index| self.later[*index].0 <= until) else { break };
            let (at, later) = self.later.remove(index);
            tokio::time::sleep_until(at).await;
            self.act_later(later);
        }
        tokio::time::sleep_until(until).await;
    }

    fn act_later(&mut self, later: Later) {
        match later {
            Later::Start { node, process, renamed } if self.processes[node].number == process => {
                let skew = self.processes[node].skew_ms;
                self.processes[node] = self.process(node, skew, renamed);
            }
            Later::Thaw { node, process } if self.processes[node].number == process => {
                self.shared.say(&format!("#{process}"), || "thaws".to_owned());
                self.processes[node].life.thaw();
            }
            // Another process has taken its place meanwhile.
            Later::Start { .. } | Later::Thaw { .. } => {}
        }
    }

    fn process(&mut self, node: usize, skew_ms: i64, renamed: bool) -> Process {
        self.started += 1;
        let (number, setup) = (self.started, &self.schedule.nodes[node]);
        let name = if renamed { format!("n{node}-{number}") } else { format!("n{node}") };
        let who = format!("#{number}");
        self.shared.say(&who, || format!("starts as {name}"));
        let life = Life::new();
        self.lives.push(life.clone());
        let lease = Millis::new(self.schedule.lease_ms);
        let born = Born {
            shared: self.shared.clone(),
            life: life.clone(),
            outside: self.outside.from(number),
            setup: setup.clone(),
            name,
            boot: who,
            number,
            node,
            lease,
            park_after: Millis::new(PARK_AFTER.get() / u64::from(self.schedule.pace)),
            sweep: if hears_everything(self.schedule) { Duration::from_secs(24 * 3600) } else { self.pace(SWEEP) },
            skew_ms,
            is_proxied: matches!(self.ground, Ground::Server(_)),
            engine: Arc::default(),
        };
        self.shared.state().watch.joins(number, setup.on_store_loss);
        let engine = born.engine.clone();
        match &self.ground {
            Ground::Simulated(root) => {
                let store = Arc::new(root.join(born.membership()));
                born.begins(store);
            }
            Ground::Server(place) => life.spawn(born.opens(place.clone()).boxed()),
        }
        Process { number, life, engine, skew_ms }
    }

    pub(crate) fn pace(&self, length: Duration) -> Duration {
        length / self.schedule.pace
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Submit { plan, start, update } => self.submit(*plan, *start, *update),
            Act::Operate { target, verb, via } => {
                let target = match target {
                    Aim::Plan(plan) => Target::Plan(plan.clone()),
                    Aim::Task(task) => Target::Task(task.clone()),
                    Aim::Tenant(tenant) => Target::Tenant(tenant.clone()),
                };
                let (verb, by) = (*verb, self.person());
                let words = format!("{verb:?} {target:?}");
                let person = Person { name: by.who.clone(), writes: false };
                self.ask(*via, words, person, move |engine| async move {
                    engine.operate(target, verb, by).await.map(|_| ())
                });
            }
            Act::Signal { task, name, via } => {
                let (task, by) = (task.clone(), self.person());
                let name = StageName::parse(*name).expect("a name");
                let words = format!("signal {name} to {task}");
                let person = Person { name: by.who.clone(), writes: true };
                let key = IdempotencyKey::parse(&by.who).expect("a key");
                let pause = self.pace(ASKS_AGAIN);
                self.ask(*via, words, person, move |engine| signal(engine, key, task, name, by, pause));
            }
            Act::Message { task, id, again, expires, via } => self.message(task, id, *again, *expires, *via),
            Act::Kill { node, for_ms, renamed } => {
                let process = &self.processes[*node];
                if !process.life.is_dead() {
                    self.shared.say(&format!("#{}", process.number), || "is killed".to_owned());
                    process.life.kill();
                    let start = Later::Start { node: *node, process: process.number, renamed: *renamed };
                    self.put_off(*for_ms, start);
                }
            }
            Act::Stop { node, for_ms } => self.stop(*node, *for_ms),
            Act::Usurp { node } => {
                let skew = self.processes[*node].skew_ms;
                self.processes[*node] = self.process(*node, skew, false);
            }
            Act::Freeze { node, for_ms } => {
                let process = &self.processes[*node];
                if process.life.runs() {
                    self.shared.say(&format!("#{}", process.number), || format!("is frozen for {for_ms} ms"));
                    process.life.freeze();
                    self.put_off(*for_ms, Later::Thaw { node: *node, process: process.number });
                }
            }
            Act::Cut { node, for_ms } => {
                self.shared.say(&format!("node {node}"), || format!("is cut off for {for_ms} ms"));
                self.shared.state().weather.cut_until[*node] = Some(in_ms(*for_ms));
            }
            Act::Away { for_ms } => {
                self.shared.say("store", || format!("is away for {for_ms} ms"));
                self.shared.state().weather.away_until = Some(in_ms(*for_ms));
            }
            Act::Slow { for_ms, by_ms } => {
                self.shared.say("store", || format!("is slow by {by_ms} ms for {for_ms} ms"));
                let slow = (in_ms(*for_ms), Duration::from_millis(*by_ms));
                self.shared.state().weather.slow = Some(slow);
            }
            Act::SetClock { node, by_ms } => {
                // The clock of a process goes on from where it was when it started; the next one believes the new time.
                self.processes[*node].skew_ms += by_ms;
            }
        }
    }

    fn put_off(&mut self, ms: u64, later: Later) {
        self.later.push((in_ms(ms), later));
    }

    fn stop(&mut self, node: usize, for_ms: u64) {
        let process = &self.processes[node];
        if !process.life.runs() {
            return;
        }
        let (engine, life, number) = (process.engine.clone(), process.life.clone(), process.number);
        let (shared, within) = (self.shared.clone(), self.pace(STOPS_WITHIN));
        shared.say(&format!("#{number}"), || "is told to stop".to_owned());
        tokio::spawn(async move {
            let stopped = match engine.get() {
                Some(engine) => tokio::time::timeout(within, engine.stop()).await.is_ok(),
                None => false,
            };
            shared.say(&format!("#{number}"), || if stopped { "has stopped" } else { "is ended" }.to_owned());
            life.kill();
        });
        // Its successor begins when it is gone at the latest; it may begin before, as in a rolling restart.
        self.put_off(for_ms + within.as_millis() as u64 + 1, Later::Start { node, process: number, renamed: false });
    }

    fn person(&mut self) -> By {
        self.asked += 1;
        By::new(format!("person {}", self.asked))
    }

    fn via(&self, via: Via) -> &Process {
        match via {
            Via::Node(node) => &self.processes[node],
            Via::Visitor => &self.visitor,
        }
    }

    /// Asks for something in the background. Whoever asks a process that dies gets no answer.
    fn ask<F>(&self, via: Via, words: String, person: Person, ask: impl FnOnce(Engine) -> F)
    where
        F: Future<Output = Result<(), VerbError>> + Send + 'static,
    {
        let process = self.via(via);
        let (who, shared, life) = (format!("#{}", process.number), self.shared.clone(), process.life.clone());
        let Some(engine) = process.engine.get() else {
            return shared.say(&who, || format!("is not there yet, and cannot {words}"));
        };
        shared.say(&who, || format!("is asked to {words}"));
        let asking = ask(engine.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                answer = asking => {
                    shared.answered(&person.name, &answer, person.writes).await;
                    shared.say(&who, || match answer {
                        Ok(()) => format!("did {words}"),
                        Err(error) => format!("did not {words}: {error}"),
                    });
                }
                () = life.died() => {}
            }
        });
    }

    fn submit(&self, plan: usize, start: bool, update: bool) {
        let plan = self.schedule.plans[plan].clone();
        let start = if start { Start::AtOnce } else { Start::Later };
        let resubmit = if update { Resubmit::Update } else { Resubmit::Same };
        let Some(engine) = self.visitor.engine.get().cloned() else { return };
        let (shared, pause) = (self.shared.clone(), self.pace(ASKS_AGAIN));
        let submits = async move {
            // Whoever submits does it until there is an answer.
            loop {
                let submitted = engine.submit(plan.clone(), start, resubmit).await;
                let words = match &submitted {
                    Ok(submitted) => format!("submitted {}: created: {}", plan.definition.id, submitted.created),
                    Err(error) => format!("did not submit {}: {error}", plan.definition.id),
                };
                shared.say("person", || words);
                let away = matches!(
                    &submitted,
                    Err(milepost_engine::EngineError::Store(milepost_store::StoreError::Unavailable { .. }))
                );
                if !away {
                    return;
                }
                tokio::time::sleep(pause).await;
            }
        };
        self.visitor.life.spawn(submits.boxed());
    }

    /// A queue that delivers at least once: until it is told that the message is durable, and sometimes again.
    fn message(&self, task: &TaskId, id: &str, again: u64, expires: bool, via: Via) {
        let now = self.shared.now();
        let message = Arc::new(Arrival {
            id: id.into(),
            deadline: expires.then(|| now + Millis::new(self.pace(EXPIRES_AFTER).as_millis() as u64)),
            remembered_until: now + Millis::from_secs(3600),
            text: "{}".into(),
            origin: None,
        });
        let process = self.via(via);
        let Some(visitor) = self.visitor.engine.get().cloned() else { return };
        let (engine, life) = (process.engine.get().unwrap_or(&visitor).clone(), process.life.clone());
        let (shared, task, pause) = (self.shared.clone(), task.clone(), self.pace(ASKS_AGAIN));
        let delivers = async move {
            let mut left = again + 1;
            // A task that never comes is waited for so long.
            for _ in 0..100 {
                let engine = if life.is_dead() { &visitor } else { &engine };
                let received = tokio::select! {
                    biased;
                    received = engine.receive(&task, message.clone()) => received,
                    () = life.died(), if !life.is_dead() => continue,
                };
                shared.say("queue", || format!("{} for {task}: {received:?}", message.id));
                if let Ok(received) = received
                    && received != Received::Unknown
                {
                    shared.acknowledged(&task, received).await;
                    left -= 1;
                    if left == 0 {
                        return;
                    }
                }
                tokio::time::sleep(pause).await;
            }
        };
        self.visitor.life.spawn(delivers.boxed());
    }

    /// Everything runs from here on.
    pub(crate) fn revive(&mut self) {
        for node in 0..self.processes.len() {
            self.processes[node].life.thaw();
            if self.processes[node].life.is_dead() {
                self.processes[node] = self.process(node, 0, false);
            }
        }
    }
}

/// A process that is about to begin.
struct Born {
    shared: Arc<Shared>,
    life: Arc<Life>,
    outside: Arc<Outside>,
    setup: NodeSetup,
    name: String,
    boot: String,
    number: usize,
    node: usize,
    lease: Millis,
    park_after: Millis,
    sweep: Duration,
    skew_ms: i64,
    is_proxied: bool,
    engine: Arc<OnceLock<Engine>>,
}

impl Born {
    fn membership(&self) -> Membership {
        Membership { lease: self.lease, ..Membership::node(self.name.as_str(), self.boot.as_str()) }
    }

    /// Opens the store by a proxy of its own. Who cannot is started again until it can, each time as another.
    async fn opens(mut self, place: Place) {
        let (shared, life, node) = (self.shared.clone(), self.life.clone(), self.node);
        let Ok(port) = (Proxy { shared, life, node, server: place.host().into() }).open().await else {
            return self.shared.violated("no proxy can be opened here".to_owned());
        };
        for again in 1.. {
            match place.open_at(Some(port), self.membership()).await {
                Ok(store) => return self.begins(store),
                Err(error) => self.shared.say(&self.boot, || format!("cannot open the store: {error}")),
            }
            tokio::time::sleep(OPEN_AGAIN).await;
            self.boot = format!("#{}.{again}", self.number);
        }
    }

    fn begins(self, store: Arc<dyn Store>) {
        let Self {
            shared,
            life,
            outside,
            setup,
            name,
            boot,
            number,
            node,
            lease,
            park_after,
            sweep,
            skew_ms,
            is_proxied,
            engine,
        } = self;
        let wire = Wire {
            store,
            shared: shared.clone(),
            node: Some(node),
            process: number,
            losses: Arc::default(),
            is_proxied,
        };
        let mut options = Options::new(name.as_str());
        options.capacity = setup.capacity;
        options.chains = setup.chains;
        options.on_store_loss = setup.on_store_loss;
        options.lease = lease.as_duration();
        options.park_after = park_after;
        options.sweep = sweep;
        options.clock = clock(&shared, skew_ms, setup.drift_ppm);
        options.boot_id = boot.as_str().into();
        options.ids = ids(&boot);
        options.spawner = life.spawner();
        let registry =
            Registry::new().with("work", Arc::new(Work(outside.clone()))).with_workflow(Arc::new(Program { outside }));
        let begun = engine.get_or_init(|| Engine::new(Arc::new(wire), registry, options));
        begun.start();
        tokio::spawn(ends_when_ousted(begun.clone(), life, shared, boot));
    }
}

/// What is judged by the log is looked at from time to time.
async fn look_on(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        shared.look().await;
    }
}

/// A process whose name another one has taken ends by itself, and whoever looks after it starts it again.
async fn ends_when_ousted(engine: Engine, life: Arc<Life>, shared: Arc<Shared>, who: String) {
    tokio::select! {
        biased;
        () = life.died() => {}
        why = engine.ousted() => {
            shared.say(&who, || why);
            life.kill();
        }
    }
}

/// Whether whoever writes lives to hear what came of it, so that nobody needs to look for what there was no word of.
/// Where nodes do not need to, they do not: a word that is forgotten would be found only late.
fn hears_everything(schedule: &Schedule) -> bool {
    let Network { latency_ms: _, lost, answer_lost, late, repeated } = schedule.network;
    let misses = |step: &Step| match &step.act {
        Act::Cut { .. } | Act::Away { .. } | Act::Slow { .. } => true,
        // Some of its tasks are cancelled by whoever finds them, if the one who was asked dies.
        Act::Operate { target: Aim::Plan(_), verb: Verb::Cancel, .. } => true,
        Act::Submit { .. }
        | Act::Operate { .. }
        | Act::Signal { .. }
        | Act::Message { .. }
        | Act::Kill { .. }
        | Act::Stop { .. }
        | Act::Usurp { .. }
        | Act::Freeze { .. }
        | Act::SetClock { .. } => false,
    };
    lost + answer_lost + late + repeated == 0 && !schedule.steps.iter().any(misses)
}

/// How far nodes may be from the store's time: they learn it by calls that take their time, and not the same each way.
fn clock_error_ms(schedule: &Schedule) -> u64 {
    let slowest = schedule.steps.iter().filter_map(|step| match step.act {
        Act::Slow { by_ms, .. } => Some(by_ms),
        _ => None,
    });
    let wrong = schedule.nodes.iter().any(|node| node.skew_ms != 0 || node.drift_ppm != 0)
        || schedule.steps.iter().any(|step| matches!(step.act, Act::SetClock { .. }));
    let drift = if wrong { 100 } else { 0 };
    2 * schedule.network.latency_ms + slowest.max().unwrap_or(0) + drift
}

fn in_ms(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

fn clock(shared: &Shared, skew_ms: i64, drift_ppm: i32) -> Clock {
    Clock::manual_with_drift(Timestamp::from_millis(shared.now().as_millis() + skew_ms), drift_ppm)
}

/// Sends a signal, and again under its key while nobody can say what became of it.
async fn signal(
    engine: Engine,
    key: IdempotencyKey,
    task: TaskId,
    name: StageName,
    by: By,
    pause: Duration,
) -> Result<(), VerbError> {
    for _ in 0..5 {
        match engine.signal_under(key.clone(), &task, name.clone(), json!(1), by.clone()).await {
            Err(VerbError::Moved | VerbError::InDoubt(_) | VerbError::Store(StoreError::Unavailable { .. })) => {
                tokio::time::sleep(pause).await;
            }
            answer => return answer.map(|_| ()),
        }
    }
    Err(VerbError::Moved)
}

/// The same in every run of a seed.
fn ids(process: &str) -> Ids {
    let (process, given) = (process.to_owned(), AtomicU64::new(0));
    Ids::from_fn(move || format!("{process}.{}", given.fetch_add(1, Ordering::Relaxed)))
}

fn visitor(store: Arc<dyn Store>, is_proxied: bool, shared: &Arc<Shared>) -> Process {
    let life = Life::new();
    let wire: Arc<dyn Store> =
        Arc::new(Wire { store, shared: shared.clone(), node: None, process: 0, losses: Arc::default(), is_proxied });
    let mut options = Options::new("visitor");
    options.clock = clock(shared, 0, 0);
    options.boot_id = "visitor".into();
    options.ids = ids("visitor");
    options.spawner = life.spawner();
    let engine = Arc::new(OnceLock::from(Engine::new(wire, Registry::new(), options)));
    Process { number: 0, life, engine, skew_ms: 0 }
}
