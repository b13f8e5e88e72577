//! A node that dies at any point of a workflow: the next one ends with the same result and the same log.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::time::Millis;
use serde_json::{Value, json};

use crate::support::{Diary, Faulty, Flow, World, flow};

fn quick() -> RetryPolicy {
    RetryPolicy { max_attempts: 3, strategy: Strategy::Exponential, base: Millis::new(40), ..RetryPolicy::default() }
}

/// Everything there is in one function: values, retries, two branches, a child, a sleep, a race; and in the end a
/// failure that undoes it, if asked for. How often a stage fails is by its name alone, so that no process matters.
fn saga(diary: &Diary, fails: bool) -> (Flow, Flow) {
    let child = flow("child", |ctx, input| async move {
        let twice = || async { Ok::<_, Failure>(input.as_i64().unwrap() * 2) };
        Ok(json!(ctx.stage("twice").run(twice).await?))
    });
    let (part, diary) = (child.clone(), diary.clone());
    let saga = flow("saga", move |ctx, _| {
        let (part, diary) = (part.clone(), diary.clone());
        async move {
            let key = ctx.uuid();
            let undo = |name: &'static str| {
                let diary = diary.clone();
                move || {
                    let diary = diary.clone();
                    async move { diary.noted(format!("undo {name}")) }
                }
            };
            let charge = || async { diary.noted(format!("charge {key}")) };
            ctx.stage("charge").input(&"17").rollback(undo("charge")).run(charge).await?;
            let side = |name: &'static str| {
                let (ctx, diary) = (ctx.branch(name), diary.clone());
                async move {
                    let roll = ctx.random::<u32>();
                    let work = || async { diary.noted(format!("{name} {roll}")) };
                    ctx.stage("one").run(work).await?;
                    ctx.sleep("nap", Duration::from_millis(10)).await?;
                    ctx.stage("two").run(|| async { Ok::<_, Failure>(name.len()) }).await
                }
            };
            let (left, right) = futures::try_join!(side("left"), side("right"))?;
            let doubled = ctx.child("double", || part, json!(left + right)).await?;
            let flaky = || async { Err::<(), _>(Failure::retryable(ErrorType::Network, "no answer")) };
            let gave_up = ctx.stage("flaky").retry(quick()).run(flaky).await.unwrap_err();
            let ship = || async { diary.noted("ship") };
            ctx.stage("ship").rollback(undo("ship")).run(ship).await?;
            if fails {
                return Err(Failure::fatal(ErrorType::Business, "out of stock"));
            }
            Ok(json!([doubled, gave_up.attempts]))
        }
    });
    (saga, child)
}

/// The log with both branches in one order: which of them is ahead is nobody's promise.
fn settled(mut history: Vec<String>) -> Vec<String> {
    let branches =
        |line: &String| line.contains(" left.") || line.contains(" right.") || line.contains("VALUE_RECORDED");
    let mut apart: Vec<String> = history.iter().filter(|line| branches(line)).cloned().collect();
    history.retain(|line| !branches(line));
    apart.sort();
    history.extend(apart);
    history
}

async fn dies_everywhere(fails: bool) {
    let whole = {
        let (world, diary) = (World::new(), Diary::default());
        let (saga, child) = saga(&diary, fails);
        let node = world.node(saga.registry().with_workflow(Arc::new(child)));
        let outcome = node.flow(&saga, "w", Value::Null).await;
        (outcome, settled(node.history("w").await), diary.lines())
    };
    assert_eq!(whole.0.is_err(), fails);
    for commits in 0.. {
        let (world, diary) = (World::new(), Diary::default());
        let (saga, child) = saga(&diary, fails);
        let registry = saga.registry().with_workflow(Arc::new(child));
        let store = Faulty::over(Arc::new(milepost_store::sqlite::SqliteStore::open(world.path()).unwrap()));
        let node = world.node_on(store.clone(), registry.clone());
        store.dies_after(commits);
        node.begin(&saga, "w", Value::Null).await;
        let died = tokio::select! {
            biased;
            _ = node.ended("w") => false,
            () = store.refused() => true,
        };
        if !died {
            assert!(commits >= 20, "only {commits} commits");
            return;
        }
        let world = world.crashed();
        let node = world.node(registry);
        assert_eq!(node.outcome("w").await, whole.0, "after {commits} commits");
        assert_eq!(settled(node.history("w").await), whole.1, "after {commits} commits");
        // A stage may be run again when its end was not written, and is then given the same values.
        let (mut lines, mut wanted) = (diary.lines(), whole.2.clone());
        for lines in [&mut lines, &mut wanted] {
            lines.sort();
            lines.dedup();
        }
        assert_eq!(lines, wanted, "after {commits} commits");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workflow_whose_node_dies_after_any_commit_ends_as_if_it_had_not() {
    dies_everywhere(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_workflow_whose_node_dies_after_any_commit_is_undone_as_if_it_had_not() {
    dies_everywhere(true).await;
}
