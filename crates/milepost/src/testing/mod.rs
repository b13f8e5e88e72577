//! For tests of workflows: a node in memory whose clock skips ahead, stages replaced by fakes, and crashes on demand.
//!
//! ```
//! use milepost::testing::TestEngine;
//! use milepost::{Context, ErrorType, Failure, Retry, days, secs};
//!
//! #[milepost::workflow]
//! async fn checkout(ctx: &mut Context, order: String) -> Result<String, Failure> {
//!     let retry = Retry::exponential(secs(1)).attempts(5);
//!     let payment = ctx.stage("charge").retry(retry).run(|| charge(&order)).await?;
//!     ctx.sleep("cool-off", days(3)).await?;
//!     Ok(format!("{order} is paid with {payment}"))
//! }
//!
//! async fn charge(order: &str) -> Result<String, Failure> {
//!     Err(Failure::fatal(ErrorType::Network, format!("a test charges nobody for {order}")))
//! }
//!
//! let mut engine = TestEngine::new()
//!     .workflow(checkout)
//!     .fake("charge", |call| match call.attempt {
//!         1 | 2 => Err(Failure::retryable(ErrorType::Network, "no answer")),
//!         _ => Ok("a card"),
//!     })
//!     .crash_after(3);
//! let paid = engine.run("order-17", checkout, "a book".to_owned());
//! assert_eq!(paid.unwrap(), "a book is paid with a card");
//! assert_eq!(engine.crashes(), 1);
//! assert_eq!(engine.log("order-17").count("RETRY_SCHEDULED"), 2);
//! ```
//!
//! Nothing of it needs a runtime: it has one of its own, which runs only while the test waits for it. So a test is the
//! same every time, and between two of its lines no time passes.

mod engine;
mod log;
mod mortal;

pub use engine::TestEngine;
pub use log::Log;
pub use milepost_core::task::EventView;
pub use milepost_engine::workflow::Call;
pub use mortal::Crash;
