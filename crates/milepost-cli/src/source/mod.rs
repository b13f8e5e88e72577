//! Where answers come from: a store here, or a server elsewhere. Commands ask and print; they never know which.

mod follow;
mod local;
mod remote;
mod seam;

pub(crate) use local::Local;
pub(crate) use remote::Remote;
pub(crate) use seam::{EventsAsked, Found, Operated, Order, Publication, Signal, Source};
