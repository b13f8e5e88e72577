//! The contract of a store, as cases that every backend runs.
