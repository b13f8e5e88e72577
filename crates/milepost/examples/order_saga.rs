//! An order is paid, packed and shipped; when shipping fails for good, what was done is undone, the last thing first.
//!
//! `cargo run -p milepost --example order_saga` runs it in the current folder, in a store of its own. Run it again: the
//! same orders have the same results, and nothing is done twice.

use milepost::{Context, ErrorType, Failure, Milepost, Retry, TaskStatus, millis};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    number: String,
    cents: u64,
    address: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    payment: String,
    parcel: String,
}

#[milepost::workflow]
async fn checkout(ctx: &mut Context, order: Order) -> Result<Receipt, Failure> {
    // The same in every replay, so that the payment service sees one payment however often it is asked.
    let key = ctx.uuid().to_string();

    let payment = ctx
        .stage("charge")
        .input(&order.cents)
        .retry(Retry::exponential(millis(20)).attempts(5))
        .rollback_of(|payment: Option<String>| refund(payment))
        .run(|| charge(&order, &key))
        .await?;

    let items = order.clone();
    let reserved = ctx.stage("reserve").rollback(move || release(items.clone())).run(|| reserve(&order));
    let labelled = ctx.stage("label").run(|| label(&order));
    let (reserved, label) = futures::future::try_join(reserved, labelled).await?;

    ctx.sleep("cool-off", millis(50)).await?;

    let parcel =
        ctx.stage("ship").retry(Retry::fixed(millis(10)).attempts(2)).run(|| ship(&order, &reserved, &label)).await?;
    Ok(Receipt { payment, parcel })
}

async fn charge(order: &Order, key: &str) -> Result<String, Failure> {
    say(&format!("{}: charging {} cents", order.number, order.cents));
    if key.is_empty() {
        return Err(Failure::fatal(ErrorType::Validation, "a payment has a key"));
    }
    Ok(format!("pay-{}", order.number))
}

async fn refund(payment: Option<String>) -> Result<(), Failure> {
    say(&format!("refunding {}", payment.unwrap_or_else(|| "whatever was paid".to_owned())));
    Ok(())
}

async fn reserve(order: &Order) -> Result<String, Failure> {
    say(&format!("{}: reserving", order.number));
    Ok(format!("shelf of {}", order.number))
}

async fn release(order: Order) -> Result<(), Failure> {
    say(&format!("{}: back on the shelf", order.number));
    Ok(())
}

async fn label(order: &Order) -> Result<String, Failure> {
    Ok(format!("to {}", order.address))
}

async fn ship(order: &Order, reserved: &str, label: &str) -> Result<String, Failure> {
    say(&format!("{}: shipping from {reserved} {label}", order.number));
    if order.address == "nowhere" {
        return Err(Failure::retryable(ErrorType::Business, "nobody lives there"));
    }
    Ok(format!("parcel-{}", order.number))
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn say(line: &str) {
    println!("{line}");
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = Milepost::open("sqlite:order_saga.db").await?.workflow(checkout).start().await?;

    let order = Order { number: "17".into(), cents: 4200, address: "Elm Street 1".into() };
    let receipt = engine.run(checkout, order).id("order-17").await?;
    say(&format!("order-17: {receipt:?}"));
    anyhow::ensure!(receipt.parcel == "parcel-17");

    let order = Order { number: "18".into(), cents: 100, address: "nowhere".into() };
    let run = engine.run(checkout, order).id("order-18").spawn().await?;
    let failed = run.result().await.expect_err("an order that cannot be shipped");
    say(&format!("order-18: {failed}"));
    anyhow::ensure!(run.status().await? == TaskStatus::RolledBack);

    engine.stop().await;
    Ok(())
}
