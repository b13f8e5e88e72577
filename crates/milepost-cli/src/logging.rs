//! What the engine has to say about itself: to stderr, without tearing progress bars; and its traces, for whoever
//! collects them.

use std::io::{self, Write};

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::config::LogFormat;
use crate::exit::{Exit, Failure};
use crate::output::beside_bars;

/// The spans that are worth a trace have this target, which no log filter lets through by itself.
const TRACED: &str = "milepost::trace";

/// How a command logs.
#[derive(Debug, Default)]
pub(crate) struct Style {
    pub(crate) format: LogFormat,
    /// It runs for long and on its own: information is told without being asked for.
    pub(crate) serves: bool,
    /// Where traces go: an OTLP collector's address.
    pub(crate) otlp: Option<String>,
}

/// Sends what is left of the traces when it is dropped, which must be after the runtime.
#[derive(Debug)]
pub(crate) struct Logging {
    traces: Option<SdkTracerProvider>,
}

impl Drop for Logging {
    fn drop(&mut self) {
        if let Some(traces) = &self.traces {
            // A collector that is away must not turn a good end into a bad one.
            let _ = traces.shutdown();
        }
    }
}

/// `RUST_LOG` rules when it is set; else `-v` and `-vv` say more, and `-q` says only errors.
pub(crate) fn start(style: Style, verbose: u8, quiet: bool) -> Result<Logging, Failure> {
    let level = match (quiet, verbose + u8::from(style.serves)) {
        (true, _) => "error",
        // Which tasks failed, such a command shows by itself.
        (false, 0) => "warn,milepost::failed=off",
        (false, 1) => "info",
        (false, 2) => "debug",
        // Also every event of every task.
        (false, _) => "debug,milepost_engine=trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let traces = style.otlp.as_deref().map(exporter).transpose()?;
    let layer = traces.as_ref().map(|traces| {
        let only = Targets::new().with_target(TRACED, LevelFilter::TRACE);
        tracing_opentelemetry::layer().with_tracer(traces.tracer("milepost")).with_filter(only)
    });
    let subscriber = Registry::default().with(layer).with(written(style.format).with_filter(filter));
    // A second call in one process would be refused, and the first one stands.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(Logging { traces })
}

fn written<S: Subscriber + for<'a> LookupSpan<'a>>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync> {
    match format {
        LogFormat::Text => Box::new(
            tracing_subscriber::fmt::layer()
                .with_writer(BesideBars)
                .with_ansi(console::colors_enabled_stderr())
                .with_target(false),
        ),
        LogFormat::Json => {
            Box::new(tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(BesideBars))
        }
    }
}

fn exporter(url: &str) -> Result<SdkTracerProvider, Failure> {
    let failed = |why: String| Failure::new(Exit::Usage, format!("traces cannot go to {url}: {why}"));
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        return Err(failed("expected an address such as http://127.0.0.1:4318".to_owned()));
    }
    // One provider for the whole process; whoever was first is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let endpoint = format!("{}/v1/traces", url.trim_end_matches('/'));
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).with_endpoint(endpoint);
    let exporter = exporter.build().map_err(|error| failed(error.to_string()))?;
    let resource = Resource::builder()
        .with_service_name("milepost")
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

#[derive(Debug, Clone, Copy)]
struct BesideBars;

impl<'a> MakeWriter<'a> for BesideBars {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for BesideBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        beside_bars(|| io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
