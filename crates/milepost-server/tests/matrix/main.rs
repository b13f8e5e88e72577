//! Every route and every kind of caller: who is let in, who is not, and that a refusal changes nothing.

mod callers;
mod every_route;
mod table;
mod world;
