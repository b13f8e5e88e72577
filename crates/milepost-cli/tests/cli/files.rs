//! Files of tasks on a real node: whose files a plan may read, and what is left of them when the node dies.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::support::{World, wait_for};

#[test]
fn a_plan_that_comes_over_http_reads_files_only_below_the_folders_that_were_named() {
    let world = World::new();
    let at = |name: &str| world.path().join(name).display().to_string();
    fs::create_dir(at("open")).unwrap();
    world.file("open/a", "hello\n");
    world.file("secret", "hello\n");
    std::os::unix::fs::symlink(at("secret"), at("open/link")).unwrap();
    world.file("milepost.toml", &format!("[files]\nallowed_dirs = ['{}']\n", at("open")));
    let served = world.serve(&[]);
    let task = |id: &str, file: &str| format!("{{id: {id}, file: {{uri: 'file://{}'}}}}", at(file));
    let tasks = [task("fine", "open/a"), task("outside", "secret"), task("linked", "open/link")].join(", ");
    let plan = format!("{{plan: p, stages: [{{name: s, uses: file.checksum}}], tasks: [{tasks}]}}");
    served.post("/plans?start=true", "application/yaml", &plan);
    for (task, status) in [("fine", "COMPLETED"), ("outside", "FAILED"), ("linked", "FAILED")] {
        let found = wait_for(&format!("the end of {task}"), || {
            let found = served.get(&format!("/tasks/{task}"))["status"].as_str().unwrap().to_owned();
            (found == "COMPLETED" || found == "FAILED").then_some(found)
        });
        assert_eq!(found, status, "{task}");
    }
    served.stop();
}

#[test]
fn a_file_that_a_killed_node_had_is_swept_when_the_next_one_starts_and_is_fetched_again() {
    let world = World::new();
    world.file("data", "hello\n");
    let data = world.path().join("data").display().to_string();
    let wait = r#"echo "$MILEPOST_FILE" >> paths; cat "$MILEPOST_FILE" > seen; while ! [ -e go ]; do sleep 0.05; done"#;
    let plan =
        format!("plan: p\nstages: [{{name: s, run: '{wait}'}}]\ntasks: [{{id: t, file: {{uri: 'file://{data}'}}}}]\n");
    world.file("plan.yaml", &plan);
    let killed = world.start(&["run", "plan.yaml"]);
    world.wait_for_file("seen");
    killed.signal(Signal::KILL);
    killed.end();
    let first = PathBuf::from(world.read("paths").trim());
    assert!(first.is_absolute() && first.ends_with("data") && first.exists(), "{first:?}");

    world.file("go", "");
    world.good(&["run", "plan.yaml"]);
    assert_eq!(world.read("paths").lines().count(), 2);
    assert!(!first.exists(), "what the killed one had is gone");
    let second = PathBuf::from(world.read("paths").lines().last().unwrap());
    assert!(second != first && !second.exists(), "and so is what the second one had");
    let folders = fs::read_dir(Path::new(world.path()).join("milepost.db-files")).unwrap();
    let names: Vec<_> = folders.map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() <= 2, "its own empty folder at most, and the lock: {names:?}");
}
