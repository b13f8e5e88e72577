//! A store in memory: the plainest reading of the contract, which tests run on and other backends are compared with.

mod books;
mod changes;
mod claim;
mod commit;
mod data;
mod letters;
mod line;
mod locks;
mod moved;
mod read;
mod requests;
mod sessions;
mod store;
mod submit;

pub use store::MemoryStore;
