//! `run`: a plan from a file to its end, and the same plan again.

use crate::support::{World, gated, wait_for};

fn example(name: &str) -> String {
    let path = format!("{}/../../examples/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_quickstart_completes_and_a_second_run_has_nothing_left_to_do() {
    let world = World::new();
    world.file("quickstart.yaml", &example("quickstart"));
    world.good(&["run", "quickstart.yaml"]).must_say(&[
        "plan quickstart COMPLETED",
        "6 tasks (6 completed)",
        "attempt 2",
    ]);
    world.good(&["run", "quickstart.yaml"]).must_say(&["nothing left to do"]);
    let logs = world.good(&["logs", "city-2", "--stage", "announce"]);
    assert_eq!(logs.stdout, "city-2 is done, receipt Lagos-15\n");
}

#[test]
fn every_example_is_a_good_plan_with_a_name() {
    let world = World::new();
    for name in ["quickstart", "deploy", "dag"] {
        world.file("plan.yaml", &example(name));
        assert_eq!(world.json(&["check", "plan.yaml"])["planId"], name);
    }
}

#[test]
fn stages_of_a_dag_run_as_their_needs_allow_and_skip_what_their_condition_excludes() {
    let world = World::new();
    world.file("dag.yaml", &example("dag"));
    world.good(&["run", "dag.yaml"]);
    let stages = world.json(&["status", "dag-2"]);
    let docs = stages["stages"].as_array().unwrap().iter().find(|stage| stage["name"] == "docs").unwrap();
    assert_eq!(docs["status"], "SKIPPED");
    assert_eq!(world.good(&["logs", "dag-1"]).stdout, "packaged linux-amd64-4f2a91\n");
}

#[test]
fn other_content_is_refused_naming_the_difference_and_update_takes_it() {
    let world = World::new();
    let plan = |tasks: &str| format!("plan: p\nstages: [{{ name: a, uses: noop }}]\ntasks: [{tasks}]\n");
    world.file("p.yaml", &plan("{ id: one }, { id: two }"));
    world.good(&["run", "p.yaml"]);
    world.file("p.yaml", &plan("{ id: two }, { id: three }"));
    world.milepost(&["run", "p.yaml"]).must_exit(2).must_say(&[
        "exists with other content",
        "one",
        "milepost run p.yaml --update",
    ]);
    world.good(&["run", "p.yaml", "--update"]).must_say(&["1 task added, 1 task removed", "2 tasks (2 completed)"]);
    world.milepost(&["status", "one"]).must_exit(4);
}

#[test]
fn a_task_id_that_another_plan_has_is_refused() {
    let world = World::new();
    for plan in ["p", "q"] {
        world.file(
            &format!("{plan}.yaml"),
            &format!("plan: {plan}\nstages: [{{ name: a, uses: noop }}]\ntasks: [{{ id: t }}]\n"),
        );
    }
    world.good(&["run", "p.yaml"]);
    world.milepost(&["run", "q.yaml"]).must_exit(2).must_say(&["task id `t` is taken by plan p"]);
}

#[test]
fn a_plan_without_a_name_is_a_new_plan_each_time() {
    let world = World::new();
    world.file("p.yaml", "stages: [{ name: a, uses: noop }]\ntasks: [{}]\n");
    world.good(&["run", "p.yaml"]);
    world.good(&["run", "p.yaml"]);
    let plans = world.json(&["status"]);
    let ids: Vec<&str> =
        plans["items"].as_array().unwrap().iter().map(|plan| plan["planId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.iter().all(|id| id.starts_with("plan-")) && ids[0] != ids[1], "{ids:?}");
}

#[test]
fn a_plan_can_come_from_stdin() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    world.file("go", "");
    let mut command = world.command(&["run", "-"]);
    command.stdin(std::fs::File::open(world.path().join("p.yaml")).unwrap());
    world.start_command(command).end().must_exit(0);
}

#[test]
fn a_second_run_on_the_same_file_is_refused_and_names_the_first() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    world.file("q.yaml", "plan: q\nstages: [{ name: a, uses: noop }]\ntasks: [{ id: u }]\n");
    let first = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    let pid = first.pid().to_string();
    world.milepost(&["run", "q.yaml"]).must_exit(3).must_say(&[&pid]);
    // By another name it is still the same file.
    std::os::unix::fs::symlink("milepost.db", world.path().join("other.db")).unwrap();
    world.milepost(&["run", "q.yaml", "--store", "sqlite:other.db"]).must_exit(3).must_say(&[&pid]);
    world.file("go", "");
    first.end().must_exit(0);
    world.good(&["run", "q.yaml"]);
}

#[test]
fn run_works_on_its_own_plan_only() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    world.file("q.yaml", "plan: q\nstages: [{ name: a, uses: noop }]\ntasks: [{ id: u }]\n");
    let first = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    first.signal(rustix::process::Signal::KILL);
    first.end();
    world.good(&["run", "q.yaml"]);
    let task = world.json(&["status", "t"]);
    assert_eq!((&task["status"], &task["interrupted"]), (&"RUNNING".into(), &true.into()));
}

#[test]
fn a_run_that_only_waits_for_a_tenant_nobody_works_on_says_so_and_ends() {
    let world = World::new();
    let with_tenant = |plan: &str, task: &str| {
        gated(plan, &[task]).replace(&format!("{{ id: {task} }}"), &format!("{{ id: {task}, tenant: x }}"))
    };
    world.file("p.yaml", &with_tenant("p", "t"));
    world.file("q.yaml", &with_tenant("q", "u"));
    let first = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    first.signal(rustix::process::Signal::KILL);
    first.end();
    world
        .milepost(&["run", "q.yaml"])
        .must_exit(1)
        .must_say(&["task u waits for p:t, which nobody runs now", "milepost cancel t"]);
    world.good(&["cancel", "t"]);
    world.file("go", "");
    world.good(&["run", "q.yaml"]);
}

#[test]
fn progress_of_a_running_stage_is_seen_from_outside() {
    let world = World::new();
    world.file(
        "p.yaml",
        "plan: p\nstages:\n  - name: a\n    run: |\n      echo '1 4' >> \"$MILEPOST_PROGRESS\"\n      while [ ! -e go ]; do sleep 0.02; done\ntasks: [{ id: t }]\n",
    );
    let run = world.start(&["run", "p.yaml"]);
    wait_for("a quarter", || {
        (world.milepost(&["status", "t", "--json"]).stdout.contains("\"percent\": 25.0")).then_some(())
    });
    world.file("go", "");
    run.end().must_exit(0);
}

#[test]
fn a_large_plan_does_not_fill_the_log_with_a_line_for_each_task() {
    let world = World::new();
    let tasks: String = (0..150).map(|number| format!("  - {{ id: t{number} }}\n")).collect();
    world.file("p.yaml", &format!("plan: p\nstages: [{{ name: a, uses: noop }}]\ntasks:\n{tasks}"));
    let run = world.good(&["run", "p.yaml"]);
    assert!(run.stderr.lines().count() <= 2, "{}", run.stderr);
}

#[test]
fn a_quiet_run_that_completes_says_nothing() {
    let world = World::new();
    world.file("p.yaml", "plan: p\nstages: [{ name: a, uses: noop }]\ntasks: [{ id: t }]\n");
    assert_eq!(world.good(&["run", "p.yaml", "-q"]).said(), "");
}

#[test]
fn how_far_a_running_stage_is_can_be_asked_from_another_process_and_watched() {
    let world = World::new();
    let wait = |file: &str| format!("until [ -e {file} ]; do sleep 0.05; done");
    let say = |done: u32| format!("echo '{done} 1000' >> \"$MILEPOST_PROGRESS\"");
    // What is watched takes a second at least, so that there is something to measure.
    let stage = [say(0), wait("more"), "sleep 1".to_owned(), say(500), wait("go")].join("; ");
    world.file(
        "p.yaml",
        &format!("plan: p\nstages:\n  - name: copy\n    run: |\n      {stage}\ntasks: [{{ id: t }}]\n"),
    );
    let run = world.start(&["run", "p.yaml"]);
    let progress = || world.status("t").map(|_| world.json(&["status", "t"])["progress"].clone());
    wait_for("a task that says how far it is", || progress().filter(|said| said["done"] == 0));
    let watch = world.start(&["watch", "p", "--json"]);
    let seen = |what: &str| std::fs::read_to_string(watch.stdout_file()).ok().filter(|told| told.contains(what));
    wait_for("a watcher", || seen("snapshot"));
    world.file("more", "");
    wait_for("a task that is half done", || progress().filter(|said| said["done"] == 500));
    world.good(&["status", "p"]).must_say(&["500/1000  50.0%"]);
    world.good(&["status", "t"]).must_say(&["500/1000  50.0%"]);
    assert_eq!(world.json(&["status", "t"])["progress"], serde_json::json!({ "done": 500, "total": 1000 }));
    // It went from 0 to 500 before the watcher's eyes.
    wait_for("a watcher that knows how fast it goes", || seen(r#""done":500,"total":1000,"rate":"#));
    world.file("go", "");
    run.end().must_exit(0);
    watch.end().must_exit(0);
}
