//! Live progress over HTTP: nothing is lost, nothing comes twice, and nobody who watches is in the way.

mod crowds;
mod nodes;
mod progress;
mod resuming;
mod streams;
mod support;
mod units;
