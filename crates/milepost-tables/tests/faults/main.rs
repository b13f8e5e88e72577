//! What goes wrong on the way: connections are cut, rows are refused, disks are full, tables change, two do the same at
//! once. Whatever it is: nobody ever sees a part of a table, and the next attempt makes it whole.

#[allow(dead_code, reason = "each test uses its part of it")]
#[path = "../support/mod.rs"]
mod support;

mod constraints;
mod cuts;
mod full;
mod rivals;
mod shapes;
mod snapshot;
