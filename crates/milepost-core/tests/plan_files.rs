//! Plan files, bad ones and good ones, as a person would write them.

use milepost_core::id::PlanId;
use milepost_core::plan::{ParseOptions, Plan, PlanError, PlanErrors, parse};
use serde_json::Value;

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
            "",
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
