//! Libraries in C that are loaded into the program under test, between it and the system.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The library of this name beside this file, compiled once; whoever built the program has a C compiler, because SQLite
/// is in it.
pub(crate) fn library(name: &'static str) -> PathBuf {
    static LIBRARIES: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    // A test that failed to compile it has said so, and the next finds nothing half done.
    let mut libraries = LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner);
    libraries.entry(name).or_insert_with(|| compile(name)).clone()
}

fn compile(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash").join(name).with_extension("c");
    // Beside the test itself. Moved there when it is whole: another run of the tests may be using the one it made.
    let library = std::env::current_exe().unwrap().with_extension(format!("{name}.so"));
    let unfinished = library.with_extension(std::process::id().to_string());
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"];
    let status = Command::new(compiler).args(flags).arg(&unfinished).arg(&source).arg("-ldl").status().unwrap();
    assert!(status.success(), "{} does not compile", source.display());
    std::fs::rename(&unfinished, &library).unwrap();
    library
}
