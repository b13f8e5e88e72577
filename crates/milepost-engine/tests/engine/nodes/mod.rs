//! Several nodes on one store.

mod chaos;
mod children;
mod clocks;
mod letters;
mod losing;
mod together;
