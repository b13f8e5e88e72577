//! PostgreSQL behind the seam: each test in a schema of its own, on the server that `MILEPOST_TEST_POSTGRES` names.

mod catalogue;
mod faults;
mod finishing;
mod loading;
mod marks;
mod reading;
mod server;
mod values;
mod writing;
