//! What a stage or its rollback does: `run`, `http` or `uses`, checked as far as it can be without running it.

use serde_json::{Map, Value, json};

use super::decode::{self, Fields};
use super::definition::Action;
use super::errors::{Path, Problems, suggest};
use super::node::{Entry, Kind, Node};
use super::parse::CheckAction;
use crate::template;

/// The keys that say what to do, in a stage as in a rollback.
pub(super) const ACTION_KEYS: [&str; 5] = ["run", "env", "http", "uses", "with"];
pub(super) const HTTP_KEYS: [&str; 5] = ["method", "url", "headers", "body", "expect"];
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/// The action of a stage or a rollback, which has exactly one.
pub(super) fn action(
    fields: &Fields<'_>,
    what: &str,
    check: CheckAction<'_>,
    problems: &mut Problems,
) -> Option<Action> {
    let given: Vec<&Entry> = ["run", "http", "uses"]
        .into_iter()
        .filter(|key| fields.get(key).is_some())
        .filter_map(|key| fields.entry(key))
        .collect();
    let [entry] = given.as_slice() else {
        match given.get(1) {
            Some(second) => problems.add(
                second.at as usize,
                &fields.path.key(&second.key),
                format!("{what} has both `{}` and `{}`", given[0].key, second.key),
            ),
            None => problems.add(fields.at, fields.path, format!("{what} does not say what to do")),
        }
        .help("expected exactly one of `run`, `http` or `uses`");
        return None;
    };
    refuse_beside(fields, "env", "run", &entry.key, problems);
    refuse_beside(fields, "with", "uses", &entry.key, problems);
    let path = fields.path.key(&entry.key);
    let action = match &*entry.key {
        "run" => run(&entry.value, &path, fields, problems),
        "http" => http(&entry.value, &path, problems),
        _ => uses(&entry.value, &path, fields, problems),
    }?;
    if let Err(message) = check(&action.uses, &action.with) {
        problems.add(entry.value.at(), &path, message);
    }
    Some(action)
}

fn refuse_beside(fields: &Fields<'_>, key: &str, belongs_to: &str, given: &str, problems: &mut Problems) {
    if let Some(entry) = fields.entry(key)
        && given != belongs_to
    {
        problems
            .add(
                entry.at as usize,
                &fields.path.key(key),
                format!("`{key}` belongs to `{belongs_to}`, not to `{given}`"),
            )
            .help(format!("remove `{key}`, or use `{belongs_to}`"));
    }
}

fn run(node: &Node, path: &Path<'_>, fields: &Fields<'_>, problems: &mut Problems) -> Option<Action> {
    let script = decode::text(node, path, problems)?;
    if script.trim().is_empty() {
        problems.add(node.at(), path, "the command is empty").help("expected a shell command");
    }
    let with = match fields.get("env") {
        Some(node) => json!({ "env": env(node, &fields.path.key("env"), problems)? }),
        None => Value::Null,
    };
    Some(Action { uses: "run".to_owned(), script: Some(script.to_owned()), with })
}

fn env(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<Map<String, Value>> {
    let mut env = Map::new();
    for entry in decode::map(node, path, problems)? {
        let path = path.key(&entry.key);
        let name = &*entry.key;
        let first = name.bytes().next();
        if !first.is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            problems
                .add(entry.at as usize, &path, format!("`{name}` cannot be the name of a variable"))
                .help("expected letters, digits and `_`, and no digit first");
        } else if name.starts_with("MILEPOST_") {
            problems
                .add(entry.at as usize, &path, format!("`{name}` is set by Milepost itself"))
                .help("choose a name that does not start with `MILEPOST_`");
        }
        if let Some(value) = decode::text(&entry.value, &path, problems) {
            env.insert(name.to_owned(), Value::String(value.to_owned()));
        }
    }
    Some(env)
}

fn http(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<Action> {
    let fields = Fields::open(node, path, &HTTP_KEYS, problems)?;
    let before = problems.count();
    let body = fields.get("body").map(Node::to_value);
    let mut with = Map::new();
    let default_method = if body.is_some() { "POST" } else { "GET" };
    let method = fields.get("method").map_or(Some(default_method), |node| method(node, &path.key("method"), problems));
    with.insert("method".to_owned(), json!(method));
    match fields.get("url") {
        Some(node) => with.insert("url".to_owned(), json!(url(node, &path.key("url"), problems))),
        None => {
            problems.add(fields.at, path, "`http` has no `url`").help("expected `url: https://...`");
            None
        }
    };
    if let Some(node) = fields.get("headers") {
        with.insert("headers".to_owned(), Value::Object(headers(node, &path.key("headers"), problems)));
    }
    if let Some(body) = body {
        with.insert("body".to_owned(), body);
    }
    if let Some(node) = fields.get("expect") {
        let path = path.key("expect");
        let status = Fields::open(node, &path, &["status"], problems).and_then(|expect| expect.get("status"));
        if let Some(status) = status {
            with.insert("expect".to_owned(), json!({ "status": statuses(status, &path.key("status"), problems) }));
        }
    }
    (problems.count() == before).then(|| Action { uses: "http".to_owned(), script: None, with: Value::Object(with) })
}

fn method(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<&'static str> {
    let text = decode::text(node, path, problems)?;
    let found = METHODS.into_iter().find(|method| method.eq_ignore_ascii_case(text));
    if found.is_none() {
        problems
            .add(node.at(), path, format!("unknown method `{text}`"))
            .help_with(|| suggest(text, METHODS.into_iter(), "expected"));
    }
    found
}

fn url<'a>(node: &'a Node, path: &Path<'_>, problems: &mut Problems) -> Option<&'a str> {
    let url = decode::text(node, path, problems)?;
    let host = url.split_once("://").map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
    let good = match &host {
        // What a template in front gives is known only when the stage runs.
        _ if url.starts_with("{{") => true,
        Some((scheme, rest)) => {
            matches!(scheme.as_str(), "http" | "https") && !rest.is_empty() && !rest.starts_with('/')
        }
        None => false,
    };
    if !good || url.chars().any(char::is_control) {
        problems
            .add(node.at(), path, format!("{url:?} is no URL that can be called"))
            .help("expected `http://host/...` or `https://host/...`");
        return None;
    }
    Some(url)
}

fn headers(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Map<String, Value> {
    let mut headers = Map::new();
    for entry in decode::map(node, path, problems).unwrap_or_default() {
        let path = path.key(&entry.key);
        if entry.key.is_empty()
            || !entry.key.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
        {
            problems.add(entry.at as usize, &path, format!("`{}` cannot be the name of a header", entry.key));
        }
        if let Some(value) = decode::text(&entry.value, &path, problems) {
            if value.chars().any(char::is_control) {
                problems.add(entry.value.at(), &path, "a header may not contain control characters or line breaks");
            }
            headers.insert(entry.key.to_string(), Value::String(value.to_owned()));
        }
    }
    headers
}

/// One status or several; one is kept as a list of one, so that there is one way to read it.
fn statuses(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Vec<i64> {
    match &node.kind {
        Kind::List(items) if items.is_empty() => {
            problems.add(node.at(), path, "no status is expected").help("name at least one, such as `200`");
            Vec::new()
        }
        Kind::List(items) => {
            let status = |(i, item)| decode::integer(item, &path.index(i), 100..=599, problems);
            items.iter().enumerate().filter_map(status).collect()
        }
        _ => decode::integer(node, path, 100..=599, problems).into_iter().collect(),
    }
}

fn uses(node: &Node, path: &Path<'_>, fields: &Fields<'_>, problems: &mut Problems) -> Option<Action> {
    let uses = decode::text(node, path, problems)?;
    if matches!(uses, "run" | "http") {
        problems
            .add(node.at(), path, format!("`{uses}` has a key of its own"))
            .help(format!("write `{uses}:` in place of `uses:`"));
        return None;
    }
    if crate::id::StageName::parse(uses).is_err() {
        problems
            .add(node.at(), path, format!("{uses:?} cannot be the name of a stage kind"))
            .help("expected letters, digits, `.`, `_`, `-`, and a letter or digit first");
        return None;
    }
    let with = match fields.get("with") {
        Some(node) => {
            decode::map(node, &fields.path.key("with"), problems)?;
            node.to_value()
        }
        None => Value::Null,
    };
    Some(Action { uses: uses.to_owned(), script: None, with })
}

/// Calls `found` with every text in an action that will be rendered, and its place. The shell text of `run` is none.
pub(super) fn each_template(fields: &Fields<'_>, found: &mut dyn FnMut(&str, usize, &Path<'_>)) {
    for key in ["env", "http", "with"] {
        if let Some(node) = fields.get(key) {
            visit(node, &fields.path.key(key), found);
        }
    }
}

fn visit(node: &Node, path: &Path<'_>, found: &mut dyn FnMut(&str, usize, &Path<'_>)) {
    match &node.kind {
        Kind::Null | Kind::Bool(_) | Kind::Number(_) => {}
        Kind::Text(text) if template::is_template(text) => found(text, node.at(), path),
        Kind::Text(_) => {}
        Kind::List(items) => items.iter().enumerate().for_each(|(i, item)| visit(item, &path.index(i), found)),
        Kind::Map(entries) => entries.iter().for_each(|entry| visit(&entry.value, &path.key(&entry.key), found)),
    }
}
