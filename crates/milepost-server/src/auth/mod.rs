//! Who is asking, and what they may do.
//!
//! * `caller`: the sender of a request, as handlers see them
//! * `token`: a token's text: made, read, and proved
//! * `tokens`: the store's tokens, kept at hand
//! * `guard`: what protects a server that asks for no token from web pages

mod caller;
pub(crate) mod guard;
mod token;
mod tokens;

pub(crate) use caller::{Caller, authenticate};
pub use token::{BadToken, mint};
pub(crate) use tokens::Tokens;
