//! Workflows as users write them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use milepost::{Context, Engine, Error, ErrorType, Failure, Milepost, Retry, TaskStatus, millis, mins};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    number: u32,
    items: Vec<String>,
}

/// Takes an order and says what became of it.
#[milepost::workflow]
async fn checkout(ctx: &mut Context, order: Order) -> Result<String, Failure> {
    let paid = ctx.stage("pay").retry(Retry::fixed(millis(1)).attempts(3)).run(|| pay(&order)).await?;
    let packed = order.items.iter().map(|item| ctx.stage(format!("pack-{item}")).run(move || pack(item)));
    let packed = futures::future::try_join_all(packed).await?;
    Ok(format!("{paid}, {}", packed.join(" and ")))
}

async fn pay(order: &Order) -> Result<String, Failure> {
    if order.items.is_empty() {
        return Err(Failure::fatal(ErrorType::Business, "nothing to pay for"));
    }
    Ok(format!("order {} paid", order.number))
}

/// Any error of a program will do.
async fn pack(item: &str) -> Result<String, std::io::Error> {
    Ok(format!("{item} packed"))
}

#[milepost::workflow(name = "count", version = 1)]
async fn count_by_one(ctx: &mut Context) -> Result<u32, Failure> {
    let _: String = ctx.signal("go").await?;
    Ok(1)
}

#[milepost::workflow(name = "count", version = 2)]
async fn count_by_two(ctx: &mut Context) -> Result<u32, Failure> {
    ctx.stage("new").run(|| async { Ok::<_, Failure>(2) }).await
}

/// Has itself as a child.
#[milepost::workflow]
async fn factorial(ctx: &mut Context, number: u64) -> Result<u64, Failure> {
    if number < 2 {
        return Ok(1);
    }
    Ok(number * ctx.child("rest", factorial, number - 1).await?)
}

async fn engine() -> Engine {
    let milepost = Milepost::open("memory:").await.expect("a store");
    let milepost = milepost.workflow(checkout).workflow(count_by_one).workflow(count_by_two).workflow(factorial);
    milepost.start().await.expect("an engine")
}

fn order(items: &[&str]) -> Order {
    Order { number: 17, items: items.iter().map(ToString::to_string).collect() }
}

#[tokio::test]
async fn a_run_takes_its_input_and_gives_its_result_as_they_are_typed() {
    let engine = engine().await;
    let said = engine.run(checkout, order(&["book", "lamp"])).await.unwrap();
    assert_eq!(said, "order 17 paid, book packed and lamp packed");
}

#[tokio::test]
async fn the_same_id_again_is_the_same_run_and_with_another_input_it_is_refused() {
    let engine = engine().await;
    let first = engine.run(checkout, order(&["book"])).id("order-17").await.unwrap();
    assert_eq!(engine.run(checkout, order(&["book"])).id("order-17").await.unwrap(), first);
    let refused = engine.run(checkout, order(&["lamp"])).id("order-17").await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
}

#[tokio::test]
async fn a_failed_run_says_why() {
    let engine = engine().await;
    let failed = engine.run(checkout, order(&[])).id("empty").await.unwrap_err();
    assert_eq!(failed.to_string(), "workflow empty failed (FAILED): nothing to pay for");
}

#[tokio::test]
async fn runs_of_two_versions_go_on_side_by_side() {
    let engine = engine().await;
    let old = engine.run(count_by_one, ()).id("old").spawn().await.unwrap();
    assert_eq!(engine.run(count_by_two, ()).await.unwrap(), 2);
    old.signal("go", "now").await.unwrap();
    assert_eq!(old.result().await.unwrap(), 1);
}

#[tokio::test]
async fn a_run_can_be_paused_resumed_and_cancelled_by_its_handle() {
    let engine = engine().await;
    let run = engine.run(count_by_one, ()).id("handled").timeout(mins(5)).tenant("acme").spawn().await.unwrap();
    run.pause().await.unwrap();
    assert_eq!(run.status().await.unwrap(), TaskStatus::Paused);
    run.resume().await.unwrap();
    run.cancel().await.unwrap();
    assert!(matches!(run.result().await.unwrap_err(), Error::Cancelled { .. }));
    assert!(engine.handle(checkout, "nobody").unwrap().result().await.is_err());
}

#[tokio::test]
async fn a_workflow_may_have_itself_as_a_child() {
    assert_eq!(engine().await.run(factorial, 6).await.unwrap(), 720);
}

/// Counts what is run, in any process of this test.
static RUNS: AtomicUsize = AtomicUsize::new(0);

#[milepost::workflow]
async fn two_halves(ctx: &mut Context, name: String) -> Result<String, Failure> {
    let half = || async {
        RUNS.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(format!("{name}, first half"))
    };
    let first = ctx.stage("half").run(half).await?;
    ctx.signal::<()>("go").await?;
    Ok(format!("{first}, second half"))
}

#[tokio::test]
async fn another_engine_on_the_same_file_goes_on_where_the_first_one_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("app.db").display());
    let first = Milepost::open(&url).await.unwrap().workflow(two_halves).start().await.unwrap();
    let run = first.run(two_halves, "game".to_owned()).id("game").spawn().await.unwrap();
    let waits = |view: &milepost::TaskView| view.current_stage.as_ref().is_some_and(|stage| stage.as_str() == "go");
    while !waits(&run.view().await.unwrap()) {
        tokio::time::sleep(millis(5)).await;
    }
    let store = Arc::downgrade(first.inner().store());
    drop(run);
    first.stop().await;
    assert!(store.upgrade().is_none(), "a stopped engine lets go of its store");

    let second = Milepost::open(&url).await.unwrap().workflow(two_halves).start().await.unwrap();
    let run = second.handle(two_halves, "game").unwrap();
    run.signal("go", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "game, first half, second half");
    assert_eq!(RUNS.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_store_that_is_none_is_refused_with_what_was_expected() {
    let refused = Milepost::open("app.db").await.unwrap_err();
    let expected = "expected sqlite:PATH, postgres://…, mysql://…, redis://… or memory:";
    assert_eq!(refused.to_string(), format!("`app.db` names no kind of store; {expected}"));
}
