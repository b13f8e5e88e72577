//! MySQL and MariaDB as a source and as a target.
//!
//! Rows are read by the binary protocol in one consistent snapshot, and written by LOAD DATA LOCAL where the server allows
//! it and says no word about the rows, else by INSERT of many rows, which tells exactly what is wrong with which. Nothing
//! is rounded, cut off or guessed by the server: what a column would change is found before it is sent.

mod begin;
mod catalogue;
mod connect;
mod database;
mod declare;
mod decode;
mod encode;
mod failure;
mod finish;
mod indexes;
mod lock;
mod marks;
mod page;
mod place;
mod read;
mod send;
mod spell;
mod sql;
mod takes;
mod types;
mod write;

pub(crate) use database::Mysql;
