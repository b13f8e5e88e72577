//! A disk that loses power: of what was written and not synced any part may be gone, and nothing that was acknowledged.
//!
//! The program runs once with every write, sync, creation and removal written down in order, and its commands write down
//! in between that they began. Any moment of that record can then be played as the last one before the lights went out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use milepost_core::task::PlanStatus;
use milepost_store::sqlite::SqliteStore;

use crate::history::{FILES, History};
use crate::library::library;
use crate::seed::Dice;
use crate::support::World;

const TASKS: usize = 10;
const SECTOR: usize = 512;

/// Each command says that it began: by then its start, and the ends of all stages before it, have to be on the disk.
fn plan(at_once: u64, stages: usize, kilobytes: usize) -> String {
    let script = format!(
        r#"
      printf 'A %s %s %s\n' "$MILEPOST_TASK" "$MILEPOST_STAGE" "$MILEPOST_ATTEMPT" >> trace
      printf 'large=%0{}d\n' 0 > "$MILEPOST_OUTPUT""#,
        kilobytes * 1024
    );
    let stages: String = (1..=stages).map(|stage| format!("  - name: s{stage}\n    run: |{script}\n")).collect();
    let tasks: String = (1..=TASKS).map(|task| format!("  - {{ id: t-{task} }}\n")).collect();
    format!("plan: p\nmax_concurrency: {at_once}\nstages:\n{stages}tasks:\n{tasks}")
}

/// Task, stage and attempt.
type Began = (String, String, u32);

/// One thing that happened, in the order in which it did.
enum Step {
    Created(String),
    Removed(String),
    Changed(String, Change),
    Synced(String),
    FolderSynced,
    Began(Began),
}

#[derive(Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Length(usize),
}

/// Runs the plan to its end, and answers what it did to the disk.
fn traced_run(world: &World) -> Vec<Step> {
    let mut command = world.command(&["run", "p.yaml"]);
    command.env("LD_PRELOAD", library("power")).env("TRACE", world.path().join("trace"));
    world.start_command(command).end().must_exit(0);
    let trace = fs::read(world.path().join("trace")).unwrap();
    let (mut rest, mut steps) = (&trace[..], Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = std::str::from_utf8(&rest[..end]).unwrap();
        rest = &rest[end + 1..];
        let words: Vec<&str> = line.split(' ').collect();
        steps.push(match words[..] {
            ["C", name] => Step::Created(name.to_owned()),
            ["U", name] => Step::Removed(name.to_owned()),
            ["S", name] => Step::Synced(name.to_owned()),
            ["D"] => Step::FolderSynced,
            ["T", name, length] => Step::Changed(name.to_owned(), Change::Length(length.parse().unwrap())),
            ["W", name, at, length] => {
                let (bytes, after) = rest.split_at(length.parse().unwrap());
                rest = after;
                Step::Changed(name.to_owned(), Change::Write { at: at.parse().unwrap(), bytes: bytes.to_vec() })
            }
            ["A", task, stage, attempt] => Step::Began((task.to_owned(), stage.to_owned(), attempt.parse().unwrap())),
            _ => panic!("`{line}` is no record"),
        });
    }
    steps
}

/// Names and contents.
type Files = BTreeMap<String, Vec<u8>>;

/// What of a folder is on the disk for certain, and what may or may not be.
struct Disk {
    files: Vec<File>,
    /// By name, as the program sees it and as it was when the folder was last synced.
    names: BTreeMap<String, usize>,
    certain: BTreeMap<String, usize>,
    /// Each state of the folder since then: a file system keeps the order of its names.
    since: Vec<BTreeMap<String, usize>>,
    /// What a disk does that says it has synced, and has not.
    ignores_syncs: bool,
}

#[derive(Default)]
struct File {
    certain: Vec<u8>,
    since: Vec<Change>,
}

impl Disk {
    fn with(files: &Files) -> Self {
        let names: BTreeMap<String, usize> = files.keys().cloned().zip(0..).collect();
        let files = files.values().map(|bytes| File { certain: bytes.clone(), since: Vec::new() }).collect();
        Self { files, certain: names.clone(), names, since: Vec::new(), ignores_syncs: false }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Created(name) => {
                self.names.insert(name.clone(), self.files.len());
                self.files.push(File::default());
                self.since.push(self.names.clone());
            }
            Step::Removed(name) => {
                self.names.remove(name).expect("it was there");
                self.since.push(self.names.clone());
            }
            Step::Changed(name, change) => self.files[self.names[name]].since.push(change.clone()),
            Step::Synced(name) if !self.ignores_syncs => {
                let file = &mut self.files[self.names[name]];
                for change in std::mem::take(&mut file.since) {
                    change.make(&mut file.certain, |_| true);
                }
            }
            Step::FolderSynced if !self.ignores_syncs => {
                self.certain = self.names.clone();
                self.since.clear();
            }
            Step::Synced(_) | Step::FolderSynced | Step::Began(_) => {}
        }
    }

    /// What the next start finds: all that is certain, and by chance any of the sectors written since.
    fn lose_power(&self, dice: &mut Dice) -> Files {
        let states: Vec<_> = std::iter::once(&self.certain).chain(&self.since).collect();
        let names = states[usize::try_from(dice.below(states.len() as u64)).unwrap()];
        let found = names.iter().map(|(name, file)| {
            // From "nothing reached it" to "all but the sync itself".
            let kept_of_8 = dice.below(9);
            let file = &self.files[*file];
            let mut bytes = file.certain.clone();
            for change in &file.since {
                change.clone().make(&mut bytes, |_| dice.below(8) < kept_of_8);
            }
            (name.clone(), bytes)
        });
        found.collect()
    }
}

impl Change {
    /// Makes those parts of it that are kept; what was never written between them reads as zeros.
    fn make(self, file: &mut Vec<u8>, mut is_kept: impl FnMut(usize) -> bool) {
        match self {
            Self::Length(length) => {
                if is_kept(0) {
                    file.resize(length, 0);
                }
            }
            Self::Write { at, bytes } => {
                let mut from = 0;
                while from < bytes.len() {
                    let to = bytes.len().min(from + SECTOR - (at + from) % SECTOR);
                    if is_kept(from) {
                        file.resize(file.len().max(at + to), 0);
                        file[at + from..at + to].copy_from_slice(&bytes[from..to]);
                    }
                    from = to;
                }
            }
        }
    }
}

/// What a run leaves when power is lost at some moment of it.
struct Outage {
    files: Files,
    /// What was told to the world by then.
    began: BTreeSet<Began>,
}

/// Plays a run that began with these files, once, up to each of as many moments.
fn outages(steps: &[Step], mut disk: Disk, moments: usize, from: usize, dice: &mut Dice) -> Vec<Outage> {
    let mut cuts: Vec<usize> =
        (0..moments).map(|_| from + usize::try_from(dice.below((steps.len() - from) as u64 + 1)).unwrap()).collect();
    cuts.sort_unstable();
    let (mut began, mut outages) = (BTreeSet::new(), Vec::new());
    for (number, step) in steps.iter().enumerate() {
        while cuts.first() == Some(&number) {
            cuts.remove(0);
            outages.push(Outage { files: disk.lose_power(dice), began: began.clone() });
        }
        disk.apply(step);
        if let Step::Began(it) = step {
            began.insert(it.clone());
        }
    }
    outages.extend(cuts.iter().map(|_| Outage { files: disk.lose_power(dice), began: began.clone() }));
    outages
}

impl Outage {
    fn put_into(&self, world: &World) {
        for name in FILES.into_iter().chain(["milepost.db-shm"]) {
            let path = world.path().join(name);
            match self.files.get(name) {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => drop(fs::remove_file(path)),
            }
        }
    }

    /// The file opens, is whole, and has everything that was acknowledged. Answers what it has.
    fn is_survived_by(&self, world: &World) -> Option<History> {
        self.put_into(world);
        let history = History::of(world, "p");
        match &history {
            None => assert!(self.began.is_empty(), "the plan began, and is not there"),
            Some(history) => history.check(TASKS),
        }
        for (task, stage, attempt) in &self.began {
            let starts = history.as_ref().unwrap().tasks[task].starts(stage);
            assert!(starts.iter().any(|(of, _)| of == attempt), "attempt {attempt} of {stage} of {task} is lost");
        }
        SqliteStore::open(world.path().join("milepost.db")).unwrap().close();
        let file = rusqlite::Connection::open(world.path().join("milepost.db")).unwrap();
        let verdict: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
        history
    }
}

fn done(history: Option<&History>) -> BTreeSet<(String, String)> {
    let of = |id: &String, stage: &str| (id.clone(), stage.to_owned());
    let tasks = history.iter().flat_map(|history| &history.tasks);
    tasks.flat_map(|(id, task)| task.done().map(move |stage| of(id, stage))).collect()
}

/// How many outages; MILEPOST_TEST_OUTAGES asks for more or fewer.
fn size() -> usize {
    std::env::var("MILEPOST_TEST_OUTAGES").ok().and_then(|count| count.parse().ok()).unwrap_or(400)
}

#[test]
fn a_loss_of_power_at_any_moment_loses_nothing_that_was_acknowledged() {
    const AT_ONCE: usize = 40;
    let mut dice = Dice::of("a_loss_of_power_at_any_moment_loses_nothing_that_was_acknowledged");
    let (mut played, mut runs) = (0, 0);
    while played < size() {
        // What each run finds is what a loss of power in the one before it has left.
        let (world, judge) = (World::new(), World::new());
        let (mut files, mut began, mut done_before) = (Files::new(), BTreeSet::new(), BTreeSet::new());
        world.file("p.yaml", &plan([1, TASKS as u64][runs % 2], 3, 1));
        for _ in 0..3 {
            Outage { files: files.clone(), began: BTreeSet::new() }.put_into(&world);
            world.file("trace", "");
            let steps = traced_run(&world);
            runs += 1;
            for step in &steps {
                let Step::Began((task, stage, _)) = step else { continue };
                let again = done_before.contains(&(task.clone(), stage.clone()));
                assert!(!again, "{stage} of {task} ran again after it was completed");
            }
            let mut outages = outages(&steps, Disk::with(&files), AT_ONCE, 0, &mut dice);
            let next = usize::try_from(dice.below(outages.len() as u64)).unwrap();
            for (number, outage) in outages.iter_mut().enumerate() {
                outage.began.extend(began.iter().cloned());
                let history = outage.is_survived_by(&judge);
                if number == next {
                    done_before = done(history.as_ref());
                }
            }
            played += outages.len();
            Outage { files, began } = outages.swap_remove(next);
        }
        Outage { files, began }.put_into(&world);
        world.good(&["run", "p.yaml"]);
        assert_eq!(History::of(&world, "p").unwrap().plan.status, PlanStatus::Completed);
    }
    eprintln!("{played} losses of power in {runs} runs");
}

/// Of a run's moments only a handful are those in which there is no file yet, or half of one.
#[test]
fn a_loss_of_power_while_the_file_is_made_leaves_one_that_opens() {
    let mut dice = Dice::of("a_loss_of_power_while_the_file_is_made_leaves_one_that_opens");
    let (world, judge) = (World::new(), World::new());
    world.file("p.yaml", &plan(1, 1, 1));
    let steps = traced_run(&world);
    let is_log = |step: &Step| matches!(step, Step::Changed(name, _) if name == "milepost.db-wal");
    let made = steps.iter().position(is_log).expect("a log was begun");
    for outage in outages(&steps[..made], Disk::with(&Files::new()), 100, 0, &mut dice) {
        outage.is_survived_by(&judge);
    }
}

/// Long enough that the log is moved into the database, and begun anew, while tasks run.
#[test]
fn a_loss_of_power_while_the_log_is_moved_into_the_database_loses_nothing() {
    let mut dice = Dice::of("a_loss_of_power_while_the_log_is_moved_into_the_database_loses_nothing");
    let (world, judge) = (World::new(), World::new());
    world.file("p.yaml", &plan(TASKS as u64, 5, 1000));
    let steps = traced_run(&world);
    let is_moved = |step: &Step| matches!(step, Step::Changed(name, Change::Write { at, .. }) if name == "milepost.db" && *at > 1 << 20);
    let moved = steps.iter().position(is_moved).expect("the log was moved");
    let work_after = steps[moved..].iter().filter(|step| matches!(step, Step::Began(_))).count();
    assert!(work_after > 0, "the log was moved only at the end; give it more to write");
    let outages = outages(&steps, Disk::with(&Files::new()), 8, moved, &mut dice);
    for outage in &outages {
        outage.is_survived_by(&judge);
    }
    eprintln!("{} losses of power, {work_after} stages after the log was moved", outages.len());
}

/// The check of the check.
#[test]
fn on_a_disk_that_only_says_it_has_synced_acknowledged_work_is_seen_to_be_lost() {
    let mut dice = Dice::of("on_a_disk_that_only_says_it_has_synced_acknowledged_work_is_seen_to_be_lost");
    let (world, judge) = (World::new(), World::new());
    world.file("p.yaml", &plan(1, 3, 1));
    let steps = traced_run(&world);
    let disk = Disk { ignores_syncs: true, ..Disk::with(&Files::new()) };
    let outages = outages(&steps, disk, 20, 0, &mut dice);
    let lost =
        outages.iter().filter(|outage| catch_unwind(AssertUnwindSafe(|| outage.is_survived_by(&judge))).is_err());
    let (lost, played) = (lost.count(), outages.len());
    eprintln!("{lost} of {played} losses of power lost something");
    assert!(lost > played / 2, "{lost} of {played} were noticed");
}
