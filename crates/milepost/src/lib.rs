//! What users name: the client of a running server, and (to come) workflows as plain async Rust.

mod client;

pub use client::{
    Client, ClientError, EventFilter, LogFilter, Paging, PlanFormat, PlanUpload, TaskFilter, Verb, WatchEvent,
};
