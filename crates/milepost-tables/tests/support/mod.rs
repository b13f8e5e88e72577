//! Databases of one's own, tables to copy, and somebody else who says whether a copy is right.

pub(crate) mod comparer;
pub(crate) mod copying;
pub(crate) mod data;
pub(crate) mod home;
pub(crate) mod proxy;
pub(crate) mod refusals;
