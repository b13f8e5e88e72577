//! What lies around every route, from the outside in.
//!
//! * `observe`: a name for each request, a span, a count and a line in the log
//! * `headers`: what browsers are told about every answer
//! * `tidy`: every error is a problem, also those that no handler made
//! * `admit`: who may come in, and how often
//! * `around`: all of it, in its order

mod admit;
mod around;
mod headers;
mod observe;
mod tidy;
mod trace;

pub(crate) use around::around;
