//! Files on this node: where they are brought to, and which of this machine's own files, and which databases, plans may
//! touch.

use std::path::PathBuf;
use std::sync::Arc;

use milepost_engine::Registry;
use milepost_stages::{Databases, DiskAccess, FileSettings, NodeFiles, with_databases, with_files};
use serde::Deserialize;

use crate::context::Context;
use crate::store_url::StoreUrl;

/// `[files]` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Files {
    /// Where files are brought to [default: beside the store's file, or the system's temporary folder].
    work_dir: Option<PathBuf>,
    /// The largest file that is fetched [default: 5 GiB].
    max_bytes: Option<u64>,
    /// Below these, plans that come over HTTP may read and write files of this machine.
    allowed_dirs: Vec<PathBuf>,
}

/// Whose plans run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Authors {
    /// People who can do here what they like.
    Trusted,
    /// Whoever may send plans, and may not run commands.
    Remote,
}

/// The registry of a node that fetches files and copies tables. Sweeps away what earlier ones left.
pub(crate) fn registry(
    context: &Context,
    registry: Registry,
    store: &StoreUrl,
    authors: Authors,
    allow_link_local: bool,
) -> Registry {
    let config = &context.files;
    let defaults = FileSettings::default();
    let beside_store = || store.file().map(|file| PathBuf::from(format!("{}-files", file.display())));
    let disk = match authors {
        Authors::Trusted => DiskAccess::Everywhere,
        Authors::Remote => DiskAccess::Below(config.allowed_dirs.clone()),
    };
    let databases = Databases::new(context.databases.clone(), disk.clone());
    let files = NodeFiles::new(FileSettings {
        work_dir: config.work_dir.clone().or_else(beside_store).unwrap_or(defaults.work_dir),
        max_bytes: config.max_bytes.unwrap_or(defaults.max_bytes),
        disk,
        allow_link_local,
    });
    files.sweep();
    with_databases(with_files(registry, &Arc::new(files)), databases)
}
