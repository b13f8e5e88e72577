//! The built-in stage kinds against real processes and a real server on the loopback interface.

mod files;
mod http;
mod node_death;
mod run;
mod support;
mod tables;
