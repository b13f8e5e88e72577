//! MySQL and MariaDB behind the seam, on a real server.

#[path = "mysql/catalogue.rs"]
mod catalogue;
#[path = "mysql/finishing.rs"]
mod finishing;
#[path = "mysql/marks.rs"]
mod marks;
#[path = "mysql/reading.rs"]
mod reading;
#[path = "mysql/rows.rs"]
mod rows;
#[path = "mysql/support.rs"]
mod support;
#[path = "mysql/values.rs"]
mod values;
