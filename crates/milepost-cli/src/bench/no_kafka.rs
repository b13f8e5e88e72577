//! A build that cannot speak Kafka cannot measure it either.

use std::convert::Infallible;

use anyhow::Result;

use super::figures::Figures;
use super::subject::{Opened, Subject};
use super::workloads::Size;
use crate::context::Context;
use crate::exit::Failure;
use crate::kafka::not_in_this_build;

/// There are none.
#[derive(Debug)]
pub(super) struct Brokers(Infallible);

impl Brokers {
    pub(super) fn new(_context: &Context, _named: Option<&str>) -> Result<Self, Failure> {
        Err(not_in_this_build())
    }
}

pub(super) async fn kafka(
    _subject: &Subject,
    _opened: Opened,
    _size: Size,
    brokers: &Brokers,
) -> Result<(Figures, Opened)> {
    match brokers.0 {}
}
