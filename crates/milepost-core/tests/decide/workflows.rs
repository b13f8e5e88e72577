//! A task whose stages are asked for one by one: what its function may count on.

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::{IdempotencyKey, StageName, TaskId};
use milepost_core::plan::Settings;
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::task::{
    Answer, By, Cause, Checkpoint, Command, Event, InvalidImage, Record, Rejection, StageResult, StageStatus, Step,
    StepKind, Task, TaskStatus, decide, outputs_of,
};
use milepost_core::time::Millis;
use serde_json::{Value, json};

use crate::support::{DAY, Run, START, by, fatal, replay, retry, workflow_spec};

fn name(name: &str) -> StageName {
    StageName::parse(name).unwrap()
}

fn step(place: u32, kind: StepKind) -> Step {
    let retry = RetryPolicy {
        max_attempts: 3,
        strategy: Strategy::Fixed,
        base: Millis::from_secs(1),
        jitter: false,
        ..RetryPolicy::default()
    };
    Step { kind, scope: "".into(), place, digest: None, retry, timeout: None, rollback: true }
}

fn signal(deadline: Option<Millis>) -> StepKind {
    StepKind::Signal { name: name("go"), deadline: deadline.map(|length| START + length) }
}

impl Run {
    fn asks(&mut self, stages: &[(&str, StepKind)]) -> Vec<String> {
        let place = self.task.stages().len() as u32;
        let steps = stages.iter().zip(1..).map(|((stage, kind), n)| (name(stage), step(place + n, kind.clone())));
        self.act(Command::Begin(steps.collect()))
    }

    fn gives(&mut self, stage: &str, value: Value) -> Vec<String> {
        self.ended(stage, StageResult::Success(outputs_of(value)))
    }

    fn sends(&mut self, payload: Value) -> Vec<String> {
        self.act(Command::Signal { name: name("go"), payload, by: by(), id: None })
    }

    fn answer(&self, stage: &str) -> Option<Answer> {
        self.task.answer(self.index(stage))
    }
}

/// A workflow that runs, with these stages under way.
fn run_of(stages: &[&str]) -> Run {
    let mut run = Run::workflow();
    run.claim();
    for stage in stages {
        run.asks(&[(stage, StepKind::Stage)]);
    }
    run
}

#[test]
fn a_workflow_neither_ends_nor_starts_anything_by_itself() {
    let mut run = Run::workflow();
    assert_eq!(run.claim(), ["TASK_STARTED on n1"]);
    assert_eq!(run.asks(&[("a", StepKind::Stage)]), ["STAGE_STARTED a 1"]);
    assert_eq!(run.gives("a", json!(7)), ["STAGE_COMPLETED a 1"]);
    assert_eq!(run.answer("a"), Some(Answer::Value(json!(7))));
    assert_eq!(run.act(Command::Return(Ok(json!("done")))), ["TASK_COMPLETED"]);
    assert_eq!(run.task.flow().unwrap().result().map(|value| &**value), Some(&json!("done")));
}

#[test]
fn a_failed_stage_is_the_functions_to_handle() {
    let mut run = run_of(&["a"]);
    assert_eq!(run.fails_for_good("a"), ["STAGE_FAILED a 1"]);
    assert_eq!(run.task.status(), TaskStatus::Running);
    let Some(Answer::Failure(failure)) = run.answer("a") else { panic!("a failure") };
    assert_eq!((failure.reason.as_str(), failure.attempts), ("no such order", None));
    assert_eq!(run.asks(&[("b", StepKind::Stage)]), ["STAGE_STARTED b 1"]);
}

#[test]
fn a_stage_out_of_attempts_says_how_many_there_were() {
    let mut run = run_of(&["a"]);
    for attempt in 2..=3 {
        assert_eq!(run.fails("a"), [format!("RETRY_SCHEDULED a {attempt} after 1s")]);
        assert_eq!(run.answer("a"), None);
        assert_eq!(run.after(Millis::from_secs(1)).act(Command::Wake), [format!("STAGE_STARTED a {attempt}")]);
    }
    assert_eq!(run.fails("a"), ["STAGE_FAILED a 3"]);
    let Some(Answer::Failure(failure)) = run.answer("a") else { panic!("a failure") };
    let exceeded = failure.max_retries_exceeded().unwrap();
    assert_eq!((exceeded.attempts, exceeded.last_reason.as_str()), (3, "connection refused"));
}

#[test]
fn a_function_that_fails_undoes_its_completed_stages_the_last_first() {
    let mut run = run_of(&["a", "b"]);
    run.gives("b", Value::Null);
    run.gives("a", Value::Null);
    assert_eq!(
        run.act(Command::Return(Err(fatal()))),
        ["TASK_FAILED", "ROLLBACK_STARTED", "STAGE_STARTED a 1 to undo"]
    );
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "STAGE_STARTED b 1 to undo"]);
    assert_eq!(run.succeeds("b"), ["STAGE_ROLLED_BACK b", "TASK_ROLLED_BACK"]);
}

#[test]
fn a_divergence_fails_the_task_and_undoes_nothing_and_a_retry_has_all_that_was_recorded() {
    let mut run = run_of(&["a", "b"]);
    run.gives("a", json!(1));
    let reason = "other-stage: the log has stage `b` second, the code asked for `c`".to_owned();
    assert_eq!(run.act(Command::Diverged { stage: Some(name("b")), reason }), ["TASK_FAILED at b"]);
    assert_eq!(run.task.failure().unwrap().cause.error_type, ErrorType::Determinism);
    assert_eq!(run.act(retry(true)), ["TASK_RETRIED from its checkpoint"]);
    assert_eq!(run.claim(), ["TASK_STARTED on n1"]);
    assert_eq!((run.status_of("a"), run.status_of("b")), (StageStatus::Completed, StageStatus::Pending));
    assert_eq!(run.task.flow().unwrap().answered(), [0]);
}

#[test]
fn a_crash_repeats_what_was_running_and_not_what_was_waiting() {
    let mut run = run_of(&["a"]);
    run.asks(&[("go", signal(None)), ("nap", StepKind::Sleep { until: START + DAY })]);
    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "STAGE_STARTED a 1"]);
}

#[test]
fn a_workflow_that_only_waits_is_not_what_its_nodes_die_of() {
    let mut run = run_of(&[]);
    run.asks(&[("go", signal(None))]);
    for _ in 0..20 {
        assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2"]);
    }
    run.asks(&[("a", StepKind::Stage)]);
    for _ in 0..9 {
        run.crash();
    }
    assert_eq!(
        run.crash(),
        [
            "TASK_INTERRUPTED and taken by n2",
            "TASK_FAILED at a",
            "DEAD_LETTERED",
            "ROLLBACK_STARTED",
            "STAGE_STARTED a 1 to undo"
        ]
    );
}

#[test]
fn a_sleep_ends_when_its_time_has_come() {
    let mut run = run_of(&[]);
    run.asks(&[("nap", StepKind::Sleep { until: START + Millis::from_secs(60) })]);
    assert_eq!(run.task.next_due(), Some(START + Millis::from_secs(60)));
    assert!(run.after(Millis::new(59_999)).act(Command::Wake).is_empty());
    assert_eq!(run.after(Millis::new(1)).act(Command::Wake), ["STAGE_COMPLETED nap 1"]);
    assert_eq!(
        run.asks(&[("over", StepKind::Sleep { until: START })]),
        ["STAGE_STARTED over 1", "STAGE_COMPLETED over 1"]
    );
}

#[test]
fn signals_are_kept_until_they_are_asked_for_and_go_to_whoever_asked_first() {
    let mut run = Run::workflow();
    assert_eq!(run.sends(json!(1)), ["SIGNAL_RECEIVED go"]);
    run.claim();
    assert_eq!(run.asks(&[("go", signal(None))]), ["STAGE_STARTED go 1", "STAGE_COMPLETED go 1"]);
    run.asks(&[("go.2", signal(None)), ("go.3", signal(None))]);
    assert_eq!(run.sends(json!(2)), ["SIGNAL_RECEIVED go", "STAGE_COMPLETED go.2 1"]);
    assert_eq!(run.sends(json!(3)), ["SIGNAL_RECEIVED go", "STAGE_COMPLETED go.3 1"]);
    let answers = ["go", "go.2", "go.3"].map(|stage| run.answer(stage).unwrap());
    assert_eq!(answers, [1, 2, 3].map(|n| Answer::Value(json!(n))));
}

#[test]
fn a_signal_past_its_deadline_is_a_timeout_and_one_in_time_is_not() {
    let mut run = run_of(&[]);
    run.asks(&[("go", signal(Some(DAY)))]);
    assert_eq!(run.after(DAY).act(Command::Wake), ["STAGE_FAILED go 1"]);
    let Some(Answer::Failure(failure)) = run.answer("go") else { panic!("a failure") };
    assert_eq!(failure.error_type, ErrorType::Timeout);
    assert_eq!(run.asks(&[("go.2", signal(Some(DAY.saturating_add(DAY))))]), ["STAGE_STARTED go.2 1"]);
    run.sends(json!(1));
    assert_eq!(run.answer("go.2"), Some(Answer::Value(json!(1))));
}

#[test]
fn a_signal_is_for_workflows_that_have_not_ended() {
    let mut run = run_of(&[]);
    run.act(Command::Return(Ok(Value::Null)));
    let send = || Command::Signal { name: name("go"), payload: Value::Null, by: by(), id: None };
    assert_eq!(run.refused(send()), "cannot signal task task: it is COMPLETED");
    assert!(Run::of(vec![crate::support::stage("a")]).refused(send()).contains("only a workflow"));
}

fn sent(who: &str, id: &str, payload: Value) -> Command {
    Command::Signal { name: name("go"), payload, by: By::new(who), id: IdempotencyKey::parse(id).ok() }
}

#[test]
fn a_signal_that_is_sent_again_under_its_id_changes_nothing() {
    let mut run = run_of(&[]);
    assert_eq!(run.act(sent("ann", "k", json!({ "a": 1, "b": [2] }))), ["SIGNAL_RECEIVED go"]);
    let before = run.task.clone();
    // The same however its members are ordered.
    assert!(run.act(sent("ann", "k", json!({ "b": [2], "a": 1 }))).is_empty());
    assert_eq!(run.task, before);
    // Also when it has been asked for, and when the task has begun anew or ended.
    run.asks(&[("s", signal(None))]);
    assert_eq!(run.answer("s"), Some(Answer::Value(json!({ "a": 1, "b": [2] }))));
    assert!(run.act(sent("ann", "k", json!({ "a": 1, "b": [2] }))).is_empty());
    run.act(Command::Continue(Value::Null));
    assert!(run.act(sent("ann", "k", json!({ "a": 1, "b": [2] }))).is_empty());
    run.act(Command::Return(Ok(Value::Null)));
    assert!(run.act(sent("ann", "k", json!({ "a": 1, "b": [2] }))).is_empty());
    assert_eq!(run.refused(sent("ann", "l", json!(1))), "cannot signal task task: it is COMPLETED");
}

#[test]
fn a_signal_that_its_sender_sends_again_under_another_name_is_received_once() {
    let mut run = run_of(&[]);
    assert_eq!(run.act(sent("app@pod-1", "k", json!(1))), ["SIGNAL_RECEIVED go"]);
    assert!(run.act(sent("app@pod-2", "k", json!(1))).is_empty());
    assert_eq!(run.act(sent("app@pod-2", "l", json!(1))), ["SIGNAL_RECEIVED go"]);
}

#[test]
fn another_signal_under_a_used_id_is_refused_whoever_sends_it() {
    let mut run = run_of(&[]);
    run.act(sent("ann", "k", json!([1, 2])));
    let refused = "task task was sent another signal under the key `k`; a new signal needs a key of its own";
    for payload in [json!([2, 1]), json!([1]), json!(null), json!("[1,2]"), json!([[1, 2]])] {
        for who in ["ann", "bob"] {
            assert_eq!(run.refused(sent(who, "k", payload.clone())), refused);
        }
    }
    let id = IdempotencyKey::parse("k").ok();
    let other = Command::Signal { name: name("stop"), payload: json!([1, 2]), by: By::new("ann"), id };
    assert_eq!(run.refused(other), refused);
    assert_eq!(run.act(sent("ann", "l", json!([1, 2]))), ["SIGNAL_RECEIVED go"]);
}

#[test]
fn a_workflow_knows_its_last_thousand_signals_also_from_its_log_and_its_image() {
    let mut run = run_of(&[]);
    for number in 0..1001 {
        run.act(sent("ann", &format!("k{number}"), json!(number)));
    }
    let image = Task::from_image(run.task.spec().clone(), &run.task.image()).unwrap();
    assert_eq!(image, run.task);
    for task in [image, replay(run.task.spec(), &run.log)] {
        for number in [1, 500, 1000] {
            assert!(decide(&task, sent("ann", &format!("k{number}"), json!(number)), START).unwrap().events.is_empty());
            let other = decide(&task, sent("ann", &format!("k{number}"), json!("other")), START);
            assert!(matches!(other, Err(Rejection::KeyReused { .. })), "{other:?}");
        }
        let forgotten = decide(&task, sent("ann", "k0", json!(0)), START).unwrap();
        assert_eq!(forgotten.events.len(), 1);
    }
}

/// Two senders could use one id once.
#[test]
fn each_signal_that_an_older_log_has_under_one_id_is_known() {
    let run = |payload| {
        let mut run = run_of(&[]);
        run.act(sent("ann", "k", payload));
        run
    };
    let (mut one, two) = (run(json!(1)), run(json!(2)));
    one.log.extend(two.log.last().cloned());
    let task = replay(one.task.spec(), &one.log);
    for known in [1, 2] {
        assert!(decide(&task, sent("ann", "k", json!(known)), START).unwrap().events.is_empty());
    }
    assert!(matches!(decide(&task, sent("ann", "k", json!(3)), START), Err(Rejection::KeyReused { .. })));
}

#[test]
fn a_signal_of_an_older_log_has_no_id_and_is_read_as_before() {
    let text = r#"{"SIGNAL_RECEIVED":{"name":"go","payload":1,"by":{"who":"ann"}}}"#;
    let event: Event = serde_json::from_str(text).unwrap();
    assert!(matches!(&event, Event::SignalReceived { id: None, .. }), "{event:?}");
    assert_eq!(serde_json::to_string(&event).unwrap(), text);
    let mut run = run_of(&[]);
    assert_eq!([run.sends(json!(1)), run.sends(json!(1))], [["SIGNAL_RECEIVED go"], ["SIGNAL_RECEIVED go"]]);
}

#[test]
fn a_pause_waits_for_what_runs_and_not_for_what_waits() {
    let mut run = run_of(&["a"]);
    run.asks(&[("go", signal(None))]);
    assert_eq!(run.act(Command::Pause(by())), ["PAUSE_REQUESTED"]);
    assert!(run.asks(&[("b", StepKind::Stage)]).is_empty());
    assert_eq!(run.gives("a", Value::Null), ["STAGE_COMPLETED a 1", "TASK_PAUSED"]);
    assert_eq!(run.sends(json!(1)), ["SIGNAL_RECEIVED go"]);
    run.act(Command::Resume(by()));
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_COMPLETED go 1"]);
}

#[test]
fn the_end_of_a_child_is_news_once() {
    let mut run = run_of(&[]);
    let child = TaskId::parse("task.part").unwrap();
    run.asks(&[("part", StepKind::Child { task: child.clone() })]);
    let ended = |result| Command::ChildEnded { child: child.clone(), result };
    assert_eq!(run.act(ended(Ok(json!(5)))), ["STAGE_COMPLETED part 1"]);
    let cause = Cause { error_type: ErrorType::Unknown, reason: "late".to_owned() };
    assert!(run.refused(ended(Err(cause))).contains("no longer waits"));
}

#[test]
fn continuing_as_new_forgets_the_history_and_keeps_what_was_sent() {
    let mut run = run_of(&["a"]);
    run.gives("a", json!(1));
    run.act(Command::Remember(vec![("now".to_owned(), json!(1))]));
    run.sends(json!("early"));
    assert_eq!(run.act(Command::Continue(json!(2))), ["TASK_CONTINUED"]);
    let flow = run.task.flow().unwrap();
    assert_eq!((run.task.stages().len(), flow.generation(), &**flow.input()), (0, 2, &json!(2)));
    assert_eq!(flow.value("now"), None);
    assert_eq!(run.asks(&[("go", signal(None))]), ["STAGE_STARTED go 1", "STAGE_COMPLETED go 1"]);
}

#[test]
fn a_retry_keeps_a_failure_that_the_function_had_gone_on_from() {
    let mut run = run_of(&["a"]);
    run.fails_for_good("a");
    run.asks(&[("b", StepKind::Stage), ("c", StepKind::Stage)]);
    run.gives("c", Value::Null);
    run.fails_for_good("b");
    let diverged = Command::Diverged { stage: None, reason: "for the test".to_owned() };
    run.act(diverged);
    run.act(retry(true));
    let statuses = ["a", "b", "c"].map(|stage| run.status_of(stage));
    assert_eq!(statuses, [StageStatus::Failed, StageStatus::Pending, StageStatus::Completed]);
    assert_eq!(run.task.flow().unwrap().answered(), [0, 2]);
    run.claim();
    assert_eq!(run.asks(&[("b", StepKind::Stage)]), ["STAGE_STARTED b 1"]);
    assert_eq!(run.task.stages().len(), 3);
}

#[test]
fn a_workflows_log_folds_to_the_same_task_and_reads_back_as_it_was_written() {
    let mut run = run_of(&["a"]);
    run.fails("a");
    run.after(Millis::from_secs(1)).act(Command::Wake);
    run.gives("a", json!({ "x": [1, 2] }));
    run.act(Command::Remember(vec![("uuid".to_owned(), json!("u"))]));
    run.asks(&[("go", signal(Some(DAY))), ("nap", StepKind::Sleep { until: START + DAY })]);
    run.sends(json!("yes"));
    run.act(Command::Return(Err(Failure::fatal(ErrorType::Business, "no"))));
    let text = serde_json::to_string(&run.log).unwrap();
    let read: Vec<Record> = serde_json::from_str(&text).unwrap();
    assert_eq!(read, run.log);
    assert_eq!(replay(&workflow_spec(), &read), run.task);
}

#[test]
fn events_of_before_workflows_are_read_as_they_were() {
    let old = r#"[[1764000000000,{"STAGE_STARTED":{"stage":"a","attempt":1}}],[1764000000000,{"TASK_COMPLETED":{}}]]"#;
    let read: Vec<Record> = serde_json::from_str(old).unwrap();
    assert!(matches!(read[0].event(), Event::StageStarted { step: None, rollback: false, .. }));
    assert_eq!(serde_json::to_string(&read).unwrap(), old);
}

#[test]
fn a_refused_attempt_comes_again_under_its_own_number_and_uses_none_up() {
    let refusal = |wait| Failure::retryable(ErrorType::Unavailable, "the breaker of `k` is open").after(wait);
    let mut run = run_of(&["first", "a"]);
    run.gives("first", Value::Null);
    // More often than the policy has attempts.
    for _ in 0..5 {
        let wait = Millis::from_secs(20);
        assert_eq!(run.ended("a", StageResult::Refused(refusal(wait))), ["RETRY_SCHEDULED a 1 after 20s"]);
        let checkpoint = Checkpoint::of(&run.task).expect("a stage is done");
        assert_eq!(checkpoint.failure_history.last().map(|failure| failure.attempt), Some(1));
        assert_eq!(run.after(wait).act(Command::Wake), ["STAGE_STARTED a 1"]);
    }
    // Never sooner than the policy would have it.
    assert_eq!(run.ended("a", StageResult::Refused(refusal(Millis::ZERO))), ["RETRY_SCHEDULED a 1 after 1s"]);
}

#[test]
fn a_signal_while_it_is_paused_takes_nothing_of_its_time_limit() {
    let hour = Millis::from_secs(3600);
    let mut run = Run::workflow_with(Settings { task_timeout: Some(hour), ..Settings::default() });
    run.claim();
    run.asks(&[("answer", signal(None))]);
    run.act(Command::Pause(by()));
    run.after(DAY).sends(json!(1));
    run.after(DAY).act(Command::Resume(by()));
    run.claim();

    assert_eq!(run.task.deadline(), Some(START + DAY + DAY + hour));
}

#[test]
fn a_sleep_without_end_is_written_and_read_again() {
    let mut run = run_of(&[]);
    let until = run.now + Millis::new(u64::MAX);
    run.asks(&[("sleep", StepKind::Sleep { until })]);

    let written = serde_json::to_string(&run.log).unwrap();
    let read: Vec<Record> = serde_json::from_str(&written).unwrap();
    assert_eq!(replay(run.task.spec(), &read), run.task);
    // As it was written before such times were bounded.
    let older = written.replace(&until.to_string(), "9223372036854775807 ms");
    let read: Vec<Record> = serde_json::from_str(&older).unwrap();
    assert!(replay(run.task.spec(), &read).next_due().unwrap() > until);
}

#[test]
fn an_image_of_another_form_or_another_kind_of_task_is_refused() {
    let run = run_of(&["a", "b"]);
    let (spec, image) = (run.task.spec().clone(), run.task.image());
    assert_eq!(Task::from_image(spec.clone(), &image).unwrap(), run.task);
    let other_form = format!("another\n{}", image.split_once('\n').unwrap().1);
    assert!(
        matches!(Task::from_image(spec.clone(), &other_form), Err(InvalidImage::Form { found }) if found == "another")
    );
    assert!(matches!(Task::from_image(spec.clone(), ""), Err(InvalidImage::Form { .. })));
    assert!(matches!(Task::from_image(spec.clone(), &image[..image.len() - 1]), Err(InvalidImage::Text(_))));
    let one_name_less = image.replacen("\"names\":[\"a\",\"b\"]", "\"names\":[\"a\"]", 1);
    assert!(matches!(Task::from_image(spec, &one_name_less), Err(InvalidImage::Parts)));
    let of_stages = Run::of(Vec::new()).task.spec().clone();
    assert!(matches!(Task::from_image(of_stages, &image), Err(InvalidImage::Parts)));
}
