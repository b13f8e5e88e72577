//! What others write into names and failures stays one value: no line, no field, no colour and no tag comes of it.

use serde_json::Value;

use crate::support::World;

/// A line break with a forged line behind it, an escape sequence, a tag, quotes and a formula.
const EVIL: &str =
    r#"first\r\n2026-01-01T00:00:00Z ERROR forged line\n\033[31mred\007 <script>alert(1)</script> "quoted", =cmd()"#;

#[test]
fn a_failure_with_line_breaks_and_escapes_forges_nothing_in_logs_answers_and_metrics() {
    let world = World::new();
    let plan = format!(
        "plan: p\ndefaults: {{ retry: {{ max_attempts: 1 }} }}\nstages:\n  - name: fails\n    run: |\n      printf '{EVIL}' >&2\n      exit 3\ntasks:\n  - {{ id: t, tenant: acme }}\n"
    );
    world.file("p.yaml", &plan);
    let served = world.serve(&["--allow-commands", "--log-format", "json", "-v"]);
    let server = ["--server", &served.url];
    let watched = world.milepost(&[&["submit", "p.yaml", "--watch"][..], &server].concat()).must_exit(1);
    let mut said = vec![watched.said()];
    for command in [&["status", "p"][..], &["status", "t"], &["events", "t"], &["explain", "t"], &["watch", "p"]] {
        said.push(world.milepost(&[command, &server].concat()).said());
        let json = world.milepost(&[command, &server, &["--json"]].concat()).stdout;
        for document in serde_json::Deserializer::from_str(&json).into_iter::<Value>() {
            document.unwrap_or_else(|error| panic!("{command:?}: {error}: {json}"));
        }
        said.push(json);
    }
    let task = served.get("/tasks/t");
    assert!(task.to_string().contains("<script>"), "what failed is told whole: {task}");
    let (status, metrics) = served.ask("GET", "/metrics", None);
    assert_eq!(status, 200);
    assert!(!metrics.contains("forged") && !metrics.contains("script"), "{metrics}");
    let log = served.stop().stderr;
    for line in log.lines().filter(|line| line.starts_with('{')) {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    said.push(log);
    for said in said {
        assert!(!said.contains('\u{1b}') && !said.contains('\u{7}'), "an escape comes through: {said:?}");
        assert!(!said.lines().any(|line| line.starts_with("2026-01-01T00:00:00Z ERROR")), "a line is forged: {said}");
    }
}

#[test]
fn an_id_that_would_be_markup_or_a_line_is_refused_and_a_tenant_stays_one_value() {
    let world = World::new();
    let check = |field: &str, name: &str| {
        let other = if field == "id" { "" } else { ", id: t" };
        let task = format!("{{ {field}: \"{name}\"{other} }}");
        world.file("p.yaml", &format!("plan: p\nstages: [{{ name: s, uses: noop }}]\ntasks: [{task}]\n"));
        world.milepost(&["check", "p.yaml"]).code
    };
    for name in ["<b>t</b>", r#"a\"b"#, r"a\nb", "a,b", "=cmd()", r"a\u001b[31m"] {
        assert_eq!(check("id", name), 2, "{name}");
    }
    for name in [r"a\nb", r"a\u001b[31m"] {
        assert_eq!(check("tenant", name), 2, "{name}");
    }
    // Tenants are other people's names, whatever can be printed.
    assert_eq!(check("tenant", r#"<b>, \"=cmd()"#), 0);
    world.good(&["run", "p.yaml"]);
    assert_eq!(world.json(&["status", "t"])["tenantId"], r#"<b>, "=cmd()"#);
}
