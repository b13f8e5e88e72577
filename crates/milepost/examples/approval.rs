//! An expense waits for somebody to approve it, for as long as it takes, and is turned down when nobody does in time.
//!
//! `cargo run -p milepost --example approval`. The approval comes from outside the workflow: here from another handle,
//! in a company from another process.

use milepost::{Context, ErrorType, Failure, Milepost, days, millis};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Expense {
    what: String,
    cents: u64,
    /// How long there is to approve it.
    patience_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Approval {
    by: String,
}

#[milepost::workflow]
async fn expense(ctx: &mut Context, expense: Expense) -> Result<String, Failure> {
    ctx.stage("ask").run(|| ask(&expense)).await?;
    let patience = millis(expense.patience_ms).min(days(30));
    match ctx.signal::<Approval>("approved").deadline(patience).await {
        Ok(approval) => ctx.stage("pay").run(|| pay(&expense, &approval)).await,
        Err(late) if late.error_type == ErrorType::Timeout => Ok(format!("nobody wanted to pay for {}", expense.what)),
        Err(other) => Err(other),
    }
}

async fn ask(expense: &Expense) -> Result<(), Failure> {
    say(&format!("who approves {} for {} cents?", expense.what, expense.cents));
    Ok(())
}

async fn pay(expense: &Expense, approval: &Approval) -> Result<String, Failure> {
    Ok(format!("{} paid, approved by {}", expense.what, approval.by))
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn say(line: &str) {
    println!("{line}");
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = Milepost::open("sqlite:approval.db").await?.workflow(expense).start().await?;

    let chairs = Expense { what: "chairs".into(), cents: 80_000, patience_ms: 60_000 };
    let run = engine.run(expense, chairs).id("expense-chairs").spawn().await?;
    // A run that was approved before says the same thing again; only one that waits needs to be told.
    if !run.status().await?.is_ended() {
        let outside = engine.handle(expense, "expense-chairs")?;
        outside.signal("approved", Approval { by: "Ann".into() }).await?;
    }
    let chairs = run.result().await?;
    say(&chairs);
    anyhow::ensure!(chairs == "chairs paid, approved by Ann");

    let yacht = Expense { what: "a yacht".into(), cents: 90_000_000, patience_ms: 200 };
    let yacht = engine.run(expense, yacht).id("expense-yacht").await?;
    say(&yacht);
    anyhow::ensure!(yacht == "nobody wanted to pay for a yacht");

    engine.stop().await;
    Ok(())
}
