//! The client against a server that says what the test tells it to.

mod answers;
mod server;
mod submitting;
mod watching;
