//! Messages in and outcomes out, over brokers in memory and on a clock that does not wait: what a real broker does only
//! now and then happens here whenever a test says so.

#[expect(dead_code, reason = "the tests with a broker need more of it")]
#[path = "../support/mod.rs"]
mod support;

mod brokers;
mod intake;
mod relay;
mod world;
