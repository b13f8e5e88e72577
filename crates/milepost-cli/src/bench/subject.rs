//! The store that is measured: a file here, or a server's, in which every plan has a name of its own.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use milepost_engine::Options;
use milepost_store::Store;
use milepost_store::raw::Server;
use milepost_store::sqlite::{SqliteStore, raw};
use tempfile::TempDir;

use super::kind;
use crate::store_url::StoreUrl;

pub(super) struct Subject {
    url: StoreUrl,
    /// Gone afterwards, when nobody named a store.
    _scratch: Option<TempDir>,
}

/// The store at work, and what only a file can do.
#[derive(Clone)]
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    file: Option<Arc<SqliteStore>>,
}

/// What the same disk or server gives a bare loop, under way.
pub(super) enum Raw {
    Disk(Box<raw::Measurement>),
    Server(Server),
}

/// Rates per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawRates {
    /// A server's disk is its own affair.
    pub(super) fdatasyncs: Option<f64>,
    /// None where a bare client did not get in.
    pub(super) commits: Option<f64>,
    pub(super) stages: Option<f64>,
}

impl Subject {
    /// The store that was named, or a fresh file in the working directory.
    pub(super) fn new(named: Option<StoreUrl>) -> Result<Self> {
        if let Some(url) = named {
            return Ok(Self { url, _scratch: None });
        }
        let scratch =
            tempfile::Builder::new().prefix("milepost-bench-").tempdir_in(".").context("no folder for the store")?;
        let file = scratch.path().join("bench.db");
        let url = StoreUrl::parse(&format!("sqlite:{}", file.display()));
        let url = url.map_err(|failure| anyhow::anyhow!(failure.message))?;
        Ok(Self { url, _scratch: Some(scratch) })
    }

    pub(super) fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// Under the name of a node that is always the same: it takes the place of whoever had it before, at once.
    pub(super) async fn open(&self, options: &Options) -> Result<Opened> {
        match self.url.file() {
            Some(path) => {
                let file = Arc::new(SqliteStore::open(path)?);
                Ok(Opened { store: file.clone(), file: Some(file) })
            }
            None => match self.url.join(options).await {
                Ok(store) => Ok(Opened { store, file: None }),
                Err(error) => bail!(self.url.failure(error).message),
            },
        }
    }

    pub(super) fn raw(&self) -> Result<Raw> {
        let outputs = kind::result();
        match self.url.file() {
            Some(path) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let measurement = raw::Measurement::start(folder, outputs).map_err(|error| anyhow::anyhow!(error))?;
                Ok(Raw::Disk(Box::new(measurement)))
            }
            None => {
                let server = self.url.bare(outputs).context("it is a server")?;
                Ok(Raw::Server(server.map_err(|error| anyhow::anyhow!(error))?))
            }
        }
    }
}

impl Opened {
    /// As good as dead: what this process has in memory can never reach the store again. A server forgets a node when
    /// another one comes under its name.
    pub(super) fn cut_off(self) {
        if let Some(file) = self.file {
            file.close();
        }
    }
}

impl Raw {
    /// With as many stages at once as the benchmark had.
    pub(super) async fn finish(self, batch: usize) -> Result<RawRates> {
        match self {
            Raw::Disk(measurement) => {
                let rates = measurement.finish(batch).map_err(|error| anyhow::anyhow!(error))?;
                let (commits, stages) = (Some(rates.commits), Some(rates.stages));
                Ok(RawRates { fdatasyncs: Some(rates.fdatasyncs), commits, stages })
            }
            Raw::Server(server) => {
                let rates = server.measure(batch).await;
                if let Err(error) = &rates {
                    tracing::warn!(%error, "the bare server was not measured: there is nothing to compare with");
                }
                let rates = rates.ok();
                let (commits, stages) = (rates.map(|rates| rates.commits), rates.map(|rates| rates.stages));
                Ok(RawRates { fdatasyncs: None, commits, stages })
            }
        }
    }
}
