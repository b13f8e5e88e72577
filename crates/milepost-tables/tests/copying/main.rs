//! What a copy promises, on SQLite files.

mod ending;
mod rows;
mod support;
mod targets;
mod verifying;
