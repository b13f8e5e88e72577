//! Several nodes on one store.

mod chaos;
mod children;
mod clocks;
mod letters;
mod looking;
mod losing;
mod together;
