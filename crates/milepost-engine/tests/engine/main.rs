//! The engine's rules, each a test by its name, on a real file and mostly on a clock that only moves when all wait.

mod attempts;
mod crash;
mod explain;
mod feed;
mod files;
mod limits;
mod messages;
mod nodes;
mod order;
mod plans;
mod recovery;
mod results;
mod retries;
mod rollback;
mod stop;
mod store_loss;
mod store_trouble;
mod support;
mod units;
mod verbs;
mod workflows;
