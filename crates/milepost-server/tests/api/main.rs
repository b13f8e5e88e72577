//! The HTTP API as its clients meet it: a real server on a port of its own, over each kind of store.

mod bodies;
mod document;
mod explain;
mod idempotency;
mod life;
mod lists;
mod messages;
mod nodes;
mod problems;
mod signals;
mod support;
mod verbs;
mod versions;
mod workflows;
