//! `serve`: the engine behind an HTTP API, until somebody stops it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::time::Millis;
use milepost_engine::{Engine, Options, Registry};
use milepost_server::{App, ServeError, Server, Settings, Tls, is_for_this_machine_alone};
use milepost_stages::HttpKind;
use milepost_store::Store;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{LogFormat, Recovery, StoreLoss};
use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome, chain};
use crate::files::{self, Authors};
use crate::kafka::{self, Kafka};
use crate::logging::Style;
use crate::output::{self, Data};
use crate::plan_file;
use crate::run::{join, listen};
use crate::signals::Signals;
use crate::socket::Listener;
use crate::store_url::StoreUrl;

const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";
const DEFAULT_DRAIN: Millis = Millis::from_secs(30);
/// Requests that are being answered when everything else has ended get this long.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 is any free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Let plans that come over HTTP run shell commands here
    #[arg(long)]
    allow_commands: bool,
    /// Let `http:` stages reach link-local and cloud metadata addresses
    #[arg(long)]
    allow_link_local: bool,
    /// The name of this node in the log [default: HOST-PID]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// What becomes of its tasks while the store is away [default: hold]
    #[arg(long, value_name = "WHAT")]
    on_store_loss: Option<StoreLoss>,
    /// Who decides, when all nodes were gone, about plans that do not say [default: auto]
    #[arg(long, value_name = "WHO")]
    recovery: Option<Recovery>,
    /// A certificate and its chain, in PEM form; then it speaks HTTPS. SIGHUP reads both files again
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM form
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Ask for a token on a loopback address as well; on any other it is always needed
    #[arg(long)]
    require_token: bool,
    /// Another name of this server, for callers without a token; may be given more than once
    #[arg(long = "allowed-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// Connections at once [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: Option<u32>,
    /// Requests a second of one caller [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
    /// Send traces to an OTLP collector, such as http://127.0.0.1:4318 [env: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// How the log is written
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Brokers to read messages from that set tasks off [default: none, or those of the configuration]
    #[arg(long, value_name = "HOST:PORT[,...]")]
    kafka: Option<String>,
    /// How long running stages may take to end when it is stopped [default: 30s]
    #[arg(long, value_name = "TIME")]
    drain_timeout: Option<Millis>,
}

impl Args {
    pub(crate) fn logging(&self, context: &Context) -> Style {
        let from_environment = || std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok().filter(|url| !url.is_empty());
        Style {
            format: self.log_format(context),
            serves: true,
            otlp: self.otlp.clone().or_else(from_environment).or_else(|| context.serve.otlp.clone()),
        }
    }

    fn log_format(&self, context: &Context) -> LogFormat {
        self.log_format.or(context.serve.log_format).unwrap_or_default()
    }

    fn settings(&self, context: &Context) -> Settings {
        let config = &context.serve;
        let defaults = Settings::default();
        let flag = |flag: bool, config: Option<bool>| flag || config.unwrap_or_default();
        let max_connections = self.max_connections.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        Settings {
            allow_commands: flag(self.allow_commands, config.allow_commands),
            require_token: flag(self.require_token, config.require_token),
            allowed_hosts: config.allowed_hosts.iter().chain(&self.allowed_hosts).cloned().collect(),
            max_connections: max_connections.or(config.max_connections).unwrap_or(defaults.max_connections),
            rate_limit: self.rate_limit.or(config.rate_limit),
            ..defaults
        }
    }

    fn tls(&self, context: &Context) -> Result<Option<Tls>, Failure> {
        let cert = self.tls_cert.as_ref().or(context.serve.tls_cert.as_ref());
        let key = self.tls_key.as_ref().or(context.serve.tls_key.as_ref());
        match (cert, key) {
            (Some(cert), Some(key)) => match Tls::load(cert, key) {
                Ok(tls) => Ok(Some(tls)),
                Err(error) => Err(Failure::new(Exit::Usage, chain(&error))),
            },
            (None, None) => Ok(None),
            (Some(_), None) => Err(Failure::new(Exit::Usage, "a certificate needs its key: give --tls-key as well")),
            (None, Some(_)) => Err(Failure::new(Exit::Usage, "a key needs its certificate: give --tls-cert as well")),
        }
    }

    fn drain_timeout(&self, context: &Context) -> Result<Duration, Failure> {
        let from_config = match &context.serve.drain_timeout {
            Some(text) => {
                let bad = |error| Failure::new(Exit::Usage, format!("`drain_timeout` of [serve]: {error}"));
                Some(text.parse::<Millis>().map_err(bad)?)
            }
            None => None,
        };
        Ok(self.drain_timeout.or(from_config).unwrap_or(DEFAULT_DRAIN).as_duration())
    }

    fn registry(&self, context: &Context, store: &StoreUrl, allow_commands: bool) -> Registry {
        let mut registry = plan_file::registry();
        let allow_link_local = self.allow_link_local || context.serve.allow_link_local.unwrap_or_default();
        if allow_link_local {
            registry = registry.with("http", Arc::new(HttpKind::new().allow_link_local()));
        }
        // Whoever may run commands here can read and write what this process can; nobody else has to be able to, and
        // who writes to a topic may be anybody.
        let by_message = self.kafka.is_some() || context.kafka.brokers.is_some();
        let authors = if allow_commands && !by_message { Authors::Trusted } else { Authors::Remote };
        files::registry(context, registry, store, authors, allow_link_local)
    }
}

pub(crate) async fn serve(context: &Context, args: Args) -> Outcome {
    let address = address(args.listen.as_deref().or(context.serve.listen.as_deref())).await?;
    let tls = args.tls(context)?;
    let drain_timeout = args.drain_timeout(context)?;
    let settings = args.settings(context);
    let url = context.store()?;
    let registry = args.registry(context, &url, settings.allow_commands);
    let kafka = kafka::wanted(args.kafka.as_deref(), &context.kafka, &registry)?;
    let mut options = Options::new(context.node(args.node.clone()));
    options.capacity = context.capacity_of_all();
    options.on_store_loss = context.on_store_loss(args.on_store_loss);
    options.recovery = context.recovery(args.recovery);
    if let Some(most) = context.kafka.concurrency {
        options.chains = most;
    }
    let store = join(&url, &options).await?;
    let settings = reachable(context, settings, &*store, address).await?;
    if tls.is_none() && !is_for_this_machine_alone(address) {
        tracing::warn!("tokens travel unencrypted: give --tls-cert and --tls-key, or put a proxy with TLS in front");
    }
    // Before anything runs, so that no signal finds it unprepared.
    let signals = Signals::listen()?;
    let node = options.node.clone();
    let engine = Engine::new(store, registry, options);
    let app = App::new(engine.clone(), settings);
    let server = Server::start_with(app.clone(), address, tls.clone()).await;
    let server = server.map_err(|error| {
        Failure::new(Exit::OutOfReach, chain(&error)).help("`--listen 127.0.0.1:0` takes any free port")
    })?;
    let listener = listen(&url, &engine);
    engine.start();
    let kafka = kafka.map(|wanted| kafka::start(wanted, &engine, &app)).transpose()?;
    let format = args.log_format(context);
    say_it_listens(context, format, &server, &node, &url);
    let serving = Serving { engine, app, server, listener, kafka, drain_timeout, format };
    serving.until_stopped(signals, tls).await
}

/// A server that does its work.
struct Serving {
    engine: Engine,
    app: App,
    server: Server,
    listener: Option<Listener>,
    kafka: Option<Arc<Kafka>>,
    drain_timeout: Duration,
    format: LogFormat,
}

impl Serving {
    async fn until_stopped(self, mut signals: Signals, tls: Option<Tls>) -> Outcome {
        tokio::select! {
            () = signals.next() => {}
            () = reload_on_hangup(tls) => {}
            why = self.engine.ousted() => {
                self.app.drain();
                self.leave().await;
                return Err(Failure::new(Exit::OutOfReach, why).help("give each node a name of its own, with --node"));
            }
        }
        self.app.drain();
        let format = self.format;
        say(format, "stopping after the running stages; press Ctrl-C again to stop now");
        let socket = self.listener.as_ref().map(|listener| listener.file().to_owned());
        tokio::select! {
            in_time = self.leave() => {
                if in_time {
                    return Ok(Exit::Done);
                }
                say(format, "some stages did not end in time; they will be repeated");
                // What hangs in them must not keep the process: it dies with it.
                leave_at_once(socket, Exit::Done)
            }
            () = signals.next() => {
                say(format, "stopped at once; the running stages will be repeated");
                leave_at_once(socket, Exit::Interrupted)
            }
        }
    }

    /// False when some stages did not end in time.
    async fn leave(self) -> bool {
        if let Some(listener) = self.listener {
            listener.close().await;
        }
        if let Some(kafka) = &self.kafka {
            kafka.stop_intake().await;
        }
        // Streams go on meanwhile: who watches sees how it ends.
        let stopped = self.engine.stop_within(self.drain_timeout).await;
        if let Some(kafka) = &self.kafka {
            kafka.close().await;
        }
        let answered = tokio::time::timeout(LAST_ANSWERS, self.server.close()).await;
        if answered.is_err() {
            tracing::warn!("some requests were cut off");
        }
        stopped
    }
}

/// What runs dies with this process; its attempts are repeated by the next one.
fn leave_at_once(socket: Option<PathBuf>, exit: Exit) -> ! {
    if let Some(socket) = socket {
        let _ = std::fs::remove_file(socket);
    }
    std::process::exit(exit as i32)
}

/// Never returns. Without TLS a SIGHUP ends the process, as it does any other.
async fn reload_on_hangup(tls: Option<Tls>) {
    let Some(tls) = tls else { return std::future::pending().await };
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return std::future::pending().await };
    while hangup.recv().await.is_some() {
        match tls.reload() {
            Ok(()) => tracing::info!("the certificate was read again"),
            Err(error) => {
                tracing::error!(error = chain(&error), "the certificate could not be read again; the old one stays");
            }
        }
    }
    std::future::pending::<()>().await;
}

async fn address(listen: Option<&str>) -> Result<SocketAddr, Failure> {
    let text = listen.unwrap_or(DEFAULT_ADDRESS);
    let bad = |why: String| {
        Failure::new(Exit::Usage, format!("cannot listen on `{text}`: {why}"))
            .help("give an address and a port, such as 127.0.0.1:8080 or [::1]:8080")
    };
    let found = tokio::net::lookup_host(text).await.map_err(|error| bad(error.to_string()));
    found?.next().ok_or_else(|| bad("this name has no address".to_owned()))
}

async fn reachable(
    context: &Context,
    settings: Settings,
    store: &dyn Store,
    address: SocketAddr,
) -> Result<Settings, Failure> {
    let now = milepost_engine::Clock::of(store).now();
    settings.for_address(address, store, now).await.map_err(|error| match error {
        ServeError::NoToken { .. } => {
            let create = context.command("token create ops --scope admin");
            Failure::new(Exit::Usage, error.to_string())
                .help(format!("`{create}` makes one; or listen on {DEFAULT_ADDRESS}, for this machine alone"))
        }
        ServeError::Store(error) => error.into(),
        ServeError::Bind { .. } => Failure::new(Exit::OutOfReach, chain(&error)),
    })
}

/// Whoever reads its log as JSON gets nothing else there.
fn say(format: LogFormat, line: &str) {
    match format {
        LogFormat::Text => output::message(line),
        LogFormat::Json => tracing::info!("{line}"),
    }
}

fn say_it_listens(context: &Context, format: LogFormat, server: &Server, node: &str, store: &StoreUrl) {
    if context.json {
        Data::new().json_line(&json!({ "listening": server.url() }));
    }
    if !context.quiet {
        let store = store.file().map_or_else(|| store.to_string(), |path| path.display().to_string());
        say(format, &format!("listening on {} (node {node}, store {store})", server.url()));
    }
}
