//! What runs: claims tasks, runs their stages, waits for retries, and commits every outcome before going on.

pub mod stage;
