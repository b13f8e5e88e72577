//! What people see: the HTTP API, live progress, metrics. Translates what comes in for the engine and the store, and never
//! decides anything itself.

mod accept;
mod app;
mod auth;
mod body;
mod cursor;
mod edge;
mod extract;
mod idempotency;
mod limits;
mod metrics;
mod patience;
mod problem;
mod reach;
mod routes;
mod server;
mod sse;
mod tls;

pub use app::{App, Settings};
pub use auth::{BadToken, mint};
pub use reach::is_for_this_machine_alone;
pub use server::{ServeError, Server};
pub use tls::{Tls, TlsError};
