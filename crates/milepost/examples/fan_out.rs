//! A thousand workflows started by one, and their results brought together.
//!
//! `cargo run -p milepost --example fan_out`. Each child is a workflow of its own, with its own log: some of them may be
//! done and others not when the process dies, and the next one starts none of them twice.

use std::time::Instant;

use milepost::{Context, Failure, Milepost};

#[milepost::workflow]
async fn square(ctx: &mut Context, number: u64) -> Result<u64, Failure> {
    ctx.stage("square").run(|| async { Ok::<_, Failure>(number * number) }).await
}

#[milepost::workflow]
async fn sum_of_squares(ctx: &mut Context, count: u64) -> Result<u64, Failure> {
    let children = (1..=count).map(|number| ctx.child("square", square, number));
    let squares = futures::future::try_join_all(children).await?;
    Ok(squares.into_iter().sum())
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = Milepost::open("sqlite:fan_out.db").await?.workflow(square).workflow(sum_of_squares).start().await?;
    let begun = Instant::now();
    let sum = engine.run(sum_of_squares, 1000).id("squares-1000").await?;
    println!("the squares of 1 to 1000 make {sum}, after {:?}", begun.elapsed());
    anyhow::ensure!(sum == 333_833_500);
    engine.stop().await;
    Ok(())
}
