//! What users name: workflows as plain async Rust, and the client of a running server.
//!
//! ```no_run
//! use milepost::{Context, Failure, Milepost, Retry, secs};
//!
//! #[milepost::workflow]
//! async fn checkout(ctx: &mut Context, order: String) -> Result<String, Failure> {
//!     let payment = ctx.stage("charge").retry(Retry::exponential(secs(1)).attempts(5)).run(|| charge(&order)).await?;
//!     ctx.sleep("cool-off", secs(600)).await?;
//!     ctx.stage("ship").run(|| ship(&order, &payment)).await
//! }
//!
//! async fn charge(order: &str) -> Result<String, Failure> {
//!     Ok(format!("payment of {order}"))
//! }
//!
//! async fn ship(order: &str, payment: &str) -> Result<String, Failure> {
//!     Ok(format!("parcel of {order} for {payment}"))
//! }
//!
//! # async fn shown() -> Result<(), milepost::Error> {
//! let engine = Milepost::open("sqlite:app.db").await?.workflow(checkout).start().await?;
//! let parcel = engine.run(checkout, "order-17".to_owned()).id("order-17").await?;
//! # Ok(()) }
//! ```
//!
//! A function is run again after a crash: stages that have completed answer from the log, and it goes on where it was.
//! So whatever it does to the outside is a stage, and whatever it decides follows from its input, from its stages, and
//! from the clock and the dice of its context.

mod client;
mod engine;
mod error;
mod handle;
mod replay;
mod retry;
mod run;
#[cfg(feature = "server")]
mod serve;

#[doc(hidden)]
pub mod private;
#[cfg(feature = "testing")]
pub mod testing;

pub use client::{
    Client, ClientError, EventFilter, LogFilter, Paging, PlanFormat, PlanUpload, TaskFilter, Verb, WatchEvent,
};
pub use engine::{Engine, Milepost};
pub use error::Error;
pub use handle::Handle;
pub use milepost_core::breaker::Breaker;
pub use milepost_core::failure::{ErrorType, Failure, MaxRetriesExceeded};
pub use milepost_core::id::{IdempotencyKey, InvalidName, PlanId, StageName, TaskId, Tenant};
pub use milepost_core::plan::WorkflowRef;
pub use milepost_core::task::{TaskStatus, TaskView};
pub use milepost_core::time::Timestamp;
pub use milepost_engine::workflow::{Context, Diverged, History, Replayed, Signal, Stage, TypedWorkflow, Workflow};
pub use milepost_macros::workflow;
pub use replay::replay;
pub use retry::{Retry, days, hours, millis, mins, secs};
pub use run::Run;
