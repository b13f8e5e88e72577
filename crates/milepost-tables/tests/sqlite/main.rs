//! SQLite behind `Database`: each test is a rule that a copy relies on.

mod catalogue;
mod finishing;
mod lab;
mod marks;
mod reading;
mod values;
mod writing;
