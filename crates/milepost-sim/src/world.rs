//! A world in which one schedule is played: nodes, a store, a network, and people who ask for things.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use milepost_core::id::{IdempotencyKey, StageName, TaskId};
use milepost_core::message::Arrival;
use milepost_core::task::By;
use milepost_core::time::{Millis, Timestamp};
use milepost_engine::{Clock, Engine, Ids, Options, Received, Registry, Target, Verb, VerbError};
use milepost_store::memory::MemoryStore;
use milepost_store::{Membership, Resubmit, Start, Store, StoreError};
use serde_json::json;
use tokio::time::Instant;

use crate::dice::Dice;
use crate::flows::Program;
use crate::life::Life;
use crate::outside::{Outside, Work};
use crate::schedule::{Act, Aim, Network, Schedule, Step, Via};
use crate::shared::{DAWN, Shared, Weather};
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime on a paused clock needs nothing of the system");
        runtime.block_on(async { World::new(self, trace).play().await })
    }
}

/// One process of a node; what a schedule calls a node is one process after another.
pub(crate) struct Process {
    pub(crate) number: usize,
    pub(crate) life: Arc<Life>,
    pub(crate) engine: Engine,
    skew_ms: i64,
}

pub(crate) struct World<'a> {
    schedule: &'a Schedule,
    pub(crate) shared: Arc<Shared>,
    root: MemoryStore,
    outside: Outside,
    /// By node.
    processes: Vec<Process>,
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
    fn new(schedule: &'a Schedule, trace: Trace) -> Self {
        let root = MemoryStore::beginning_at(DAWN);
        let weather = Weather {
            dice: Dice::new(schedule.seed, 2),
            network: schedule.network,
            away_until: None,
            slow: None,
            cut_until: vec![None; schedule.nodes.len()],
        };
        let shared = Arc::new(Shared::new(root.join(Membership::visitor()), Watch::default(), weather, trace));
        shared.state().watch.clock_error_ms = clock_error_ms(schedule);
        let outside = Outside::new(shared.clone());
        let visitor = visitor(&root, &shared);
        let mut world = Self {
            schedule,
            shared,
            root,
            outside,
            processes: Vec::new(),
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
        tokio::select! {
            biased;
            () = shared.over() => {}
            () = self.play_steps() => {}
        }
        for process in &self.processes {
            process.life.kill();
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
        let lease = Millis::new(self.schedule.lease_ms);
        let membership = Membership { lease, ..Membership::node(name.as_str(), who.as_str()) };
        let store = Arc::new(self.root.join(membership));
        let wire = Wire { store, shared: self.shared.clone(), node: Some(node), process: number };
        let mut options = Options::new(name.as_str());
        options.capacity = setup.capacity;
        options.chains = setup.chains;
        options.on_store_loss = setup.on_store_loss;
        options.lease = lease.as_duration();
        options.clock = clock(&self.shared, skew_ms, setup.drift_ppm);
        if hears_everything(self.schedule) {
            options.sweep = Duration::from_secs(24 * 3600);
        }
        options.boot_id = who.as_str().into();
        options.ids = ids(&who);
        options.spawner = life.spawner();
        self.shared.state().watch.joins(number, setup.on_store_loss);
        let outside = self.outside.from(number);
        let registry =
            Registry::new().with("work", Arc::new(Work(outside.clone()))).with_workflow(Arc::new(Program { outside }));
        let engine = Engine::new(Arc::new(wire), registry, options);
        engine.start();
        tokio::spawn(ends_when_ousted(engine.clone(), life.clone(), self.shared.clone(), who));
        Process { number, life, engine, skew_ms }
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
                self.ask(*via, words, person, move |engine| signal(engine, key, task, name, by));
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
        let shared = self.shared.clone();
        shared.say(&format!("#{number}"), || "is told to stop".to_owned());
        tokio::spawn(async move {
            let stopped = tokio::time::timeout(Duration::from_secs(20), engine.stop()).await;
            shared.say(&format!("#{number}"), || if stopped.is_ok() { "has stopped" } else { "is ended" }.to_owned());
            life.kill();
        });
        // Its successor begins when it is gone at the latest; it may begin before, as in a rolling restart.
        self.put_off(for_ms + 20_001, Later::Start { node, process: number, renamed: false });
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
        shared.say(&who, || format!("is asked to {words}"));
        let asking = ask(process.engine.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                answer = asking => {
                    shared.answered(&person.name, &answer, person.writes);
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
        let (engine, shared) = (self.visitor.engine.clone(), self.shared.clone());
        tokio::spawn(async move {
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
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }

    /// A queue that delivers at least once: until it is told that the message is durable, and sometimes again.
    fn message(&self, task: &TaskId, id: &str, again: u64, expires: bool, via: Via) {
        let now = self.shared.now();
        let message = Arc::new(Arrival {
            id: id.into(),
            deadline: expires.then(|| now + Millis::from_secs(5)),
            remembered_until: now + Millis::from_secs(3600),
            text: "{}".into(),
            origin: None,
        });
        let process = self.via(via);
        let (engine, life, visitor) = (process.engine.clone(), process.life.clone(), self.visitor.engine.clone());
        let (shared, task) = (self.shared.clone(), task.clone());
        tokio::spawn(async move {
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
                    shared.acknowledged(&task, received);
                    left -= 1;
                    if left == 0 {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
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

/// A process whose name another one has taken ends by itself, and whoever looks after it starts it again.
async fn ends_when_ousted(engine: Engine, life: Arc<Life>, shared: Arc<Shared>, who: String) {
    let why = engine.ousted().await;
    if !life.is_dead() {
        shared.say(&who, || why);
        life.kill();
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
async fn signal(engine: Engine, key: IdempotencyKey, task: TaskId, name: StageName, by: By) -> Result<(), VerbError> {
    for _ in 0..5 {
        match engine.signal_under(key.clone(), &task, name.clone(), json!(1), by.clone()).await {
            Err(VerbError::Moved | VerbError::Store(StoreError::Unavailable { .. })) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
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

fn visitor(root: &MemoryStore, shared: &Arc<Shared>) -> Process {
    let life = Life::new();
    let store = Arc::new(root.join(Membership::visitor()));
    let wire: Arc<dyn Store> = Arc::new(Wire { store, shared: shared.clone(), node: None, process: 0 });
    let mut options = Options::new("visitor");
    options.clock = clock(shared, 0, 0);
    options.boot_id = "visitor".into();
    options.ids = ids("visitor");
    options.spawner = life.spawner();
    Process { number: 0, life, engine: Engine::new(wire, Registry::new(), options), skew_ms: 0 }
}
