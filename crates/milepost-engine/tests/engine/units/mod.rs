//! Units of a plan, tables say, that report how far they are: paused, cut off, failed and taken up again.

mod concurrency;
mod interrupting;
mod progress;
mod restart;
mod scenarios;
