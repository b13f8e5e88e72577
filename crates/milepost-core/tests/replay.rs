//! What holds for every plan and every order of events: random plans, random commands, random outcomes, a random clock.

#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;

use std::collections::{HashMap, HashSet};

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::StageName;
use milepost_core::plan::{OnFailure, OnInvalidCheckpoint, Settings, StageDefinition, Trigger};
use milepost_core::retry::Strategy as Backoff;
use milepost_core::task::{
    Checkpoint, Claim, Command, Decision, Event, MAX_TAKEOVERS, Record, Rejection, StageEnded, StageResult,
    StageStatus, Task, TaskContext, TaskStatus, TaskView, decide, replay as decided_again,
};
use milepost_core::time::{Millis, Timestamp};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use support::{DAY, START, StageWords, by, message, replay, spec, stage};

// --- random walks ---

/// What is tried next; which stage it concerns is settled when its turn comes.
#[derive(Debug, Clone)]
enum Step {
    Claim {
        crashed: bool,
        automatic: bool,
    },
    /// Node after node goes away.
    CrashLoop,
    /// One of the attempts that run ends.
    End {
        which: usize,
        result: StageResult,
        stopping: bool,
    },
    /// A result that nobody may be waiting for.
    Stray {
        stage: usize,
        attempt: u32,
        result: StageResult,
    },
    Wake,
    WakeWhenDue,
    TimeOut,
    Interrupt,
    Pause,
    Resume,
    Cancel,
    Retry {
        from_checkpoint: bool,
    },
    Rollback,
    Receive {
        within: Option<Millis>,
    },
    Redrive,
}

/// How the clock of whoever decides next differs from that of whoever decided last.
#[derive(Debug, Clone, Copy)]
enum Tick {
    On(Millis),
    Back(Millis),
}

/// One decision of a walk.
struct Moment {
    before: Task,
    command: Command,
    now: Timestamp,
    outcome: Result<Decision, Rejection>,
}

#[derive(Debug, Clone)]
struct Walk {
    settings: Settings,
    stages: Vec<StageDefinition>,
    /// What is tried, and by how much the clock moves before it: another node's may be behind.
    steps: Vec<(Tick, Step)>,
}

impl Walk {
    fn moments(&self) -> Vec<Moment> {
        let mut task = Task::created(spec(self.settings.clone(), self.stages.clone()));
        let mut now = START;
        let mut moments = Vec::new();
        for (tick, step) in &self.steps {
            now = match tick {
                Tick::On(by) => now + *by,
                Tick::Back(by) => now - *by,
            };
            if let (Step::WakeWhenDue, Some(due)) = (step, task.next_due()) {
                now = now.max(due);
            }
            for _ in 0..if matches!(step, Step::CrashLoop) { MAX_TAKEOVERS } else { 1 } {
                let Some(command) = command(&task, step, now) else { continue };
                let outcome = decide(&task, command.clone(), now);
                let before = task.clone();
                if let Ok(decision) = &outcome {
                    task = decision.task.clone();
                }
                moments.push(Moment { before, command, now, outcome });
            }
        }
        moments
    }

    /// The decisions that changed something or might have.
    fn decisions(&self) -> Vec<(Moment, Decision)> {
        let accepted = |moment: Moment| moment.outcome.clone().ok().map(|decision| (moment, decision));
        self.moments().into_iter().filter_map(accepted).collect()
    }

    /// Every event, with the task as it was just before.
    fn events(&self) -> Vec<(Task, Record)> {
        let mut events = Vec::new();
        for (moment, decision) in self.decisions() {
            let mut task = moment.before;
            for record in decision.events {
                events.push((task.clone(), record.clone()));
                task = task.apply(&record).unwrap();
            }
        }
        events
    }
}

fn command(task: &Task, step: &Step, now: Timestamp) -> Option<Command> {
    Some(match step.clone() {
        Step::CrashLoop => Command::Claim(Claim { node: "n2".into(), lost_by: Some("n2".into()), automatic: true }),
        Step::Claim { crashed, automatic } => {
            let lost_by = crashed.then(|| "n1".into());
            Command::Claim(Claim { node: if crashed { "n2" } else { "n1" }.into(), lost_by, automatic })
        }
        Step::End { which, result, stopping } => {
            let (stage, attempt) = *running(task).iter().cycle().nth(which % 6)?;
            Command::StageEnded(StageEnded { stage, attempt, result, stopping })
        }
        Step::Stray { stage, attempt, result } => {
            Command::StageEnded(StageEnded { stage, attempt, result, stopping: false })
        }
        Step::Wake | Step::WakeWhenDue => Command::Wake,
        Step::TimeOut => Command::TimeOut,
        Step::Interrupt => Command::Interrupt { reason: "stopped".to_owned() },
        Step::Pause => Command::Pause(by()),
        Step::Resume => Command::Resume(by()),
        Step::Cancel => Command::Cancel(by()),
        Step::Retry { from_checkpoint } => Command::Retry { by: by(), from_checkpoint },
        Step::Rollback => Command::Rollback(by()),
        Step::Receive { within } => Command::Receive(message("m1", within.map(|within| now + within))),
        Step::Redrive => Command::Redrive { by: by(), message: message("m2", None) },
    })
}

/// The attempts that a node would be executing.
fn running(task: &Task) -> Vec<(usize, u32)> {
    match task.undo() {
        Some(undo) if undo.running => undo.queue.first().map(|stage| (*stage, undo.attempt)).into_iter().collect(),
        Some(_) => Vec::new(),
        None => {
            let stages = task.stages().enumerate();
            stages.filter(|(_, (_, s))| s.status == StageStatus::Running).map(|(i, (_, s))| (i, s.attempt)).collect()
        }
    }
}

fn walks() -> impl Strategy<Value = Walk> {
    (settings(), stages(), prop::collection::vec((ticks(), steps()), 1..60))
        .prop_map(|(settings, stages, steps)| Walk { settings, stages, steps })
}

fn settings() -> impl Strategy<Value = Settings> {
    let drawn = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.3), prop::option::of(1u64..20_000));
    drawn.prop_map(|(undo, block, by_message, limit)| Settings {
        trigger: if by_message { Trigger::Message } else { Trigger::Start },
        on_failure: if undo { OnFailure::Rollback } else { OnFailure::Stop },
        on_invalid_checkpoint: if block { OnInvalidCheckpoint::Block } else { OnInvalidCheckpoint::Restart },
        task_timeout: limit.map(Millis::new),
        ..Settings::default()
    })
}

/// One to six stages in any order; each needs some of those that come before it in another order, so there is no cycle.
fn stages() -> impl Strategy<Value = Vec<StageDefinition>> {
    let one = (any::<u8>(), any::<u32>(), 1u32..4, 0u64..3000, 0usize..3, any::<bool>(), any::<bool>());
    prop::collection::vec(one, 1..=6).prop_map(|drawn| {
        let rank = |index: usize| (drawn[index].1, index);
        drawn
            .iter()
            .enumerate()
            .map(|(index, &(mask, _, attempts, base, backoff, jitter, undoable))| {
                let earlier = (0..drawn.len()).filter(|other| rank(*other) < rank(index));
                let needs: Vec<usize> = earlier.filter(|other| mask & (1 << other) != 0).collect();
                let mut stage = stage(&format!("s{index}")).needs(&needs).attempts(attempts);
                stage.retry.base = Millis::new(base);
                stage.retry.strategy = [Backoff::Fixed, Backoff::Linear, Backoff::Exponential][backoff];
                stage.retry.jitter = jitter;
                if undoable { stage.undoable() } else { stage }
            })
            .collect()
    })
}

fn ticks() -> impl Strategy<Value = Tick> {
    let on = prop_oneof![8 => 0u64..2000, 1 => Just(8 * DAY.get())].prop_map(|by| Tick::On(Millis::new(by)));
    prop_oneof![9 => on, 1 => (0u64..5000).prop_map(|by| Tick::Back(Millis::new(by)))]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), any::<bool>()).prop_map(|(crashed, automatic)| Step::Claim { crashed, automatic }),
        1 => Just(Step::CrashLoop),
        16 => (0usize..6, results(), prop::bool::weighted(0.1))
            .prop_map(|(which, result, stopping)| Step::End { which, result, stopping }),
        1 => (0usize..8, 0u32..5, results()).prop_map(|(stage, attempt, result)| Step::Stray { stage, attempt, result }),
        2 => Just(Step::Wake),
        5 => Just(Step::WakeWhenDue),
        1 => Just(Step::TimeOut),
        1 => Just(Step::Interrupt),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => prop::bool::weighted(0.2).prop_map(|cancel| if cancel { Step::Cancel } else { Step::Wake }),
        2 => any::<bool>().prop_map(|from_checkpoint| Step::Retry { from_checkpoint }),
        1 => Just(Step::Rollback),
        3 => prop::option::of(0u64..3000).prop_map(|within| Step::Receive { within: within.map(Millis::new) }),
        1 => Just(Step::Redrive),
    ]
}

fn results() -> impl Strategy<Value = StageResult> {
    prop_oneof![
        6 => outputs().prop_map(StageResult::Success),
        1 => ".{0,8}".prop_map(StageResult::Skip),
        4 => (".{0,8}", prop::bool::weighted(0.8), prop::option::of(0u64..5000)).prop_map(|(reason, again, after)| {
            let failure = if again { Failure::retryable } else { Failure::fatal }(ErrorType::Unknown, reason);
            StageResult::Failure(Failure { retry_after: after.map(Millis::new), ..failure })
        }),
    ]
}

fn outputs() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop_oneof![
        any::<i64>().prop_map(|n| json!(n)),
        any::<u64>().prop_map(|n| json!(n)),
        any::<bool>().prop_map(|b| json!(b)),
        ".{0,8}".prop_map(|text| json!(text)),
        Just(json!({ "z": [1, null], "a": 0.5 })),
    ];
    prop::collection::vec((".{0,4}", value), 0..3).prop_map(|pairs| pairs.into_iter().collect())
}

/// Without this, a rule could hold because nothing ever put it to the test.
#[test]
fn the_walks_come_by_every_status_and_every_kind_of_event() {
    let mut runner = TestRunner::deterministic();
    let (mut statuses, mut kinds) = (HashSet::new(), HashSet::new());
    for _ in 0..1000 {
        let walk = walks().new_tree(&mut runner).unwrap().current();
        for (before, record) in walk.events() {
            statuses.insert(before.status());
            kinds.insert(record.event().kind());
        }
        statuses.extend(walk.decisions().last().map(|(_, decision)| decision.task.status()));
    }
    assert_eq!(statuses.len(), TaskStatus::ALL.len(), "{statuses:?}");
    // All but TASK_CREATED, which `Task::created` stands for.
    assert_eq!(kinds.len(), 21, "{kinds:?}");
}

// --- what holds on all of them ---

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_log_alone_gives_the_task_that_was_decided_on(walk in walks()) {
        let mut log = Vec::new();
        for (moment, decision) in walk.decisions() {
            log.extend(decision.events);
            prop_assert_eq!(&replay(moment.before.spec(), &log), &decision.task, "after {:?}", moment.command);
        }
    }

    #[test]
    fn an_image_of_a_task_is_the_task_and_the_log_goes_on_from_it(walk in walks()) {
        for (task, record) in walk.events() {
            let restored = Task::from_image(task.spec().clone(), &task.image()).unwrap();
            prop_assert_eq!(&restored, &task);
            prop_assert_eq!(restored.apply(&record).unwrap(), task.apply(&record).unwrap());
        }
    }

    #[test]
    fn every_log_that_was_decided_is_decided_the_same_again(walk in walks()) {
        let spec = spec(walk.settings.clone(), walk.stages.clone());
        let log = [Record::new(START, Event::TaskCreated {})];
        let log: Vec<Record> = log.into_iter().chain(walk.events().into_iter().map(|(_, record)| record)).collect();
        prop_assert_eq!(decided_again(spec, &log), Ok(log.len() as u64));
    }

    #[test]
    fn a_log_that_was_written_and_read_again_is_the_same_bit_for_bit(walk in walks()) {
        for (_, record) in walk.events() {
            let written = serde_json::to_string(&record).unwrap();
            let read: Record = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(&read, &record);
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), written);
        }
    }

    #[test]
    fn the_same_task_command_and_instant_give_the_same_events(walk in walks()) {
        for moment in walk.moments() {
            prop_assert_eq!(decide(&moment.before, moment.command, moment.now), moment.outcome);
        }
    }

    #[test]
    fn the_version_is_the_number_of_events_and_creation_is_the_first(walk in walks()) {
        let mut version = 1;
        for (moment, decision) in walk.decisions() {
            prop_assert_eq!(moment.before.version(), version);
            version += decision.events.len() as u64;
            prop_assert_eq!(decision.task.version(), version);
        }
    }

    #[test]
    fn times_in_a_log_never_go_back_whatever_the_clock_does(walk in walks()) {
        for (before, record) in walk.events() {
            prop_assert!(record.at() >= before.updated_at(), "{record:?} after {}", before.updated_at());
        }
    }

    #[test]
    fn a_done_stage_starts_again_only_from_the_start_after_a_discarded_checkpoint_or_undone(walk in walks()) {
        let mut done = HashSet::new();
        for (_, record) in walk.events() {
            match record.event() {
                Event::StageCompleted { stage, .. } | Event::StageSkipped { stage, .. } => {
                    prop_assert!(done.insert(stage.clone()), "{stage} ended twice");
                }
                Event::StageStarted { stage, rollback: false, .. } => prop_assert!(!done.contains(stage), "{stage} runs again"),
                Event::StageRolledBack { stage } => {
                    done.remove(stage);
                }
                Event::TaskRetried { from_checkpoint: false, .. } | Event::CheckpointDiscarded { .. } => done.clear(),
                _ => {}
            }
        }
    }

    #[test]
    fn what_is_done_anew_is_done_in_another_run_and_nothing_else_begins_one(walk in walks()) {
        let mut done = HashSet::new();
        for (before, record) in walk.events() {
            let run = before.run();
            let anew = match record.event() {
                Event::StageCompleted { stage, .. } | Event::StageSkipped { stage, .. } => {
                    done.insert((run, stage.clone()));
                    false
                }
                Event::StageStarted { stage, rollback: false, .. } => {
                    prop_assert!(!done.contains(&(run, stage.clone())), "{stage} runs again in run {run}");
                    false
                }
                Event::TaskRetried { from_checkpoint, .. } => !from_checkpoint,
                Event::CheckpointDiscarded { .. } => true,
                _ => false,
            };
            prop_assert_eq!(before.apply(&record).unwrap().run(), run + u32::from(anew));
        }
    }

    #[test]
    fn a_rollback_undoes_every_stage_that_was_begun_since_the_last_start_or_rollback(walk in walks()) {
        // How often each was begun, and whether the last attempt left nothing.
        let mut begun: HashMap<StageName, (u32, bool)> = HashMap::new();
        for (before, record) in walk.events() {
            match record.event() {
                Event::StageStarted { stage, rollback: false, .. } => {
                    let (times, clean) = begun.entry(stage.clone()).or_default();
                    (*times, *clean) = (*times + 1, false);
                }
                Event::StageSkipped { stage, .. } => {
                    if let Some((times, clean)) = begun.get_mut(stage) {
                        *clean = *times == 1;
                    }
                }
                Event::StageRolledBack { stage } => {
                    begun.remove(stage);
                }
                Event::TaskRetried { from_checkpoint: false, .. } | Event::CheckpointDiscarded { .. } => begun.clear(),
                Event::RollbackStarted { .. } => {
                    let after = before.apply(&record).unwrap();
                    let queue: HashSet<usize> = after.undo().unwrap().queue.iter().copied().collect();
                    for (stage, (_, clean)) in &begun {
                        let index = after.spec().stage_index(stage).unwrap();
                        let wanted = !clean && after.stage(index).0.rollback.is_some();
                        prop_assert_eq!(queue.contains(&index), wanted, "{}", stage);
                    }
                    prop_assert_eq!(queue.len(), after.undo().unwrap().queue.len(), "each once");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_stage_starts_only_when_all_it_needs_is_done_and_nothing_has_failed(walk in walks()) {
        for (before, record) in walk.events() {
            if let Event::StageStarted { stage, rollback: false, .. } = record.event() {
                let index = before.spec().stage_index(stage).unwrap();
                prop_assert!(before.stage(index).0.needs.iter().all(|need| before.stage(*need).1.status.is_done()));
                prop_assert!(before.stages().all(|(_, state)| state.status != StageStatus::Failed));
                prop_assert!(before.pause_requested().is_none());
            }
        }
    }

    #[test]
    fn no_stage_and_no_handler_is_tried_more_often_than_its_policy_allows(walk in walks()) {
        for (before, record) in walk.events() {
            if let Event::StageStarted { stage, attempt, .. } | Event::RetryScheduled { stage, attempt, .. } = record.event() {
                let index = before.spec().stage_index(stage).unwrap();
                prop_assert!((1..=before.stage(index).0.retry.max_attempts).contains(attempt), "attempt {attempt} of {stage}");
            }
        }
    }

    #[test]
    fn no_retry_starts_before_its_time(walk in walks()) {
        let mut due = HashMap::new();
        for (_, record) in walk.events() {
            match record.event() {
                Event::RetryScheduled { stage, attempt, delay, rollback, .. } => {
                    due.insert((stage.clone(), *attempt, *rollback), record.at() + *delay);
                }
                Event::StageStarted { stage, attempt, rollback, .. } => {
                    let due = due.get(&(stage.clone(), *attempt, *rollback));
                    prop_assert!(due.is_none_or(|due| *due <= record.at()), "attempt {attempt} of {stage}");
                }
                // Attempts are counted from one again.
                Event::TaskRetried { .. } | Event::CheckpointDiscarded { .. } | Event::RollbackStarted { .. } => due.clear(),
                _ => {}
            }
        }
    }

    #[test]
    fn nothing_happens_to_an_ended_task_but_a_retry_a_rollback_or_a_dead_letter(walk in walks()) {
        for (before, record) in walk.events() {
            if before.status().is_ended() {
                prop_assert!(
                    matches!(
                        record.event(),
                        Event::TaskRetried { .. }
                            | Event::CheckpointDiscarded { .. }
                            | Event::RollbackStarted { .. }
                            | Event::DeadLettered { .. }
                    ),
                    "{:?}",
                    record
                );
            }
        }
    }

    #[test]
    fn a_task_that_a_node_has_always_waits_for_a_stage_or_for_an_instant(walk in walks()) {
        for (moment, decision) in walk.decisions() {
            let task = decision.task;
            let held = match task.status() {
                TaskStatus::Running => !task.interrupted(),
                // Asked for by a person, it waits for a node to take it on.
                TaskStatus::RollingBack => !task.interrupted() && !matches!(moment.command, Command::Rollback(_)),
                _ => false,
            };
            if held && !matches!(moment.before.status(), TaskStatus::RollingBack) {
                prop_assert!(!running(&task).is_empty() || task.next_due().is_some(), "after {:?}", moment.command);
            }
        }
    }

    #[test]
    fn what_is_due_in_the_past_starts_at_the_next_wake(walk in walks()) {
        for (moment, decision) in walk.decisions() {
            if moment.command == Command::Wake && !decision.task.interrupted() {
                prop_assert!(decision.task.next_due().is_none_or(|due| due > moment.now), "a node would wake for ever");
            }
        }
    }

    #[test]
    fn a_task_whose_stages_succeed_in_the_end_reaches_its_end(walk in walks()) {
        let Some((moment, decision)) = walk.decisions().pop() else { return Ok(()) };
        let (mut task, mut now) = (decision.task, moment.now);
        // Two turns a stage and a handler, and a few to get it going.
        for _ in 0..4 * walk.stages.len() + 4 {
            if task.status().is_ended() {
                break;
            }
            let success = |(stage, attempt)| {
                Command::StageEnded(StageEnded { stage, attempt, result: StageResult::Success(Map::new()), stopping: false })
            };
            let command = match task.status() {
                TaskStatus::Paused => Command::Resume(by()),
                TaskStatus::Pending if task.awaits_message() => Command::Receive(message("m1", None)),
                TaskStatus::Running | TaskStatus::RollingBack if !task.interrupted() && !running(&task).is_empty() => {
                    success(running(&task)[0])
                }
                TaskStatus::Running | TaskStatus::RollingBack if !task.interrupted() && task.next_due().is_some() => {
                    now = now.max(task.next_due().unwrap());
                    Command::Wake
                }
                _ => Command::Claim(Claim { node: "n3".into(), lost_by: None, automatic: true }),
            };
            task = decide(&task, command, now).unwrap().task;
        }
        prop_assert!(task.status().is_ended(), "{:?}", task);
    }

    #[test]
    fn a_rejected_command_says_why(walk in walks()) {
        for moment in walk.moments() {
            if let Err(rejection) = moment.outcome {
                prop_assert!(rejection.to_string().contains("task task"), "{rejection}");
            }
        }
    }

    #[test]
    fn percent_is_between_0_and_100_and_100_only_when_completed(
        walk in walks(),
        progress in prop::option::of((0u64..5, 0u64..5)),
    ) {
        for (_, decision) in walk.decisions() {
            let context = TaskContext { progress, ..TaskContext::default() };
            let view = TaskView::new(&decision.task, context);
            prop_assert!((0.0..=100.0).contains(&view.percent), "{}", view.percent);
            prop_assert_eq!(view.percent == 100.0, view.status == TaskStatus::Completed);
        }
    }

    #[test]
    fn every_checkpoint_a_task_shows_fits_its_stages_and_reads_back_as_it_was_written(walk in walks()) {
        for (_, decision) in walk.decisions() {
            if let Some(checkpoint) = Checkpoint::of(&decision.task) {
                prop_assert_eq!(checkpoint.fits(&decision.task.spec().stages), Ok(()));
                let written = serde_json::to_string(&checkpoint).unwrap();
                prop_assert_eq!(serde_json::from_str::<Checkpoint>(&written).unwrap(), checkpoint);
            }
        }
    }
}
