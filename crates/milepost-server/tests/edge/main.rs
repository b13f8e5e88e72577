//! The server's edge, over real connections: what it takes, what it refuses, and how it leaves.

mod connections;
mod errors;
mod guard;
mod leaving;
mod metrics;
mod rate;
mod support;
mod tls;
mod tokens;
