//! The workflow, and the two orders that go through it.

use milepost::{Context, Engine, ErrorType, Failure, Retry, TaskStatus, millis};
use serde::{Deserialize, Serialize};

use crate::say;

/// One order that is shipped and one that cannot be.
pub(crate) async fn shop(engine: &Engine) -> anyhow::Result<()> {
    let order = Order { number: "17".into(), cents: 4200, address: "Elm Street 1".into() };
    let receipt = engine.run(checkout, order).id("order-17").await?;
    say(&format!("order-17: {receipt:?}"));
    anyhow::ensure!(receipt.parcel == "parcel-17");

    let order = Order { number: "18".into(), cents: 100, address: "nowhere".into() };
    let run = engine.run(checkout, order).id("order-18").spawn().await?;
    let failed = run.result().await.expect_err("an order that cannot be shipped");
    say(&format!("order-18: {failed}"));
    anyhow::ensure!(run.status().await? == TaskStatus::RolledBack);
    Ok(())
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    number: String,
    cents: u64,
    address: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Receipt {
    payment: String,
    parcel: String,
}

#[milepost::workflow]
pub(crate) async fn checkout(ctx: &mut Context, order: Order) -> Result<Receipt, Failure> {
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
