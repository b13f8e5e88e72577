//! A program that serves its own workflows: what is outside begins them by name, sends them signals, and waits for their
//! results, all over HTTP.
//!
//! `cargo run -p milepost --example served`. The outside is a function here, which knows no more of the workflow than
//! another process would: where it is served, what it is called, and what it takes and gives.

use milepost::{Client, Context, Failure, Milepost, StageName, TaskId, days};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    article: String,
    days: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Loan {
    article: String,
    lent_by: String,
}

#[milepost::workflow]
async fn lend(ctx: &mut Context, request: Request) -> Result<Loan, Failure> {
    ctx.stage("set-aside").input(&request.article).run(|| set_aside(&request)).await?;
    let lent_by: String = ctx.signal("handed-over").deadline(days(3)).await?;
    Ok(Loan { article: request.article, lent_by })
}

async fn set_aside(request: &Request) -> Result<(), Failure> {
    say(&format!("{} is set aside for {} days", request.article, request.days));
    Ok(())
}

/// Somebody else, who knows the address.
async fn outside(url: &str) -> anyhow::Result<()> {
    let client = Client::new(url)?;
    let id = TaskId::parse("loan-ladder")?;
    let started = client.start("lend", &id, &Request { article: "the ladder".into(), days: 2 }).await?;
    // Begun by an earlier run of this example, it has ended, and its result is still there.
    if started.created {
        client.signal(&id, &StageName::parse("handed-over")?, &"Ann").await?;
    }
    let loan: Loan = client.result(&id).await?;
    say(&format!("{} was lent by {}", loan.article, loan.lent_by));
    anyhow::ensure!(loan.lent_by == "Ann");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn say(line: &str) {
    println!("{line}");
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = Milepost::open("sqlite:served.db").await?.workflow(lend).start().await?;
    // A program of your own takes a port that others know, such as 127.0.0.1:8080.
    let url = engine.serve("127.0.0.1:0").await?;
    say(&format!("serving on {url}"));

    outside(&url).await?;

    engine.stop().await;
    Ok(())
}
