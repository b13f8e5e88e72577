//! The client against a server that says what the test tells it to, and against a real one.

mod answers;
mod server;
mod submitting;
mod watching;
mod workflows;
