//! PostgreSQL as a source and as a target.

mod begin;
mod catalogue;
mod connect;
mod database;
mod encode;
mod finish;
mod fit;
mod indexes;
mod marks;
mod names;
mod parse;
mod read;
mod shapes;
mod types;
mod way;
mod write;

pub(crate) use database::Postgres;
