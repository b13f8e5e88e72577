//! What every command knows: the store or server, how to answer, and how the person would have to type the next command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use milepost::Client;
use milepost_core::task::By;
use milepost_engine::OnStoreLoss;
use milepost_store::redacted;

use crate::args::Global;
use crate::config::{Color, Config, Kafka, Recovery, Serve, StoreLoss};
use crate::exit::{Exit, Failure};
use crate::files::Files;
use crate::operator;
use crate::source::{Local, Remote, Source};
use crate::store_url::{DEFAULT_URL, StoreUrl};
use crate::text::shell;

/// Tasks in hand at once when nothing says otherwise; each is a future, and a `run:` stage also a process.
const DEFAULT_CAPACITY: usize = 1024;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    /// As it was named, if it was. Looked at only by commands that need one: the others must not stumble over a bad one.
    store: Option<String>,
    /// It was named on the command line.
    store_by_flag: bool,
    /// The server that is meant instead, if one is.
    server: Option<String>,
    /// It was named on the command line, and so must be meant.
    server_by_flag: bool,
    token: Option<Token>,
    node: Option<String>,
    capacity: usize,
    on_store_loss: Option<StoreLoss>,
    recovery: Option<Recovery>,
    /// What the configuration says about `serve`.
    pub(crate) serve: Serve,
    /// And about Kafka.
    pub(crate) kafka: Kafka,
    /// And about files.
    pub(crate) files: Files,
    /// And about databases, by name.
    pub(crate) databases: BTreeMap<String, String>,
    /// `milepost`, and the flags that a next command needs to mean the same store or server.
    program: String,
}

/// Where the secret is; read only when a server is asked.
#[derive(Debug)]
enum Token {
    Environment,
    File(PathBuf),
}

impl Context {
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let config = Config::load(global.config.as_deref())?;
        set_colors(global.color.or(config.color).unwrap_or_default());
        if global.store.is_some() && global.server.is_some() {
            return Err(Failure::new(Exit::Usage, "--store and --server cannot be used together")
                .help("a server has a store of its own"));
        }
        let server = server(global, &config);
        let token = match (&global.token_file, variable("MILEPOST_TOKEN"), &config.token_file) {
            (Some(file), _, _) | (None, None, Some(file)) => Some(Token::File(file.clone())),
            (None, Some(_), _) => Some(Token::Environment),
            (None, None, None) => None,
        };
        let url = global.store.clone().or_else(|| variable("MILEPOST_STORE")).or(config.store);
        let mut program = "milepost".to_owned();
        if let Some(store) = &global.store {
            program.push_str(&format!(" --store {}", as_typed(store)));
        }
        if let Some(server) = &global.server {
            program.push_str(&format!(" --server {}", shell(server)));
        }
        if let Some(file) = &global.token_file {
            program.push_str(&format!(" --token-file {}", shell(&file.to_string_lossy())));
        }
        if let Some(config) = &global.config {
            program.push_str(&format!(" --config {}", shell(&config.to_string_lossy())));
        }
        Ok(Self {
            json: global.json,
            quiet: global.quiet,
            store: url,
            store_by_flag: global.store.is_some(),
            server,
            server_by_flag: global.server.is_some(),
            token,
            node: config.node,
            capacity: config.capacity.unwrap_or(DEFAULT_CAPACITY),
            on_store_loss: config.on_store_loss,
            recovery: config.recovery,
            serve: config.serve,
            kafka: config.kafka,
            files: config.files,
            databases: config.databases,
            program,
        })
    }

    /// Where answers come from: the server if one is meant, else the store.
    pub(crate) fn source(&self) -> Result<Box<dyn Source>, Failure> {
        Ok(match self.client()? {
            Some(client) => Box::new(Remote::new(client)),
            None => Box::new(Local::new(self.store()?, self.recovery(None))),
        })
    }

    /// The way to the server, if one is meant.
    pub(crate) fn client(&self) -> Result<Option<Client>, Failure> {
        let Some(url) = &self.server else { return Ok(None) };
        let client = Client::new(url)?;
        Ok(Some(match &self.token {
            Some(token) => client.token(&token.read()?)?,
            None => client,
        }))
    }

    /// For what is done here, in a store: never through a server.
    pub(crate) fn store(&self) -> Result<StoreUrl, Failure> {
        self.named_store()?.map_or_else(|| StoreUrl::parse(DEFAULT_URL), Ok)
    }

    /// The store, if somebody named one.
    pub(crate) fn named_store(&self) -> Result<Option<StoreUrl>, Failure> {
        if self.server_by_flag {
            return Err(Failure::new(Exit::Usage, "this is done here, on a store, and not by a server")
                .help("leave --server out")
                .help(format!("`{}` hands a plan to the server", self.command("submit FILE"))));
        }
        let store = self.store.as_deref().map(StoreUrl::parse).transpose()?;
        if self.store_by_flag && store.as_ref().is_some_and(StoreUrl::has_password) {
            tracing::warn!(
                "other users of this machine see the password on a command line; MILEPOST_STORE keeps it from them"
            );
        }
        Ok(store)
    }

    /// What to type to do this: `here` on a store, `there` on a server.
    pub(crate) fn command_here_or_there(&self, here: &str, there: &str) -> String {
        self.command(if self.server.is_some() { there } else { here })
    }

    /// What to type to do this, in this store or on this server.
    pub(crate) fn command(&self, rest: &str) -> String {
        format!("{} {rest}", self.program)
    }

    /// A node's name tells in the log who ran what.
    pub(crate) fn node(&self, named: Option<String>) -> Arc<str> {
        let own = || format!("{}-{}", operator::host(), std::process::id());
        named.or_else(|| self.node.clone()).unwrap_or_else(own).into()
    }

    /// What the node of this process does while its store is away.
    pub(crate) fn on_store_loss(&self, named: Option<StoreLoss>) -> OnStoreLoss {
        named.or(self.on_store_loss).map(OnStoreLoss::from).unwrap_or_default()
    }

    /// Who decides, when all nodes were gone, about plans that do not say.
    pub(crate) fn recovery(&self, named: Option<Recovery>) -> milepost_core::plan::Recovery {
        named.or(self.recovery).map(Into::into).unwrap_or_default()
    }

    /// Tasks in hand at once.
    pub(crate) fn capacity(&self, max_concurrency: u32) -> usize {
        usize::try_from(max_concurrency).unwrap_or(usize::MAX).clamp(1, self.capacity)
    }

    /// Tasks in hand at once, of all plans together.
    pub(crate) fn capacity_of_all(&self) -> usize {
        self.capacity
    }

    pub(crate) fn by(&self, why: Option<String>) -> By {
        By { who: operator::name(), why }
    }
}

impl Token {
    fn read(&self) -> Result<String, Failure> {
        let (text, place) = match self {
            Token::Environment => (variable("MILEPOST_TOKEN").unwrap_or_default(), "MILEPOST_TOKEN".to_owned()),
            Token::File(path) => {
                let unreadable = |error| {
                    Failure::new(Exit::Usage, format!("cannot read the token file {}: {error}", path.display()))
                };
                (std::fs::read_to_string(path).map_err(unreadable)?, path.display().to_string())
            }
        };
        let token = text.trim();
        if token.is_empty() {
            return Err(Failure::new(Exit::Usage, format!("there is no token in {place}")));
        }
        Ok(token.to_owned())
    }
}

/// How a next command names the store. One with a password is better kept in a variable than shown, or typed.
fn as_typed(store: &str) -> String {
    if redacted(store) == store { shell(store) } else { "\"$MILEPOST_STORE\"".to_owned() }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Flags before the environment before the file; whoever names a store names no server.
fn server(global: &Global, config: &Config) -> Option<String> {
    if global.server.is_some() || global.store.is_some() {
        return global.server.clone();
    }
    match (variable("MILEPOST_SERVER"), variable("MILEPOST_STORE")) {
        (Some(server), _) => Some(server),
        (None, Some(_)) => None,
        (None, None) => config.server.clone(),
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
