//! A store in memory: the plainest reading of the contract, which tests run on and other backends are compared with.

mod claim;
mod commit;
mod data;
mod line;
mod read;
mod store;
mod submit;

pub use store::MemoryStore;
