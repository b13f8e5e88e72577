//! Which kind a plan file means by which name.

use std::sync::Arc;

use milepost_engine::Registry;
use milepost_engine::stage::StageKind;

use crate::{
    ChecksumKind, CopyKind, CopyTableKind, Databases, DiskAccess, FileSettings, HttpKind, NodeFiles, NoopKind, RunKind,
    ThumbnailKind,
};

/// Every built-in kind under the name that plan files use. Those that write files reach none of this machine's own,
/// and copies no database; `with_files` and `with_databases` say which.
pub fn builtin() -> Vec<(&'static str, Arc<dyn StageKind>)> {
    let mut kinds: Vec<(&'static str, Arc<dyn StageKind>)> =
        vec![("run", Arc::new(RunKind::new())), ("http", Arc::new(HttpKind::new())), ("noop", Arc::new(NoopKind))];
    kinds.extend(file_kinds(&Arc::new(NodeFiles::new(FileSettings::default()))));
    kinds.push(("copy-table", copy_table(Databases::new(Default::default(), DiskAccess::Below(Vec::new())))));
    kinds
}

/// Stages find their tasks' files, and write others, through `files`.
pub fn with_files(registry: Registry, files: &Arc<NodeFiles>) -> Registry {
    let registry = registry.with_files(files.clone());
    file_kinds(files).into_iter().fold(registry, |registry, (name, kind)| registry.with(name, kind))
}

/// Stages copy tables from and to these.
pub fn with_databases(registry: Registry, databases: Databases) -> Registry {
    registry.with("copy-table", copy_table(databases))
}

fn copy_table(databases: Databases) -> Arc<dyn StageKind> {
    Arc::new(CopyTableKind::new(databases))
}

fn file_kinds(files: &Arc<NodeFiles>) -> Vec<(&'static str, Arc<dyn StageKind>)> {
    vec![
        ("file.checksum", Arc::new(ChecksumKind)),
        ("file.copy", Arc::new(CopyKind::copy(files.clone()))),
        ("file.rename", Arc::new(CopyKind::rename(files.clone()))),
        ("image.thumbnail", Arc::new(ThumbnailKind::new(files.clone()))),
    ]
}
