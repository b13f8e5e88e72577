//! A node among others on one store: it says that it lives, hears what others ask of its tasks, and asks others.

mod beat;
mod cut_off;
mod give_back;
mod letters;
mod membership;
mod words;

pub(crate) use cut_off::CutOff;
pub(crate) use membership::Membership;
