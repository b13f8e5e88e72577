//! Recorded runs against the code as it is now.

use milepost::{Context, Engine, ErrorType, Failure, History, Milepost, Retry, TypedWorkflow, millis, replay};

async fn step(name: &str) -> Result<String, Failure> {
    Ok(name.to_owned())
}

/// What would be done if a replay ran a stage.
async fn never() -> Result<String, Failure> {
    panic!("a replay runs no stage")
}

#[milepost::workflow(name = "order")]
async fn recorded(ctx: &mut Context, order: u32) -> Result<String, Failure> {
    let key = ctx.uuid();
    ctx.stage("charge").input(&order).run(|| step("charged")).await?;
    ctx.sleep("cool-off", millis(1)).await?;
    let shipped = ctx
        .stage("ship")
        .retry(Retry::never())
        .rollback(|| async { Ok::<_, Failure>(()) })
        .run(|| step("shipped"))
        .await?;
    if order == 13 {
        return Err(Failure::fatal(ErrorType::Business, "thirteen"));
    }
    Ok(format!("{shipped} {key}"))
}

#[milepost::workflow(name = "order")]
async fn same(ctx: &mut Context, order: u32) -> Result<String, Failure> {
    let key = ctx.uuid();
    ctx.stage("charge").input(&order).run(never).await?;
    ctx.sleep("cool-off", millis(1)).await?;
    let shipped = ctx.stage("ship").rollback(|| async { Ok::<_, Failure>(()) }).run(never).await?;
    if order == 13 {
        return Err(Failure::fatal(ErrorType::Business, "thirteen"));
    }
    Ok(format!("{shipped} {key}"))
}

#[milepost::workflow(name = "order")]
async fn other_stage(ctx: &mut Context, order: u32) -> Result<String, Failure> {
    ctx.stage("charge").input(&order).run(never).await?;
    ctx.sleep("cool-off", millis(1)).await?;
    ctx.stage("notify").run(never).await
}

#[milepost::workflow(name = "order")]
async fn changed_input(ctx: &mut Context, order: u32) -> Result<String, Failure> {
    ctx.stage("charge").input(&(order + 1)).run(never).await
}

#[milepost::workflow(name = "order")]
async fn early_return(ctx: &mut Context, order: u32) -> Result<String, Failure> {
    ctx.stage("charge").input(&order).run(never).await
}

#[milepost::workflow(name = "order")]
async fn one_more(ctx: &mut Context, order: u32) -> Result<String, Failure> {
    let key = ctx.uuid();
    ctx.stage("charge").input(&order).run(never).await?;
    ctx.sleep("cool-off", millis(1)).await?;
    let shipped = ctx.stage("ship").run(never).await?;
    ctx.stage("thank").run(never).await?;
    Ok(format!("{shipped} {key}"))
}

/// The same change, behind a name.
#[milepost::workflow(name = "order")]
async fn patched(ctx: &mut Context, order: u32) -> Result<String, Failure> {
    let key = ctx.uuid();
    ctx.stage("charge").input(&order).run(never).await?;
    ctx.sleep("cool-off", millis(1)).await?;
    let shipped = ctx.stage("ship").run(never).await?;
    if ctx.patched("thanks") {
        ctx.stage("thank").run(never).await?;
    }
    Ok(format!("{shipped} {key}"))
}

#[milepost::workflow(name = "order")]
async fn other_result(ctx: &mut Context, order: u32) -> Result<String, Failure> {
    ctx.stage("charge").input(&order).run(never).await?;
    ctx.sleep("cool-off", millis(1)).await?;
    ctx.stage("ship").run(never).await
}

#[milepost::workflow(name = "order", version = 2)]
async fn next_version(ctx: &mut Context, _order: u32) -> Result<String, Failure> {
    ctx.stage("all-new").run(never).await
}

#[milepost::workflow]
async fn countdown(ctx: &mut Context, from: u32) -> Result<u32, Failure> {
    let rest = ctx.stage("count").run(|| async { Ok::<_, Failure>(from - 1) }).await?;
    if rest > 0 { ctx.continue_as_new(rest) } else { Ok(rest) }
}

async fn engine() -> Engine {
    let milepost = Milepost::open("memory:").await.expect("a store");
    milepost.workflow(recorded).workflow(countdown).start().await.expect("an engine")
}

async fn history(order: u32) -> History {
    let engine = engine().await;
    let run = engine.run(recorded, order).id("order").spawn().await.expect("a run");
    let _ = run.result().await;
    // As it would be kept beside the tests.
    let text = serde_json::to_string(&engine.history("order").await.expect("a history")).expect("JSON");
    serde_json::from_str(&text).expect("a history")
}

fn diverges<W: TypedWorkflow>(workflow: impl FnOnce() -> W, history: &History) -> String {
    replay(workflow, history).expect_err("a divergence").to_string()
}

#[tokio::test]
async fn a_recorded_run_replays_against_the_same_code_and_runs_no_stage() {
    for order in [17, 13] {
        let history = history(order).await;
        assert_eq!(replay(same, &history).expect("no divergence").events, history.events.len());
    }
}

#[tokio::test]
async fn a_changed_function_diverges_with_a_stable_code_and_both_sides() {
    let history = history(17).await;
    for (said, expected) in [
        (diverges(other_stage, &history), "other-stage: the log has stage `ship` third, the code asked for `notify`"),
        (
            diverges(early_return, &history),
            "missing-stage: the log has sleep `cool-off` second, the code returned without it",
        ),
        (diverges(one_more, &history), "other-end: the log completes, the code asked for `thank`"),
        (
            diverges(next_version, &history),
            "other-workflow: the log of order is of order (version 1), the code is order (version 2)",
        ),
    ] {
        assert_eq!(said, expected);
    }
    assert!(diverges(changed_input, &history).starts_with("changed-input: the log has stage `charge` with input"));
    assert!(diverges(other_result, &history).starts_with("other-result: the log has the result \"shipped "));
}

#[tokio::test]
async fn a_patched_function_keeps_an_old_log_replaying() {
    let history = history(17).await;
    replay(patched, &history).expect("no divergence");
}

#[tokio::test]
async fn every_generation_of_a_run_that_continued_as_new_is_replayed() {
    let engine = engine().await;
    engine.run(countdown, 3).id("down").await.expect("an end");
    let history = engine.history("down").await.expect("a history");
    assert_eq!(replay(countdown, &history).expect("no divergence").events, history.events.len());
}
