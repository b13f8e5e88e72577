//! Plan files, bad ones and good ones, as a person would write them.

use milepost_core::id::{PlanId, Tenant};
use milepost_core::plan::spec::PlanSpec;
use milepost_core::plan::{
    ParseOptions, Plan, PlanDefinition, PlanError, PlanErrors, Settings, TaskDefinition, WorkflowRef, parse,
};
use milepost_core::retry::RetryPolicy;
use milepost_core::time::Millis;
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

/// Only what grows far faster than its file takes so long, on any machine.
const BLOWN_UP: std::time::Duration = std::time::Duration::from_secs(60);

fn read(source: &[u8]) -> Result<Plan, PlanErrors> {
    let known = |uses: &str, with: &Value| match uses {
        "run" | "http" | "noop" => Ok(()),
        "sleep" if with.get("for").is_some() => Ok(()),
        "sleep" => Err("`sleep` needs `with: { for: <duration> }`".to_owned()),
        other => Err(format!("there is no stage kind `{other}`")),
    };
    let options = ParseOptions {
        check_action: &known,
        max_bytes: 1024 * 1024,
        ..ParseOptions::new("plan.yaml", PlanId::parse("plan-new").unwrap())
    };
    parse(source, &options)
}

fn good(source: &str) -> Plan {
    read(source.as_bytes()).unwrap_or_else(|errors| panic!("{errors}\nin\n{source}"))
}

/// A plan around the lines of its only stage.
fn stage(lines: &str) -> String {
    format!("tasks: [{{id: t}}]\nstages:\n  - name: a\n{lines}")
}

/// A plan around its tasks.
fn tasks(lines: &str) -> String {
    format!("plan: p\nstages: [{{name: a, uses: noop}}]\ntasks:\n{lines}")
}

/// A plan around its stages.
fn stages(lines: &str) -> String {
    format!("tasks: [{{id: t}}]\nstages:\n{lines}")
}

/// A plan around a setting of its own.
fn setting(lines: &str) -> String {
    format!("{lines}tasks: [{{id: t}}]\nstages: [{{name: a, uses: noop}}]\n")
}

/// A plan around its workflow.
fn workflow(workflow: &str, lines: &str) -> String {
    format!("workflow: {workflow}\n{lines}tasks: [{{id: t}}]\n")
}

/// What is wrong, the file with `«` where the error is to point, and a part of the message.
fn bad_files() -> Vec<(&'static str, String, &'static str)> {
    let long = "x".repeat(129);
    vec![
        // The text of the file.
        ("empty", "«".into(), "has no plan in it"),
        ("only comments", "«# nothing\n# here\n".into(), "has no plan in it"),
        ("only a document mark", "«---\n".into(), "has no plan in it"),
        ("a text", "«hello\n".into(), "expected a map"),
        ("a list", "«- a\n- b\n".into(), "expected a map"),
        ("a number", "«42\n".into(), "expected a map"),
        ("two documents", "tasks: []\n«---\ntasks: []\n".into(), "a second document"),
        ("a tab", "tasks:\n\t«- id: a\n".into(), "tab"),
        ("an open bracket", "tasks: «[{id: a}\n".into(), "not valid YAML"),
        ("an open quote", "plan: \"abc«\n".into(), "not valid YAML"),
        ("an odd indent", "tasks:\n  - id: a\n «- id: b\n".into(), "not valid YAML"),
        ("json with a missing comma", "{\"plan\": \"a\"\n «\"tasks\": []}".into(), "not valid YAML"),
        ("a directive", "«%YAML 1.2\n---\ntasks: []\n".into(), "not valid YAML"),
        ("NUL", "plan: a«\0b\n".into(), "control character 0x00"),
        ("a control character", "plan: a«\u{1}b\n".into(), "control character 0x01"),
        ("a tag", "plan: «!secret abc\n".into(), "YAML tags"),
        ("a core tag", "plan: «!!str 12\n".into(), "YAML tags"),
        ("a tag on a list", "tasks: «!foo []\n".into(), "YAML tags"),
        ("a duplicate key", "plan: a\nrecovery: auto\n«plan: b\n".into(), "duplicate key `plan`"),
        ("a duplicate key in a stage", stage("    run: a\n    «run: b\n"), "duplicate key `run`"),
        ("a duplicate key in json", "{\"plan\": \"a\", «\"plan\": \"b\"}".into(), "duplicate key `plan`"),
        ("a duplicate key in input", tasks("  - {id: a, input: {x: 1, «x: 2}}\n"), "duplicate key `x`"),
        ("a list as a key", "? «[a]\n: b\n".into(), "a key must be text"),
        ("no key", "«: b\n".into(), "a key must be text"),
        ("an unquoted template", stage("    uses: noop\n    with: {a: {«{ tenant }}}\n"), "a key must be text"),
        ("an unknown alias", "plan: «*id\n".into(), "anchor"),
        ("an alias in itself", "tasks: &t [«*t]\n".into(), "inside the value that it refers to"),
        ("NaN", setting("max_concurrency: «.nan\n"), "no number that JSON can hold"),
        ("infinity", tasks("  - {id: a, input: «-.inf}\n"), "no number that JSON can hold"),
        ("a number too large", tasks("  - {id: a, input: «99999999999999999999}\n"), "no number that JSON can hold"),
        ("a bad merge", stage("    <<: «7\n    uses: noop\n"), "`<<` takes a map"),
        // Keys.
        ("an unknown key of the plan", setting("«task: []\n"), "unknown key `task`"),
        ("an unknown key of defaults", setting("defaults: {«timeouts: 5m}\n"), "unknown key `timeouts`"),
        ("an unknown key of a stage", stage("    uses: noop\n    «retires: {}\n"), "unknown key `retires`"),
        ("an unknown key of retry", stage("    uses: noop\n    retry: {«attempts: 3}\n"), "unknown key `attempts`"),
        ("an unknown key of default retry", setting("defaults: {retry: {«delay: 3s}}\n"), "unknown key `delay`"),
        ("an unknown key of http", stage("    http: {url: 'http://a', «verb: GET}\n"), "unknown key `verb`"),
        ("an unknown key of expect", stage("    http: {url: 'http://a', expect: {«code: 1}}\n"), "unknown key `code`"),
        (
            "an unknown key of rollback",
            stage("    uses: noop\n    rollback: {run: a, «timeout: 5m}\n"),
            "unknown key `timeout`",
        ),
        ("an unknown key of a task", tasks("  - {id: a, «tennant: x}\n"), "unknown key `tennant`"),
        ("a key in the wrong case", setting("«Plan: a\n"), "unknown key `Plan`"),
        // Settings.
        ("a bad plan id", setting("plan: «a/b\n"), "may not contain '/'"),
        ("an empty plan id", setting("plan: «''\n"), "plan id is empty"),
        ("a plan id too long", setting(&format!("plan: «{long}\n")), "has 129 characters"),
        ("a number as plan id", setting("plan: «2025\n"), "expected text, found the number `2025`"),
        ("no concurrency", setting("max_concurrency: «0\n"), "a whole number from 1 to 100000"),
        ("too much concurrency", setting("max_concurrency: «100001\n"), "a whole number from 1 to 100000"),
        ("half a concurrency", setting("max_concurrency: «2.5\n"), "a whole number"),
        ("a text as concurrency", setting("max_concurrency: «\"5\"\n"), "a whole number"),
        ("an unknown recovery", setting("recovery: «automatic\n"), "expected `auto` or `manual`"),
        ("an unknown on_tenant_conflict", setting("on_tenant_conflict: «fail\n"), "expected `wait` or `refuse`"),
        ("an unknown on_task_failure", setting("on_task_failure: «stop\n"), "expected `continue` or `pause`"),
        ("an unknown on_failure", setting("on_failure: «continue\n"), "expected `stop` or `rollback`"),
        (
            "an unknown on_invalid_checkpoint",
            setting("on_invalid_checkpoint: «ignore\n"),
            "expected `restart` or `block`",
        ),
        ("an unknown trigger", setting("trigger: «cron\n"), "expected `start` or `message`"),
        ("a boolean as trigger", setting("trigger: «true\n"), "expected `start` or `message`, found the boolean"),
        ("a bad task_timeout", setting("task_timeout: «30 minutes\n"), "is not a duration"),
        ("a number as duration", setting("task_timeout: «30\n"), "expected a duration"),
        ("no time for a task", setting("task_timeout: «0s\n"), "longer than nothing"),
        ("a list as defaults", setting("defaults: «[]\n"), "expected a map, found a list"),
        ("rollback without a handler", setting("on_failure: «rollback\n"), "no stage has a `rollback`"),
        // Stages.
        ("stages that are no list", stages("  «a: b\n"), "expected a list, found a map"),
        ("a stage that is no map", stages("  - «push\n"), "expected a map, found the text \"push\""),
        ("a stage without a name", stages("  - «uses: noop\n"), "the stage has no `name`"),
        ("a bad stage name", stages("  - {name: «a b, uses: noop}\n"), "stage name `a b` may not contain ' '"),
        (
            "a second stage of the name",
            stages("  - {name: a, uses: noop}\n  - {name: «a, uses: noop}\n"),
            "a second stage is named `a`",
        ),
        ("nothing to do", stages("  - «name: a\n"), "does not say what to do"),
        ("both run and http", stage("    run: x\n    «http: {url: 'http://a'}\n"), "both `run` and `http`"),
        ("both run and uses", stage("    «uses: noop\n    run: x\n"), "both `run` and `uses`"),
        ("an empty command", stage("    run: «'  '\n"), "the command is empty"),
        ("a list as command", stage("    run: «[ls, -l]\n"), "expected text, found a list"),
        ("env beside http", stage("    http: {url: 'http://a'}\n    «env: {A: b}\n"), "`env` belongs to `run`"),
        ("with beside run", stage("    run: x\n    «with: {a: b}\n"), "`with` belongs to `uses`"),
        ("with without uses", stages("  - «name: a\n    with: {a: b}\n"), "does not say what to do"),
        ("a bad variable", stage("    run: x\n    env: {«A-B: c}\n"), "cannot be the name of a variable"),
        (
            "a variable that starts with a digit",
            stage("    run: x\n    env: {«1A: c}\n"),
            "cannot be the name of a variable",
        ),
        ("a variable of ours", stage("    run: x\n    env: {«MILEPOST_TASK: c}\n"), "is set by Milepost itself"),
        ("a number as variable", stage("    run: x\n    env: {A: «1}\n"), "expected text, found the number `1`"),
        ("no url", stage("    http: «{method: GET}\n"), "has no `url`"),
        ("an empty url", stage("    http: {url: «''}\n"), "is no URL"),
        ("another scheme", stage("    http: {url: «'ftp://a/b'}\n"), "is no URL"),
        ("an url without a scheme", stage("    http: {url: «localhost:80/x}\n"), "is no URL"),
        ("an unknown method", stage("    http: {url: 'http://a', method: «FETCH}\n"), "unknown method `FETCH`"),
        ("a status out of range", stage("    http: {url: 'http://a', expect: {status: «99}}\n"), "from 100 to 599"),
        ("a text as status", stage("    http: {url: 'http://a', expect: {status: [200, «2xx]}}\n"), "from 100 to 599"),
        (
            "a bad header",
            stage("    http: {url: 'http://a', headers: {«'a b': c}}\n"),
            "cannot be the name of a header",
        ),
        ("a number as header", stage("    http: {url: 'http://a', headers: {A: «5}}\n"), "expected text"),
        ("an unknown stage kind", stage("    uses: «nope\n"), "there is no stage kind `nope`"),
        ("bad parameters of a kind", stage("    uses: «sleep\n    with: {}\n"), "`sleep` needs"),
        ("uses of run", stage("    uses: «run\n"), "`run` has a key of its own"),
        ("a list as parameters", stage("    uses: noop\n    with: «[a]\n"), "expected a map, found a list"),
        (
            "a rollback that does nothing",
            stage("    uses: noop\n    rollback: «{}\n"),
            "the rollback does not say what to do",
        ),
        (
            "a rollback that does two things",
            stage("    uses: noop\n    rollback: {run: a, «uses: noop}\n"),
            "both `run` and `uses`",
        ),
        ("a text as rollback", stage("    uses: noop\n    rollback: «./undo.sh\n"), "expected a map"),
        ("a bad timeout", stage("    uses: noop\n    timeout: «5min\n"), "`5min` is not a duration"),
        ("no timeout", stage("    uses: noop\n    timeout: «0ms\n"), "longer than nothing"),
        // Retry.
        ("no attempts", stage("    uses: noop\n    retry: {max_attempts: «0}\n"), "a whole number from 1"),
        (
            "a negative number of attempts",
            stage("    uses: noop\n    retry: {max_attempts: «-1}\n"),
            "a whole number from 1",
        ),
        (
            "an unknown strategy",
            stage("    uses: noop\n    retry: {strategy: «exponentail}\n"),
            "expected `fixed`, `linear` or `exponential`",
        ),
        ("a number as base", stage("    uses: noop\n    retry: {base: «1}\n"), "expected a duration"),
        (
            "a shrinking multiplier",
            stage("    uses: noop\n    retry: {multiplier: «0.5}\n"),
            "a number of at least 1.0",
        ),
        ("a text as jitter", stage("    uses: noop\n    retry: {jitter: «yes}\n"), "`true` or `false`"),
        ("a bad max", stage("    uses: noop\n    retry: {max: «1 m}\n"), "is not a duration"),
        (
            "a fatal exit code too large",
            stage("    run: x\n    retry: {fatal_exit_codes: [1, «256]}\n"),
            "from 1 to 255",
        ),
        ("the skip code as fatal", stage("    run: x\n    retry: {fatal_exit_codes: [«77]}\n"), "77 means"),
        (
            "one fatal exit code without a list",
            stage("    run: x\n    retry: {fatal_exit_codes: «1}\n"),
            "expected a list",
        ),
        // Needs.
        (
            "a stage that is not there",
            stages("  - {name: push, uses: noop}\n  - {name: b, uses: noop, needs: [«psh]}\n"),
            "there is no stage `psh`",
        ),
        ("a need of itself", stages("  - {name: a, uses: noop, needs: [«a]}\n"), "cannot wait for itself"),
        (
            "a need twice",
            stages("  - {name: a, uses: noop}\n  - {name: b, uses: noop, needs: [a, «a]}\n"),
            "named twice",
        ),
        (
            "a text as needs",
            stages("  - {name: a, uses: noop}\n  - {name: b, uses: noop, needs: «a}\n"),
            "a list of stage names",
        ),
        ("needs without a value", stage("    uses: noop\n    «needs:\n"), "a list of stage names"),
        (
            "a cycle of two",
            stages("  - {name: a, uses: noop, needs: [«b]}\n  - {name: b, uses: noop}\n"),
            "a -> b -> a",
        ),
        (
            "a cycle of three",
            stages(
                "  - {name: z, uses: noop}\n  - {name: a, uses: noop, needs: [z, «c]}\n  - {name: b, uses: noop, needs: [a]}\n  - {name: c, uses: noop}\n",
            ),
            "a -> c -> b -> a",
        ),
        // Templates.
        ("an open template", stage("    run: x\n    env: {A: «\"{{ tenant\"}\n"), "without `}}`"),
        (
            "a bad template",
            stage("    uses: noop\n    with: {a: [{b: «\"{{ 1 + }}\"}]}\n"),
            "bad template: syntax error",
        ),
        ("a statement", stage("    run: x\n    env: {A: «\"{% if tenant %}b{% endif %}\"}\n"), "not supported"),
        ("an unknown filter", stage("    http: {url: «\"http://a/{{ tenant | nope }}\"}\n"), "unknown filter `nope`"),
        (
            "an unknown name",
            stage("    http: {url: 'http://a', body: {x: «\"{{ tennant }}\"}}\n"),
            "unknown name `tennant`",
        ),
        ("a bad expression", stage("    uses: noop\n    if: «input.x ==\n"), "bad expression"),
        ("an unknown name in an expression", stage("    uses: noop\n    if: «inputs.x\n"), "unknown name `inputs`"),
        ("a boolean as expression", stage("    uses: noop\n    if: «true\n"), "expected text"),
        (
            "outputs of no stage",
            stage("    uses: noop\n    with: {x: «\"{{ stages.b.outputs.y }}\"}\n"),
            "there is no stage `b`",
        ),
        ("outputs of itself", stage("    uses: noop\n    if: «stages.a.outputs.x\n"), "cannot read its own outputs"),
        (
            "outputs of a stage that may not have ended",
            stages("  - {name: a, uses: noop}\n  - {name: b, uses: noop, needs: [], if: «\"stages['a'].outputs.x\"}\n"),
            "may not have ended",
        ),
        (
            "a hyphen without brackets",
            stages("  - {name: a-b, uses: noop}\n  - {name: c, uses: noop, if: «stages.a-b.outputs.x}\n"),
            "there is no stage `a` to read outputs from",
        ),
        (
            "more than outputs",
            stages("  - {name: a, uses: noop}\n  - {name: c, uses: noop, if: «stages.a.status == 'x'}\n"),
            "`outputs` and nothing else",
        ),
        (
            "a bad template in a rollback",
            stage("    uses: noop\n    rollback: {run: x, env: {A: «\"{{ }}\"}}\n"),
            "the expression is empty",
        ),
        // Tasks.
        ("no tasks key", "«stages: [{name: a, uses: noop}]\n".into(), "the plan has no tasks"),
        ("tasks without a value", "stages: [{name: a, uses: noop}]\n«tasks:\n".into(), "the plan has no tasks"),
        ("an empty list of tasks", "stages: [{name: a, uses: noop}]\ntasks: «[]\n".into(), "the plan has no tasks"),
        ("a number of tasks", tasks("  «5\n"), "expected a list, found the number `5`"),
        ("a task that is no map", tasks("  - «a\n"), "expected a map"),
        ("a bad task id", tasks("  - id: «../a\n"), "task id `../a` may not contain '.'"),
        ("a task id too long", tasks(&format!("  - id: «{long}\n")), "has 129 characters"),
        ("the same task id", tasks("  - id: a\n  - id: b\n  - id: «a\n"), "two tasks have the id `a`"),
        ("a clash with a generated id", tasks("  - {id: «p-2}\n  - {}\n"), "two tasks have the id `p-2`"),
        (
            "a generated id too long",
            format!("plan: {}\nstages: [{{name: a, uses: noop}}]\ntasks:\n  - «{{}}\n", "x".repeat(127)),
            "has 129 characters",
        ),
        ("a tenant with a control character", tasks("  - {id: a, tenant: «\"x\\ny\"}\n"), "control characters"),
        ("a tenant too long", tasks(&format!("  - {{id: a, tenant: «{}}}\n", "é".repeat(129))), "tenant has 258 bytes"),
        ("a tenant that is a number", tasks("  - {id: a, tenant: «001}\n"), "expected text"),
        ("an empty tenant", tasks("  - {id: a, tenant: «''}\n"), "tenant is empty"),
        ("a text as priority", tasks("  - {id: a, priority: «high}\n"), "a whole number"),
        ("a priority too large", tasks("  - {id: a, priority: «2147483648}\n"), "a whole number"),
        ("no stages anywhere", "tasks:\n  - «id: a\n".into(), "no stages, and neither has the plan"),
        (
            "a bad stage of a task",
            tasks("  - {id: a, stages: [{name: x, uses: noop, «tiemout: 5s}]}\n"),
            "unknown key `tiemout`",
        ),
        ("a matrix without keys", tasks("  - matrix: «{}\n"), "has no keys"),
        ("a matrix key without values", tasks("  - matrix: {tenant: [a], region: «[]}\n"), "makes no tasks"),
        ("a matrix that is a list", tasks("  - matrix: «[a]\n"), "expected a map"),
        ("a matrix key that is a text", tasks("  - matrix: {tenant: «a}\n"), "expected a list"),
        ("a map as tenant", tasks("  - matrix: {tenant: [a, «{b: c}]}\n"), "expected text"),
        ("a file that is no map", tasks("  - {id: t, file: «'s3://b/k'}\n"), "expected a map"),
        ("a file without a uri", tasks("  - {id: t, file: «{name: x}}\n"), "the file has no `uri`"),
        ("a file that is no uri", tasks("  - {id: t, file: {uri: «/etc/passwd}}\n"), "is no uri of a file"),
        ("a file of another scheme", tasks("  - {id: t, file: {uri: «'ftp://h/x'}}\n"), "not fetched from `ftp:`"),
        ("a file of another host", tasks("  - {id: t, file: {uri: «'file://h/x'}}\n"), "by its whole path"),
        ("a bucket without a key", tasks("  - {id: t, file: {uri: «'s3://b'}}\n"), "its bucket and its key"),
        ("a url without a host", tasks("  - {id: t, file: {uri: «'https:///x'}}\n"), "names no host"),
        ("a uri with a blank", tasks("  - {id: t, file: {uri: «'s3://b/a b'}}\n"), "`%20`"),
        ("a file with a negative size", tasks("  - {id: t, file: {uri: 's3://b/k', size: «-1}}\n"), "a whole number"),
        ("a short checksum", tasks("  - {id: t, file: {uri: 's3://b/k', sha256: «'abc'}}\n"), "64 hexadecimal digits"),
        ("a path as name", tasks("  - {id: t, file: {uri: 's3://b/k', name: «a/b}}\n"), "no `/`"),
        ("an unknown key of a file", tasks("  - {id: t, file: {uri: 's3://b/k', «etag: x}}\n"), "unknown key `etag`"),
        (
            "a file of a matrix that is none for one task",
            tasks("  - {file: {uri: «'{{ matrix.u }}'}, matrix: {u: ['s3://b/k', x]}}\n"),
            "is no uri of a file",
        ),
        ("a file that reads outputs", tasks("  - {id: t, file: {uri: «'{{ stages.a.outputs.u }}'}}\n"), "bad template"),
        (
            "a workflow with a file",
            "workflow: w\ntasks:\n  - {id: t, file: «{uri: 's3://b/k'}}\n".to_owned(),
            "its plan has a `workflow`",
        ),
        ("an id for many", tasks("  - {id: «x, matrix: {tenant: [a, b]}}\n"), "one id for 2 tasks"),
        ("two tenants", tasks("  - {tenant: «x, matrix: {tenant: [a, b]}}\n"), "given here and in `matrix`"),
        (
            "a matrix that makes too many",
            tasks(&format!(
                "  - «matrix: {{a: {n}, b: {n}, c: {n}, d: {n}, e: {n}, f: {n}, g: {n}}}\n",
                n = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
            )),
            "more than 1000000 tasks",
        ),
        // Workflows.
        ("stages beside a workflow", setting("workflow: w\n").replace("stages", "«stages"), "has no `stages`"),
        ("defaults beside a workflow", workflow("w", "«defaults: {timeout: 5s}\n"), "has no `defaults`"),
        ("on_failure beside a workflow", workflow("w", "«on_failure: rollback\n"), "has no `on_failure`"),
        ("a workflow without a name", workflow("«{version: 2}", ""), "has no name"),
        ("an empty workflow", workflow("«''", ""), "cannot be the name of a workflow"),
        ("a workflow with a line break", workflow("{name: «\"a\\nb\"}", ""), "cannot be the name of a workflow"),
        ("a number as workflow", workflow("«7", ""), "expected the name of a workflow"),
        ("a list as workflow", workflow("«[w]", ""), "expected the name of a workflow"),
        ("an unknown key of a workflow", workflow("{name: w, «verison: 2}", ""), "unknown key `verison`"),
        ("a version that is none", workflow("{name: w, version: «two}", ""), "a whole number from 0"),
        ("a version below nothing", workflow("{name: w, version: «-1}", ""), "a whole number from 0"),
        ("no tasks for a workflow", "«workflow: w\n".into(), "has no tasks"),
        (
            "stages of a workflow's task",
            "workflow: w\ntasks: [{id: a, stages: «[{name: x, uses: noop}]}]\n".into(),
            "has stages, and its plan has a `workflow`",
        ),
        (
            "a matrix that a workflow does not see",
            "workflow: w\ntasks: [{matrix: {tenant: [a], «region: [eu]}}]\n".into(),
            "does not see `region`",
        ),
    ]
}

fn first(errors: &PlanErrors) -> &PlanError {
    errors.errors.first().expect("a refused file has an error")
}

#[test]
fn every_bad_file_is_refused_with_its_place_and_a_reason() {
    let mut wrong = Vec::new();
    for (name, marked, fragment) in bad_files() {
        let at = marked.find('«').unwrap_or_else(|| panic!("{name}: no mark"));
        let line = marked[..at].matches('\n').count() + 1;
        let column = marked[..at].chars().rev().take_while(|c| *c != '\n').count() + 1;
        let source = marked.replacen('«', "", 1);
        match read(source.as_bytes()) {
            Ok(_) => wrong.push(format!("{name}: accepted")),
            Err(errors) => {
                let error = first(&errors);
                if (error.line, error.column) != (line, column) || !error.message.contains(fragment) {
                    wrong.push(format!("{name}: expected {line}:{column} {fragment:?}\n{errors}"));
                }
                assert!(errors.errors.iter().all(|error| error.line >= 1 && error.column >= 1), "{name}: {errors:?}");
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn files_that_are_no_text_or_too_much_are_refused() {
    let rows = [
        ("not UTF-8", b"plan: a\nrecovery: \xff\xfe\n".to_vec(), (2, 11), "byte 0xff at offset 18"),
        ("Latin-1", b"plan: a\n# caf\xe9\n".to_vec(), (2, 6), "byte 0xe9 at offset 13"),
        ("UTF-16", b"\xff\xfep\0l\0a\0n\0".to_vec(), (1, 1), "not UTF-8"),
        ("too large", vec![b'#'; 1024 * 1024 + 1], (1, 1), "at most 1048576 are allowed"),
        ("deep lists", b"[".repeat(100_000), (1, 66), "nested too deeply"),
        ("deep maps", b"{a: ".repeat(100_000), (1, 261), "nested too deeply"),
        ("deep blocks", b"- ".repeat(100_000), (1, 129), "nested too deeply"),
        (
            "deep input",
            tasks(&format!("  - {{id: a, input: {}}}\n", "[".repeat(200))).into_bytes(),
            (4, 84),
            "nested too deeply",
        ),
        ("an alias bomb", alias_bomb(), (6, 20), "aliases of this file"),
        ("binary", b"\x7fELF\x02\x01\x01\0\0\0".to_vec(), (1, 1), "control character"),
    ];
    for (name, source, (line, column), fragment) in rows {
        let before = std::time::Instant::now();
        let errors = read(&source).expect_err(name);
        let error = first(&errors);
        assert!(error.message.contains(fragment), "{name}: {errors}");
        assert_eq!((error.line, error.column), (line, column), "{name}: {errors}");
        assert!(before.elapsed() < BLOWN_UP, "{name}: {:?}", before.elapsed());
    }
}

fn alias_bomb() -> Vec<u8> {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..20 {
        bomb.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", ")));
    }
    bomb.into_bytes()
}

#[test]
fn all_mistakes_of_a_file_are_listed_at_once_in_its_order() {
    let source = "
plan: a b
max_concurrency: 0
stages:
  - name: push
    run: ''
    retires: 3
  - name: verify
    needs: [psh]
    http: { url: nowhere, method: FETCH }
tasks:
  - { id: x, priority: high }
  - { id: x }
";
    let errors = read(source.as_bytes()).unwrap_err();
    let places: Vec<(usize, &str)> = errors.errors.iter().map(|error| (error.line, error.path.as_str())).collect();
    assert_eq!(
        places,
        [
            (2, "plan"),
            (3, "max_concurrency"),
            (6, "stages[0].run"),
            (7, "stages[0].retires"),
            (9, "stages[1].needs[0]"),
            (10, "stages[1].http.url"),
            (10, "stages[1].http.method"),
            (12, "tasks[0].priority"),
        ]
    );
    let shown = errors.to_string();
    assert!(shown.contains("plan.yaml:7:5: unknown key `retires`\n"), "{shown}");
    assert!(shown.contains("7 |     retires: 3\n  |     ^\n"), "{shown}");
    assert!(shown.contains("did you mean `retry`?"), "{shown}");
    assert!(shown.contains("did you mean `push`?"), "{shown}");
}

#[test]
fn a_million_mistakes_make_a_short_message() {
    let source = tasks(&"  - {id: a/b}\n".repeat(50_000));
    let errors = read(source.as_bytes()).unwrap_err();
    assert_eq!((errors.errors.len(), errors.more), (20, 49_980));
    assert!(errors.to_string().len() < 10_000);
}

#[test]
fn a_file_made_to_be_slow_is_read_quickly() {
    let many = |prefix: &str| (0..20_000).map(|i| format!("{prefix}{i}: 1, ")).collect::<String>();
    let rows = [
        ("unknown keys", format!("{{{}}}", many("unknown_key_"))),
        ("merged keys", tasks(&format!("  - input: &a {{{}}}\n  - input: {{{}<<: *a}}\n", many("a"), many("b")))),
        ("long needs", stages(&format!("  - {{name: a, uses: noop, needs: [{}]}}\n", "b, ".repeat(100_000)))),
        ("long templates", stage(&format!("    run: x\n    env: {{A: \"{}\"}}\n", "{{ input }}".repeat(50_000)))),
        ("an open template", stage(&format!("    run: x\n    env: {{A: \"{}\"}}\n", "{{ ".repeat(100_000)))),
        ("open quotes", "'".repeat(100_001)),
        ("one long line", format!("plan: {}", "a ".repeat(400_000))),
        ("many anchors", (0..20_000).map(|i| format!("- &a{i} x\n")).collect()),
    ];
    for (name, source) in rows {
        let before = std::time::Instant::now();
        let _ = read(source.as_bytes()).map_err(|errors| errors.to_string());
        assert!(before.elapsed() < BLOWN_UP, "{name}: {:?}", before.elapsed());
    }
}

/// The example of the documentation.
const EXAMPLE: &str = r#"# yaml-language-server: $schema=milepost.schema.json
plan: deploy-2025-11        # the id; left out: plan-<uuidv7>
max_concurrency: 5          # tasks of this plan at once, default 10
recovery: manual            # auto (default): a lost node's tasks go on by themselves; manual: a person decides
on_tenant_conflict: wait    # wait (default): stays PENDING, says blockedBy; refuse: the plan is not accepted
on_task_failure: continue   # what the plan does: continue (default) | pause
on_failure: stop            # what the failed task does: stop (default) | rollback
on_invalid_checkpoint: restart   # restart (default) | block
trigger: start              # start (default) | message (Kafka)
task_timeout: 30m           # a whole task, default none
defaults:                   # for every stage that does not say otherwise
  timeout: 5m
  retry: { max_attempts: 4, strategy: exponential, base: 1s, multiplier: 2.0, max: 1m, jitter: true }
stages:                     # used by every task that has none of its own
  - name: push
    run: ./push.sh "$MILEPOST_TENANT"
    rollback: { run: ./undo.sh "$MILEPOST_TENANT" }
  - name: verify
    needs: [push]           # left out: the stage before it; needs: [] starts at once (a DAG)
    http: { method: GET, url: "http://127.0.0.1:9000/health/{{ tenant }}", expect: { status: 200 } }
    retry: { max_attempts: 10, strategy: fixed, base: 3s }
tasks:
  - { id: task-1, tenant: tenant-001, priority: 0, input: { version: "1.2.3" } }
  - matrix: { tenant: [tenant-002, tenant-003] }   # one task each
"#;

#[test]
fn the_example_of_the_documentation_means_what_it_says() {
    let plan = good(EXAMPLE);
    let default_retry = json!({"max_attempts": 4, "strategy": "exponential", "base": 1000, "multiplier": 2.0, "max": 60_000, "jitter": true});
    assert_eq!(
        json!(plan.definition),
        json!({
            "id": "deploy-2025-11",
            "max_concurrency": 5,
            "recovery": "manual",
            "on_tenant_conflict": "wait",
            "on_task_failure": "continue",
            "on_failure": "stop",
            "on_invalid_checkpoint": "restart",
            "trigger": "start",
            "task_timeout": 1_800_000,
            "stages": [
                {
                    "name": "push",
                    "uses": "run",
                    "script": "./push.sh \"$MILEPOST_TENANT\"",
                    "retry": default_retry,
                    "timeout": 300_000,
                    "rollback": {"uses": "run", "script": "./undo.sh \"$MILEPOST_TENANT\""},
                },
                {
                    "name": "verify",
                    "uses": "http",
                    "with": {
                        "method": "GET",
                        "url": "http://127.0.0.1:9000/health/{{ tenant }}",
                        "expect": {"status": [200]},
                    },
                    "needs": [0],
                    "retry": {"max_attempts": 10, "strategy": "fixed", "base": 3000, "multiplier": 2.0, "max": 60_000, "jitter": true},
                    "timeout": 300_000,
                },
            ],
        })
    );
    assert_eq!(
        json!(plan.tasks),
        json!([
            {"id": "task-1", "tenant": "tenant-001", "input": {"version": "1.2.3"}},
            {"id": "deploy-2025-11-2", "tenant": "tenant-002"},
            {"id": "deploy-2025-11-3", "tenant": "tenant-003"},
        ])
    );
}

#[test]
fn a_json_file_reads_as_the_same_plan_as_its_yaml() {
    let yaml: Value = serde_saphyr::from_str(EXAMPLE).unwrap();
    for json in [yaml.to_string(), serde_json::to_string_pretty(&yaml).unwrap(), with_tabs(&yaml)] {
        assert_eq!(good(&json), good(EXAMPLE));
    }
    let spec: PlanSpec = serde_json::from_value(yaml).unwrap();
    assert_eq!(good(&serde_json::to_string(&spec).unwrap()), good(EXAMPLE));
}

fn with_tabs(value: &Value) -> String {
    let mut written = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut written, formatter)).unwrap();
    String::from_utf8(written).unwrap()
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_accepted() {
    let windows = format!("\u{feff}{}", EXAMPLE.replace('\n', "\r\n"));
    assert_eq!(good(&windows), good(EXAMPLE));
    let errors = read(windows.replace("needs: [push]", "needs: [pusj]").as_bytes()).unwrap_err();
    assert_eq!((first(&errors).line, first(&errors).column), (19, 13));
    let errors = read("\u{feff}plan: -a\r\ntasks: [{}]\r\n".as_bytes()).unwrap_err();
    assert_eq!((first(&errors).line, first(&errors).column), (1, 7));
}

#[test]
fn what_a_plan_leaves_out_has_its_documented_default() {
    let plan = good("tasks: [{}]\nstages: [{name: a, run: 'true'}]\n");
    assert_eq!(plan.definition.id.as_str(), "plan-new");
    assert_eq!(plan.tasks[0].id.as_str(), "plan-new-1");
    assert_eq!(plan.definition.settings, Settings::default());
    let stage = &plan.definition.stages[0];
    assert_eq!(stage.timeout, Some(Millis::from_secs(300)));
    assert_eq!(stage.retry, RetryPolicy::default());
    assert_eq!((stage.needs.as_slice(), &stage.condition, &stage.rollback), ([].as_slice(), &None, &None));
}

#[test]
fn a_stage_replaces_only_those_defaults_that_it_names() {
    let plan = good(
        "
defaults: { timeout: 1m, retry: { base: 5s, jitter: false, fatal_exit_codes: [3] } }
stages:
  - { name: a, uses: noop }
  - { name: b, uses: noop, timeout: 2s, retry: { base: 1s } }
tasks:
  - id: t
    stages: [{ name: c, uses: noop, retry: { max_attempts: 1 } }]
",
    );
    let [a, b] = &*plan.definition.stages else { panic!("two stages") };
    let c = &plan.tasks[0].stages.as_ref().unwrap()[0];
    let of_plan =
        RetryPolicy { base: Millis::from_secs(5), jitter: false, fatal_exit_codes: vec![3], ..RetryPolicy::default() };
    assert_eq!((a.timeout, &a.retry), (Some(Millis::from_secs(60)), &of_plan));
    assert_eq!(b.timeout, Some(Millis::from_secs(2)));
    assert_eq!(b.retry, RetryPolicy { base: Millis::from_secs(1), ..of_plan.clone() });
    assert_eq!(c.retry, RetryPolicy { max_attempts: 1, ..of_plan });
}

#[test]
fn a_stage_waits_for_the_one_before_it_unless_it_says_otherwise() {
    let plan = good(&stages(
        "  - {name: a, uses: noop}\n  - {name: b, uses: noop}\n  - {name: c, uses: noop, needs: []}\n  - {name: d, uses: noop, needs: [b, c]}\n  - {name: e, uses: noop, needs: [f]}\n  - {name: f, uses: noop, needs: [d]}\n",
    ));
    let needs: Vec<&[usize]> = plan.definition.stages.iter().map(|stage| stage.needs.as_slice()).collect();
    assert_eq!(needs, [&[][..], &[0], &[], &[1, 2], &[5], &[3]]);
}

#[test]
fn a_matrix_is_a_cross_product_in_which_the_last_key_varies_fastest() {
    let plan = good(&tasks(
        "  - {id: first}\n  - matrix: {region: [eu, us], tenant: [a, 007, true], n: [1, {x: y}]}\n    priority: 3\n    input: {v: 1}\n",
    ));
    let made: Vec<(&str, Option<&str>, String)> = plan.tasks[1..]
        .iter()
        .map(|task| (task.id.as_str(), task.tenant.as_ref().map(Tenant::as_str), json!(task.matrix).to_string()))
        .collect();
    assert_eq!(made.len(), 12);
    assert_eq!(made[0], ("p-2", Some("a"), r#"{"region":"eu","n":1}"#.to_owned()));
    assert_eq!(made[1], ("p-3", Some("a"), r#"{"region":"eu","n":{"x":"y"}}"#.to_owned()));
    assert_eq!(made[2], ("p-4", Some("007"), r#"{"region":"eu","n":1}"#.to_owned()));
    assert_eq!(made[5].1, Some("true"));
    assert_eq!(made[6], ("p-8", Some("a"), r#"{"region":"us","n":1}"#.to_owned()));
    assert!(plan.tasks[1..].iter().all(|task| task.priority == 3 && task.input == json!({"v": 1})));
    assert_eq!(good(&tasks("  - {id: one, matrix: {tenant: [a]}}\n")).tasks[0].id.as_str(), "one");
}

#[test]
fn a_task_has_the_file_that_its_plan_names_and_a_matrix_fills_it_in() {
    let sum = "AB".repeat(32);
    let plan = good(&tasks(&format!(
        "  - {{id: first, file: {{uri: 'https://h/a/b.pdf?x=1', size: 7, sha256: {sum}, content_type: a/b}}}}\n  \
         - {{file: {{uri: 's3://b/{{{{ matrix.n }}}}/{{{{ tenant }}}}.png', name: '{{{{ task }}}}'}}, matrix: {{n: [1, 2], tenant: [t]}}}}\n"
    )));
    let file = plan.tasks[0].file.as_ref().unwrap();
    assert_eq!((file.file_name(), file.size, file.sha256.as_deref()), ("b.pdf", Some(7), Some(&*"ab".repeat(32))));
    let made: Vec<(&str, &str)> = plan.tasks[1..]
        .iter()
        .map(|task| task.file.as_ref().map(|file| (&*file.uri, file.file_name())).unwrap())
        .collect();
    assert_eq!(made, [("s3://b/1/t.png", "p-2"), ("s3://b/2/t.png", "p-3")]);
    survives_storage(&plan);
}

#[test]
fn actions_of_every_kind_are_told_what_they_need() {
    let plan = good(&stages(
        r#"  - { name: a, run: "echo {{ not a template }}", env: { V: "{{ input.v }}", W: plain } }
  - { name: b-c, http: { url: "{{ input.base }}/x", body: { t: "{{ tenant }}" }, headers: { X-A: "1" }, expect: { status: [200, 204] } } }
  - { name: d, uses: sleep, with: { for: "{{ stages['b-c'].outputs.wait }}" }, if: "stages.a.outputs.go is defined",
      rollback: { uses: noop, with: { of: "{{ stages.d.outputs.x }}" } } }
  - { name: e, http: { url: "https://h/", method: delete } }
"#,
    ));
    let actions: Vec<Value> = plan.definition.stages.iter().map(|stage| json!(stage.action)).collect();
    assert_eq!(
        actions,
        [
            json!({"uses": "run", "script": "echo {{ not a template }}", "with": {"env": {"V": "{{ input.v }}", "W": "plain"}}}),
            json!({"uses": "http", "with": {"method": "POST", "url": "{{ input.base }}/x", "headers": {"X-A": "1"}, "body": {"t": "{{ tenant }}"}, "expect": {"status": [200, 204]}}}),
            json!({"uses": "sleep", "with": {"for": "{{ stages['b-c'].outputs.wait }}"}}),
            json!({"uses": "http", "with": {"method": "DELETE", "url": "https://h/"}}),
        ]
    );
}

#[test]
fn a_task_may_have_nothing_to_do_if_it_says_so() {
    let plan = good("tasks: [{id: a, stages: []}]\n");
    assert_eq!(plan.tasks[0].stages.as_deref(), Some(&[][..]));
}

#[test]
fn a_workflow_is_named_alone_or_with_its_version_and_its_tasks_have_no_stages() {
    for (written, version) in [("checkout", 1), ("{name: checkout}", 1), ("{name: checkout, version: 3}", 3)] {
        let plan = good(&format!(
            "plan: p\nmax_concurrency: 2\nrecovery: manual\ntask_timeout: 5m\nstages:\nworkflow: {written}\ntasks:\n  \
             - {{id: a, tenant: t, priority: 2, input: [1, {{x: y}}]}}\n  - {{matrix: {{tenant: [b, c]}}, input: 7}}\n"
        ));
        assert_eq!(plan.definition.workflow, Some(WorkflowRef { name: "checkout".into(), version }));
        assert!(plan.definition.stages.is_empty() && plan.tasks.iter().all(|task| task.stages.is_none()));
        assert_eq!(plan.definition.settings.task_timeout, Some(Millis::from_secs(300)));
        assert_eq!((plan.tasks[0].priority, &plan.tasks[0].input), (2, &json!([1, {"x": "y"}])));
        let others: Vec<_> = plan.tasks[1..].iter().map(|task| (task.id.as_str(), &task.input)).collect();
        assert_eq!(others, [("p-2", &json!(7)), ("p-3", &json!(7))]);
        survives_storage(&plan);
    }
}

#[test]
fn aliases_and_merge_keys_share_what_is_written_once() {
    let plan = good(
        "
stages:
  - &first { name: a, uses: noop, timeout: 7s }
  - { <<: *first, name: b }
tasks: [{id: t}]
",
    );
    assert_eq!(plan.definition.stages[1].timeout, Some(Millis::from_secs(7)));
    assert_eq!(plan.definition.stages[1].name.as_str(), "b");
}

#[test]
fn a_key_without_a_value_is_as_good_as_none() {
    let plan = good(
        "plan:\nrecovery: null\ntasks: [{id: t, tenant: ~, input: null}]\nstages: [{name: a, uses: noop, retry: }]\n",
    );
    assert_eq!(plan.definition.settings, Settings::default());
    assert_eq!(plan.tasks[0].tenant, None);
}

/// What the store keeps must come back as it was.
fn survives_storage(plan: &Plan) {
    let definition = serde_json::to_string(&plan.definition).unwrap();
    assert_eq!(serde_json::from_str::<PlanDefinition>(&definition).unwrap(), plan.definition);
    for task in &plan.tasks {
        let stored = serde_json::to_string(task).unwrap();
        assert_eq!(&serde_json::from_str::<TaskDefinition>(&stored).unwrap(), task);
    }
}

#[test]
fn the_deepest_file_that_is_accepted_can_be_stored() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    survives_storage(&good(&tasks(&format!("  - {{id: a, input: {}}}\n", deep(61)))));
    survives_storage(&good(&stage(&format!("    uses: noop\n    with: {{a: {}}}\n", deep(60)))));
    assert!(read(tasks(&format!("  - {{id: a, input: {}}}\n", deep(62))).as_bytes()).is_err());
}

fn any_spec() -> impl Strategy<Value = Value> {
    let name = "[A-Za-z0-9][A-Za-z0-9._-]{0,8}";
    let input = prop_oneof![
        Just(json!(null)),
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| json!(n)),
        any::<String>().prop_map(|text| json!({ "text": text })),
    ];
    let action = prop_oneof![
        Just(json!({"uses": "noop"})),
        "[a-z ]{0,5}x".prop_map(|run| json!({"run": run, "env": {"A": "{{ tenant }}"}})),
        (100..600_u16).prop_map(|status| json!({"http": {"url": "http://h", "expect": {"status": status}}})),
    ];
    let stage = (action, 1..100_u32, 1.0..1e6_f64, 1..10_000_u64, any::<bool>(), any::<bool>());
    let stage = stage.prop_map(|(mut stage, attempts, multiplier, timeout, jitter, roll)| {
        stage["retry"] = json!({"max_attempts": attempts, "multiplier": multiplier, "jitter": jitter});
        stage["timeout"] = json!(format!("{timeout}ms"));
        if roll {
            stage["rollback"] = json!({"run": "undo"});
            stage["needs"] = json!([]);
        }
        stage
    });
    let task = (name, proptest::option::of("\\PC{1,20}"), any::<i32>(), input);
    (name, proptest::collection::vec(stage, 0..6), proptest::collection::vec(task, 1..6)).prop_map(
        |(plan, stages, tasks)| {
            let stages: Vec<Value> = stages
                .into_iter()
                .enumerate()
                .map(|(i, mut stage)| {
                    stage["name"] = json!(format!("s{i}"));
                    stage
                })
                .collect();
            let tasks: Vec<Value> = tasks.into_iter().enumerate().map(|(i, (id, tenant, priority, input))| {
            json!({"id": format!("{id}{i}"), "tenant": tenant, "priority": priority, "input": input})
        }).collect();
            json!({"plan": plan, "stages": stages, "tasks": tasks})
        },
    )
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        check_any(&bytes);
    }

    #[test]
    fn no_text_of_yaml_marks_makes_the_reader_panic(text in "[-?:,\\[\\]{}#&*!|>'\"%@`<~ \\na-c0-9.]{0,120}") {
        check_any(text.as_bytes());
    }

    #[test]
    fn no_change_to_a_good_file_makes_the_reader_panic(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), 0..4_u8, any::<u8>()), 1..8)
    ) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for (at, change, byte) in changes {
            let at = at.index(bytes.len().max(1));
            if bytes.is_empty() {
                break;
            }
            match change {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                2 => bytes.insert(at, byte % 96 + 32),
                _ => bytes.truncate(at.max(1)),
            }
        }
        check_any(&bytes);
    }

    #[test]
    fn no_template_makes_the_check_panic(text in "[{}%'\"a-c.|\\[\\]()~ 0-9]{0,60}") {
        let _ = milepost_core::template::check_template(&text);
        let _ = milepost_core::template::check_expression(&text);
        let _ = milepost_core::template::render_value(&json!(text), &json!({"a": 1, "b": {"c": "x"}}));
    }

    #[test]
    fn a_plan_survives_storage(spec in any_spec()) {
        let plan = good(&spec.to_string());
        survives_storage(&plan);
        prop_assert_eq!(good(&serde_json::to_string_pretty(&spec).unwrap()), plan);
    }
}

/// A file is a plan that can be stored, or is refused with a place for every error.
fn check_any(bytes: &[u8]) {
    match read(bytes) {
        Ok(plan) => survives_storage(&plan),
        Err(errors) => {
            assert!(!errors.errors.is_empty());
            assert!(errors.errors.iter().all(|error| error.line >= 1 && error.column >= 1), "{errors:?}");
            assert!(!errors.to_string().is_empty());
        }
    }
}
