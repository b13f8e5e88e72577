//! An order is paid, packed and shipped; when shipping fails for good, what was done is undone, the last thing first.
//!
//! `cargo run -p milepost --example order_saga` runs it in the current folder, in a store of its own. Run it again: the
//! same orders have the same results, and nothing is done twice.

mod saga;

use milepost::Milepost;

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn say(line: &str) {
    println!("{line}");
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = Milepost::open("sqlite:order_saga.db").await?.workflow(saga::checkout).start().await?;
    saga::shop(&engine).await?;
    engine.stop().await;
    Ok(())
}
