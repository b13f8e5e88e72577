//! The examples do what they say, each in an empty folder.

use std::path::PathBuf;
use std::process::Command;

/// Cargo builds examples with all the tests, in a folder beside theirs; asked for one test alone, it does not.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("tests lie in `deps`, beside `examples`");
    let example = folder.join("examples").join(name);
    if !example.exists() {
        let build = ["build", "--offline", "--package", "milepost", "--example", name];
        let built = Command::new(env!("CARGO")).args(build).status().expect("cargo");
        assert!(built.success(), "the example {name} does not build");
    }
    example
}

fn runs(name: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    // Twice: what was done the first time is not done again.
    for _ in 0..2 {
        let ran = Command::new(example(name)).current_dir(folder.path()).output().expect("a program");
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn order_saga_runs_in_an_empty_folder() {
    runs("order_saga");
}

#[test]
fn approval_runs_in_an_empty_folder() {
    runs("approval");
}

#[test]
fn fan_out_runs_in_an_empty_folder() {
    runs("fan_out");
}

#[test]
fn long_sleep_runs_in_an_empty_folder() {
    runs("long_sleep");
}

#[test]
fn served_runs_in_an_empty_folder() {
    runs("served");
}
