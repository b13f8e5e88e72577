//! The testing kit: time skips ahead, fakes take the place of stages, and nodes die where a test wants it.

use milepost::testing::{Crash, TestEngine};
use milepost::{Context, Error, ErrorType, Failure, Retry, TaskStatus, days, hours, secs};
use milepost_core::time::Millis;

async fn never<T>() -> Result<T, Failure> {
    Err(Failure::fatal(ErrorType::Business, "the real thing was called"))
}

#[milepost::workflow]
async fn order(ctx: &mut Context, item: String) -> Result<String, Failure> {
    let retry = Retry::exponential(hours(1)).attempts(4).at_most(days(2));
    let paid: String = ctx.stage("charge").retry(retry).rollback(never).run(never).await?;
    ctx.sleep("cool-off", days(30)).await?;
    let sent: String = ctx.stage("ship").retry(Retry::never()).run(never).await?;
    Ok(format!("{item}, {paid}, {sent}"))
}

#[milepost::workflow]
async fn approval(ctx: &mut Context, _: ()) -> Result<String, Failure> {
    ctx.signal("approved").deadline(days(7)).await
}

#[milepost::workflow]
async fn twice(ctx: &mut Context, _: ()) -> Result<Vec<u32>, Failure> {
    let side = ctx.branch("side");
    let (one, other) = futures::try_join!(ctx.stage("count").run(never), side.stage("count").run(never))?;
    Ok(vec![one, other, ctx.stage("count").run(never).await?])
}

fn shop() -> TestEngine {
    TestEngine::new()
        .workflow(order)
        .fake("charge", |call| match call.attempt {
            1 | 2 => Err(Failure::retryable(ErrorType::Network, "no answer")),
            _ => Ok("paid"),
        })
        .fake("ship", |_| Ok("sent"))
}

#[test]
fn hours_of_retries_and_days_of_sleep_are_over_at_once_and_the_clock_shows_them() {
    let mut engine = shop();
    let start = engine.now();
    assert_eq!(engine.run("o", order, "a book".to_owned()).unwrap(), "a book, paid, sent");
    let took = engine.now().since(start).as_duration();
    assert!((days(30) + hours(3)..days(30) + hours(5)).contains(&took), "{took:?}");
    let log = engine.log("o");
    log.check();
    assert_eq!(log.backoffs().len(), 2);
    assert_eq!(
        log.lines()[2..5],
        [
            "STAGE_STARTED charge 1",
            &format!("RETRY_SCHEDULED charge 2 after {}", log.backoffs()[0]),
            "STAGE_STARTED charge 2"
        ]
    );
}

#[test]
fn a_fake_takes_the_place_of_every_stage_of_its_name_and_is_told_which_one() {
    let mut engine = TestEngine::new().workflow(twice).fake("count", |call| {
        assert_eq!(call.task.as_str(), "t");
        Ok(match call.stage.as_str() {
            "count" => 1,
            "side.count" => 10,
            "count.2" => 100,
            other => panic!("{other}"),
        })
    });
    assert_eq!(engine.run("t", twice, ()).unwrap(), [1, 10, 100]);
}

#[milepost::workflow]
async fn basket(ctx: &mut Context, items: Vec<String>) -> Result<u32, Failure> {
    let mut cents = 0;
    for item in &items {
        cents += ctx.stage("price").input(item).run(never::<u32>).await?;
    }
    Ok(cents + ctx.stage("postage").run(never::<u32>).await?)
}

#[test]
fn a_fake_may_answer_by_what_its_stage_was_given() {
    let mut engine = TestEngine::new().workflow(basket).fake("price", |call| match call.input.as_str() {
        Some("a book") => Ok(1200),
        Some("a pen") => Ok(150),
        other => Err(Failure::fatal(ErrorType::Business, format!("nobody sells {other:?}"))),
    });
    engine = engine.fake("postage", |call| Ok(u32::from(call.input.is_null())));
    engine = engine.crash_after(3);
    assert_eq!(engine.run("b", basket, vec!["a book".to_owned(), "a pen".to_owned()]).unwrap(), 1351);
    let failed = engine.run("c", basket, vec!["a yacht".to_owned()]).unwrap_err();
    assert!(failed.to_string().contains("a yacht"), "{failed}");
}

#[test]
fn a_fake_rollback_gets_the_result_of_the_stage_that_it_undoes() {
    let (sender, undone) = std::sync::mpsc::channel();
    let mut engine = shop().fake("ship", |_| Err::<(), _>(Failure::fatal(ErrorType::Business, "sold out")));
    engine = engine.fake_rollback("charge", move |result| {
        sender.send(result).unwrap();
        Ok(())
    });
    let failed = engine.run("o", order, String::new()).unwrap_err();
    assert!(matches!(failed, Error::Failed { status: TaskStatus::RolledBack, .. }), "{failed}");
    assert_eq!(undone.try_iter().collect::<Vec<_>>(), [Some("paid".into())]);
}

#[test]
fn a_fake_that_never_ends_runs_into_the_timeout_of_its_stage() {
    let mut engine = shop().fake_async("ship", |_| std::future::pending::<Result<(), Failure>>());
    engine = engine.fake_rollback("charge", |_| Ok(()));
    let failed = engine.run("o", order, String::new()).unwrap_err();
    assert!(matches!(failed, Error::Failed { error_type: ErrorType::Timeout, .. }), "{failed}");
}

#[test]
fn wherever_its_node_dies_a_run_ends_with_the_same_result_and_the_same_log() {
    let mut whole = shop();
    let result = whole.run("o", order, "a book".to_owned()).unwrap();
    let log = whole.log("o").undisturbed();
    for write in 1..whole.writes() {
        for crash in [Crash::Before, Crash::After, Crash::Amid] {
            let mut engine = shop().crash(crash, write);
            assert_eq!(engine.run("o", order, "a book".to_owned()).unwrap(), result);
            assert_eq!(engine.crashes(), 1, "{crash:?} {write}");
            engine.log("o").check();
            assert_eq!(engine.log("o").undisturbed(), log, "{crash:?} {write}");
        }
    }
}

#[test]
fn a_node_may_die_more_than_once() {
    let mut engine = shop().crash_after(2).crash_before(4).crash_after(6);
    assert_eq!(engine.run("o", order, "a book".to_owned()).unwrap(), "a book, paid, sent");
    assert_eq!(engine.crashes(), 3);
}

#[test]
fn no_time_passes_between_two_lines_of_a_test_and_as_much_as_it_says_when_it_lets_some_pass() {
    let mut engine = TestEngine::new().workflow(approval);
    engine.spawn("a", approval, ()).unwrap();
    let start = engine.now();
    engine.advance(days(6));
    assert_eq!(engine.now(), start + Millis::new(6 * 24 * 3_600_000));
    assert_eq!(engine.view("a").unwrap().status, TaskStatus::Running);
    engine.signal("a", "approved", "yes").unwrap();
    assert_eq!(engine.result("a", approval).unwrap(), "yes");

    engine.spawn("late", approval, ()).unwrap();
    engine.advance(days(7) + secs(1));
    assert!(engine.result("late", approval).unwrap_err().to_string().contains("`approved` did not come"));
}

#[test]
fn a_signal_that_its_node_dies_of_arrives_once() {
    for write in 2..5 {
        let mut engine = TestEngine::new().workflow(approval).crash_after(write);
        engine.spawn("a", approval, ()).unwrap();
        engine.advance(secs(1));
        engine.signal("a", "approved", "yes").unwrap();
        assert_eq!(engine.result("a", approval).unwrap(), "yes");
        assert_eq!(engine.log("a").count("SIGNAL_RECEIVED"), 1, "after {write} writes");
    }
}

#[tokio::test]
async fn a_test_that_is_async_uses_it_all_the_same() {
    let mut engine = shop().crash_after(4);
    assert_eq!(engine.run("o", order, "a book".to_owned()).unwrap(), "a book, paid, sent");
    assert_eq!(engine.crashes(), 1);
}

#[test]
#[should_panic(expected = "what does it wait for?")]
fn a_run_that_waits_for_what_nobody_says_is_given_up_with_its_log() {
    #[milepost::workflow]
    async fn waits(ctx: &mut Context, _: ()) -> Result<(), Failure> {
        ctx.signal("never").await
    }
    let _ = TestEngine::new().workflow(waits).run("w", waits, ());
}
