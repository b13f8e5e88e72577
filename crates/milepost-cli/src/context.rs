//! What every command knows: the store, how to answer, and how the person would have to type the next command.

use std::sync::Arc;

use milepost_core::task::By;

use crate::args::Global;
use crate::config::{Color, Config};
use crate::exit::Failure;
use crate::operator;
use crate::store::{DEFAULT_URL, StoreUrl};
use crate::text::shell;

/// Tasks in hand at once when nothing says otherwise; each is a future, and a `run:` stage also a process.
const DEFAULT_CAPACITY: usize = 1024;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    /// As it was named, if it was. Looked at only by commands that need one: the others must not stumble over a bad one.
    store: Option<String>,
    node: Option<String>,
    capacity: usize,
    /// `milepost`, and the flags that a next command needs to mean the same store.
    program: String,
}

impl Context {
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let config = Config::load(global.config.as_deref())?;
        set_colors(global.color.or(config.color).unwrap_or_default());
        let from_environment = || std::env::var("MILEPOST_STORE").ok().filter(|url| !url.is_empty());
        let url = global.store.clone().or_else(from_environment).or(config.store);
        let mut program = "milepost".to_owned();
        if let Some(store) = &global.store {
            program.push_str(&format!(" --store {}", shell(store)));
        }
        if let Some(config) = &global.config {
            program.push_str(&format!(" --config {}", shell(&config.to_string_lossy())));
        }
        Ok(Self {
            json: global.json,
            quiet: global.quiet,
            store: url,
            node: config.node,
            capacity: config.capacity.unwrap_or(DEFAULT_CAPACITY),
            program,
        })
    }

    pub(crate) fn store(&self) -> Result<StoreUrl, Failure> {
        StoreUrl::parse(self.store.as_deref().unwrap_or(DEFAULT_URL))
    }

    /// The store, if somebody named one.
    pub(crate) fn named_store(&self) -> Result<Option<StoreUrl>, Failure> {
        self.store.as_deref().map(StoreUrl::parse).transpose()
    }

    /// What to type to do this, in this store.
    pub(crate) fn command(&self, rest: &str) -> String {
        format!("{} {rest}", self.program)
    }

    /// A node's name tells in the log who ran what.
    pub(crate) fn node(&self, named: Option<String>) -> Arc<str> {
        let own = || format!("{}-{}", operator::host(), std::process::id());
        named.or_else(|| self.node.clone()).unwrap_or_else(own).into()
    }

    /// Tasks in hand at once.
    pub(crate) fn capacity(&self, max_concurrency: u32) -> usize {
        usize::try_from(max_concurrency).unwrap_or(usize::MAX).clamp(1, self.capacity)
    }

    pub(crate) fn by(&self, why: Option<String>) -> By {
        By { who: operator::name(), why }
    }
}

fn set_colors(color: Color) {
    match color {
        // The console crate knows terminals, NO_COLOR and CLICOLOR_FORCE.
        Color::Auto if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) => enable_colors(false),
        Color::Auto => {}
        Color::Always => enable_colors(true),
        Color::Never => enable_colors(false),
    }
}

fn enable_colors(enabled: bool) {
    console::set_colors_enabled(enabled);
    console::set_colors_enabled_stderr(enabled);
}
