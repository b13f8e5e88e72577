//! What a bare server gives, for benchmarks to be measured against: the bytes of our stages, written by the shortest way
//! that the server has, in a loop with nothing around it.

mod mysql;
mod postgres;
mod redis;
mod server;

pub use server::{Server, ServerRates};
