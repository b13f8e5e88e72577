//! `run:`: what a command gets, what its end means, and that nothing of it stays behind.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::failure::ErrorType;
use milepost_core::id::Tenant;
use milepost_core::retry::RetryPolicy;
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use milepost_stages::RunKind;
use serde_json::{Value, json};

use crate::support::{Seen, call, eventually, failure, is_gone, kill, outputs, pids, script, within};

async fn run(text: &str) -> (Outcome, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let outcome = within(RunKind::new().run(script(text, &seen))).await;
    (outcome, seen)
}

#[tokio::test]
async fn exit_code_0_is_success() {
    let (outcome, seen) = run("echo out; echo err >&2").await;
    assert_eq!(outcome, Outcome::success());
    assert!(seen.text().contains("out\n") && seen.text().contains("err\n"));
}

#[tokio::test]
async fn exit_code_77_skips_the_stage() {
    assert_eq!(run("exit 77").await.0, Outcome::Skip { reason: "exit code 77".to_owned() });
    assert_eq!(run("echo up to date; exit 77").await.0, Outcome::Skip { reason: "up to date".to_owned() });
    assert_eq!(run("echo done before >&2; exit 77").await.0, Outcome::Skip { reason: "done before".to_owned() });
}

#[tokio::test]
async fn any_other_exit_code_is_a_failure_to_retry_that_quotes_the_last_line_of_stderr() {
    let failed = failure(run("echo first >&2; echo 'disk full' >&2; echo >&2; echo noise; exit 3").await.0);
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Business, true));
    assert_eq!(failed.reason, "exit code 3: disk full");
    for (text, code) in [("/no/such/program", 127), ("/etc/passwd", 126), ("exit 1", 1)] {
        let failed = failure(run(text).await.0);
        assert!(failed.retryable && failed.reason.starts_with(&format!("exit code {code}")), "{}", failed.reason);
    }
    let long = failure(run("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1").await.0);
    assert_eq!(long.reason, format!("exit code 1: {}", "x".repeat(300)));
}

#[tokio::test]
async fn a_fatal_exit_code_ends_the_stage_at_once() {
    let seen = Arc::new(Seen::default());
    let retry = RetryPolicy { fatal_exit_codes: vec![4, 5], ..RetryPolicy::default() };
    let failed = failure(within(RunKind::new().run(StageCall { retry, ..script("exit 5", &seen) })).await);
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Business, false));
}

#[tokio::test]
async fn a_command_killed_by_a_signal_is_retried() {
    let failed = failure(run("echo hm >&2; kill -KILL $$").await.0);
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Unknown, true));
    assert_eq!(failed.reason, "killed by signal 9 (SIGKILL): hm");
}

#[tokio::test]
async fn a_stage_without_a_command_is_refused() {
    let seen = Arc::new(Seen::default());
    let failed = failure(within(RunKind::new().run(call(&seen))).await);
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Validation, false));
}

#[tokio::test]
async fn a_command_learns_who_it_is_from_its_environment() {
    let seen = Arc::new(Seen::default());
    let call = StageCall {
        attempt: 3,
        input: Arc::new(json!({"version": "1.2.3"})),
        with: json!({"env": {"NUMBER": 1.5, "FLAG": true, "EMPTY": null, "TEXT": "a b"}}),
        ..script(
            r#"printf '%s|' "$MILEPOST_PLAN" "$MILEPOST_TASK" "$MILEPOST_TENANT" "$MILEPOST_STAGE" "$MILEPOST_ATTEMPT" \
               "$MILEPOST_INPUT" "$MILEPOST_IDEMPOTENCY_KEY" "$MILEPOST_FENCE" "$NUMBER" "$FLAG" "$EMPTY" "$TEXT" "$(cat)" "$PWD""#,
            &seen,
        )
    };
    assert_eq!(within(RunKind::new().run(call)).await, Outcome::success());
    let here = std::env::current_dir().unwrap();
    let expected = format!(
        r#"plan-1|task-1|tenant-1|stage-1|3|{{"version":"1.2.3"}}|task-1/stage-1/origin.1|7|1.5|true||a b||{}|"#,
        here.display()
    );
    assert_eq!(seen.text(), expected);
}

#[tokio::test]
async fn without_tenant_and_input_the_variables_are_still_there() {
    let seen = Arc::new(Seen::default());
    let call =
        StageCall { tenant: None, ..script(r#"set -u; printf '%s|%s' "$MILEPOST_TENANT" "$MILEPOST_INPUT""#, &seen) };
    assert_eq!(within(RunKind::new().run(call)).await, Outcome::success());
    assert_eq!(seen.text(), "|null");
}

#[tokio::test]
async fn values_reach_a_command_only_through_its_environment() {
    let folder = tempfile::tempdir().unwrap();
    let canary = folder.path().join("executed");
    let touch = format!("touch {}", canary.display());
    let payloads = [
        format!("$({touch})"),
        format!("`{touch}`"),
        format!("; {touch};"),
        format!("\" ; {touch} ; \""),
        format!("' ; {touch} ; '"),
        format!("| {touch}"),
        format!("&& {touch}"),
        format!("$(({touch}))"),
        format!("${{IFS:=$({touch})}}"),
        format!("() {{ :; }}; {touch}"),
        format!("\n{touch}\n"),
        "{{ input }} {% raw %}".to_owned(),
    ];
    for payload in payloads {
        let seen = Arc::new(Seen::default());
        let call = StageCall {
            tenant: Tenant::parse(&payload).ok(),
            input: Arc::new(json!({ "payload": payload })),
            with: json!({"env": {"PAYLOAD": payload}}),
            ..script(
                r#"echo $MILEPOST_TENANT "$MILEPOST_TENANT" $MILEPOST_INPUT >/dev/null; printf %s "$PAYLOAD""#,
                &seen,
            )
        };
        assert_eq!(within(RunKind::new().run(call)).await, Outcome::success(), "{payload}");
        assert_eq!(seen.text(), payload);
        assert!(!canary.exists(), "{payload:?} was executed");
    }
}

#[tokio::test]
async fn a_value_that_no_environment_can_hold_is_refused() {
    for (input, with) in [
        (Value::String("x".repeat(300 * 1024)), Value::Null),
        (Value::Null, json!({"env": {"A": "with\0zero"}})),
        (Value::Null, json!({"env": {"A": {"b": 1}}})),
        (Value::Null, json!({"env": {"MILEPOST_TASK": "other"}})),
    ] {
        let seen = Arc::new(Seen::default());
        let call = StageCall { input: Arc::new(input), with, ..script("true", &seen) };
        let failed = failure(within(RunKind::new().run(call)).await);
        assert_eq!((failed.error_type, failed.retryable), (ErrorType::Validation, false), "{}", failed.reason);
    }
}

#[tokio::test]
async fn outputs_are_lines_or_one_json_object() {
    assert_eq!(
        Value::Object(outputs(run("echo a=1 >>$MILEPOST_OUTPUT; echo 'b=x=y z' >>$MILEPOST_OUTPUT").await.0)),
        json!({"a": "1", "b": "x=y z"})
    );
    assert_eq!(
        Value::Object(outputs(run(r#"echo '{"rows": 12, "ok": true}' >$MILEPOST_OUTPUT"#).await.0)),
        json!({"rows": 12, "ok": true})
    );
    assert_eq!(run("echo a=1 >$MILEPOST_OUTPUT; rm $MILEPOST_OUTPUT").await.0, Outcome::success());
}

#[tokio::test]
async fn malformed_outputs_fail_the_stage_for_good() {
    for text in ["echo nonsense", "printf 'a=\\377'", "echo '{\"a\":'"] {
        let failed = failure(run(&format!("{text} >$MILEPOST_OUTPUT")).await.0);
        assert_eq!((failed.error_type, failed.retryable), (ErrorType::Validation, false));
        assert!(failed.reason.contains("line 1") || failed.reason.contains("line 2"), "{}", failed.reason);
    }
    let failed = failure(run("mkfifo $MILEPOST_OUTPUT").await.0);
    assert_eq!(failed.error_type, ErrorType::Validation);
}

#[tokio::test]
async fn outputs_larger_than_the_limit_ask_for_a_reference() {
    let failed = failure(run("(printf a=; head -c 1048577 /dev/zero | tr '\\0' x) >$MILEPOST_OUTPUT").await.0);
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Persistence, false));
    assert!(failed.reason.contains("pass a reference"), "{}", failed.reason);
}

#[tokio::test]
async fn progress_is_reported_while_the_command_runs() {
    let seen = Arc::new(Seen::default());
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let call = StageCall {
        with: json!({"env": {"GO": go}}),
        ..script(
            "echo 1 4 >>$MILEPOST_PROGRESS; until [ -e $GO ]; do sleep 0.02; done; printf '3 4\\n4 4' >>$MILEPOST_PROGRESS",
            &seen,
        )
    };
    let attempt = tokio::spawn(async move { RunKind::new().run(call).await });
    eventually("the first report", || (*seen.progress.lock().unwrap() == [(1, 4)]).then_some(())).await;
    std::fs::write(&go, "").unwrap();
    assert_eq!(within(attempt).await.unwrap(), Outcome::success());
    assert_eq!(*seen.progress.lock().unwrap(), [(1, 4), (4, 4)]);
}

#[tokio::test]
async fn a_chatty_command_never_blocks() {
    let (outcome, seen) = run("head -c 20000000 /dev/zero & head -c 20000000 /dev/zero >&2; wait").await;
    assert_eq!(outcome, Outcome::success());
    assert_eq!(seen.length(), 40_000_000);
}

#[tokio::test]
async fn cancelling_ends_a_command_that_never_stops_printing() {
    let seen = Arc::new(Seen::default());
    let call = script("yes & yes >&2", &seen);
    let cancel = call.cancel.clone();
    let attempt = tokio::spawn(async move { RunKind::new().run(call).await });
    eventually("printing", || (seen.length() > 1_000_000).then_some(())).await;
    cancel.cancel();
    assert!(failure(within(attempt).await.unwrap()).retryable);
}

#[tokio::test]
async fn what_was_printed_last_arrives_also_when_the_command_ends_at_once() {
    for _ in 0..50 {
        let (_, seen) = run("printf last").await;
        assert_eq!(seen.text(), "last");
    }
}

/// A folder to meet a command in: `$PIDS` is where it writes process ids.
fn meeting_place() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    (folder, pids)
}

#[tokio::test]
async fn cancelling_ends_the_whole_process_group() {
    // A busy machine may take as long as the grace for what listens at once; it does not do so every time.
    for _ in 0..20 {
        if cancelled_group_ends_in().await < Duration::from_secs(5) {
            return;
        }
    }
    panic!("TERM alone should have ended it");
}

async fn cancelled_group_ends_in() -> Duration {
    let (_folder, file) = meeting_place();
    let seen = Arc::new(Seen::default());
    let call = StageCall {
        with: json!({"env": {"PIDS": file}}),
        ..script("sleep 1000 & (sleep 1000 & echo $! >>$PIDS; wait) & echo $$ $! >>$PIDS; wait", &seen)
    };
    let cancel = call.cancel.clone();
    let attempt = tokio::spawn(async move { RunKind::new().run(call).await });
    let pids = pids(&file, 3).await;
    let cancelled = Instant::now();
    cancel.cancel();
    let failed = failure(within(attempt).await.unwrap());
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Timeout, true));
    assert!(pids.iter().all(|pid| is_gone(*pid)), "{pids:?}");
    cancelled.elapsed()
}

#[tokio::test]
async fn what_ignores_term_is_killed_after_the_grace_and_what_needs_time_to_clean_up_gets_it() {
    let (_folder, file) = meeting_place();
    let seen = Arc::new(Seen::default());
    let call = StageCall {
        with: json!({"env": {"PIDS": file}}),
        // The shell goes at once; one child cleans up, the other does not listen.
        ..script(
            "sh -c 'trap \"\" TERM; echo $$ >>$PIDS; while :; do sleep 0.1; done' & \
             sh -c 'trap \"sleep 0.3; echo cleaned up; exit\" TERM; echo $$ >>$PIDS; while :; do sleep 0.05; done' & \
             trap 'exit 1' TERM; echo $$ >>$PIDS; wait",
            &seen,
        )
    };
    let cancel = call.cancel.clone();
    let attempt = tokio::spawn(async move { RunKind::new().run(call).await });
    let pids = pids(&file, 3).await;
    let cancelled = Instant::now();
    cancel.cancel();
    assert!(failure(within(attempt).await.unwrap()).retryable);
    assert!(pids.iter().all(|pid| is_gone(*pid)), "{pids:?}");
    assert!(seen.text().contains("cleaned up"), "{}", seen.text());
    assert!(cancelled.elapsed() >= Duration::from_secs(5), "{:?}", cancelled.elapsed());
}

#[tokio::test]
async fn a_background_child_does_not_keep_the_stage_running() {
    let (_folder, file) = meeting_place();
    let seen = Arc::new(Seen::default());
    let text = "sleep 1000 & echo $! >>$PIDS; echo a=1 >$MILEPOST_OUTPUT";
    let call = StageCall { with: json!({"env": {"PIDS": file}}), ..script(text, &seen) };
    assert_eq!(outputs(within(RunKind::new().run(call)).await)["a"], "1");
    let left = pids(&file, 1).await;
    assert!(is_gone(left[0]));
}

#[tokio::test]
async fn a_child_that_left_the_group_with_the_pipes_open_does_not_keep_the_stage_running() {
    let (_folder, file) = meeting_place();
    let seen = Arc::new(Seen::default());
    let text = "setsid sh -c 'echo $$ >$PIDS; exec sleep 1000' & until [ -s $PIDS ]; do sleep 0.01; done; echo said";
    let call = StageCall { with: json!({"env": {"PIDS": file}}), ..script(text, &seen) };
    assert_eq!(within(RunKind::new().run(call)).await, Outcome::success());
    assert_eq!(seen.text(), "said\n");
    let left = pids(&file, 1).await;
    // It may stay: leaving the session is how something is meant to outlive its command. Not its test, though.
    assert!(!is_gone(left[0]));
    kill(left[0]);
}

#[tokio::test]
async fn an_attempt_that_is_dropped_takes_its_processes_and_files_along() {
    let (_folder, file) = meeting_place();
    let seen = Arc::new(Seen::default());
    let text = "echo $MILEPOST_OUTPUT; sleep 1000 & echo $$ $! >>$PIDS; wait";
    let call = StageCall { with: json!({"env": {"PIDS": file}}), ..script(text, &seen) };
    let attempt = tokio::spawn(async move { RunKind::new().run(call).await });
    let pids = pids(&file, 2).await;
    attempt.abort();
    eventually("ending the processes", || pids.iter().all(|pid| is_gone(*pid)).then_some(())).await;
    let outputs = seen.text();
    eventually("removing the files", || (!Path::new(outputs.trim()).exists()).then_some(())).await;
}

#[tokio::test]
async fn the_files_of_an_attempt_are_private_and_gone_afterwards() {
    let (outcome, seen) = run("echo a=1 >$MILEPOST_OUTPUT; echo 1 1 >$MILEPOST_PROGRESS
                               ls -ld $(dirname $MILEPOST_OUTPUT); echo $MILEPOST_OUTPUT; echo $MILEPOST_PROGRESS")
    .await;
    assert_eq!(outputs(outcome)["a"], "1");
    let text = seen.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("drwx------"), "{text}");
    for file in &lines[1..] {
        assert!(file.starts_with('/') && !Path::new(file).exists(), "{file}");
    }
}

#[test]
fn a_command_outlives_the_thread_that_started_it() {
    let seen = Arc::new(Seen::default());
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let call = StageCall {
        with: json!({"env": {"GO": go}}),
        ..script("echo started; until [ -e $GO ]; do sleep 0.02; done", &seen)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // Polled once by a thread of its own, which starts the shell and ends; then by this one.
    let mut attempt: std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>> =
        Box::pin(async move { RunKind::new().run(call).await });
    let handle = runtime.handle().clone();
    let mut attempt = std::thread::spawn(move || {
        let _runtime = handle.enter();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(attempt.as_mut().poll(&mut context).is_pending());
        attempt
    })
    .join()
    .unwrap();
    std::fs::write(&go, "").unwrap();
    assert_eq!(runtime.block_on(async move { within(&mut attempt).await }), Outcome::success());
    assert_eq!(seen.text(), "started\n");
}
