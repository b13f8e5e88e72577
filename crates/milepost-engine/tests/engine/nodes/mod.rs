//! Several nodes on one store.

mod chaos;
mod children;
mod letters;
mod losing;
mod together;
