//! The file that a task's stages work on: where it is, and what is known of it before it is fetched.

use serde_json::{Value, json};

use super::decode::{self, Fields};
use super::definition::{FileRef, TaskDefinition};
use super::errors::{Path, Problems};
use super::node::{Kind, Node};
use crate::id::PlanId;
use crate::template;

pub(super) const FILE_KEYS: [&str; 5] = ["uri", "size", "sha256", "content_type", "name"];
/// Longer than any store allows its keys to be.
const LONGEST_URI: usize = 4096;
const LONGEST_NAME: usize = 1024;
const EXAMPLE: &str = "such as `file:///data/report.pdf`, `s3://bucket/report.pdf` or `https://host/report.pdf`";

impl FileRef {
    /// What people call it: its `name`, or the last part of its `uri`.
    pub fn file_name(&self) -> &str {
        let last = || {
            let path = match self.uri.starts_with("http") {
                true => self.uri.split(['?', '#']).next().unwrap_or_default(),
                false => &self.uri,
            };
            path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("file")
        };
        self.name.as_deref().unwrap_or_else(last)
    }

    /// Says what is wrong with it, as far as can be said without fetching it.
    pub fn check(&self) -> Result<(), String> {
        check_uri(&self.uri)?;
        if let Some(sha256) = &self.sha256 {
            check_sha256(sha256)?;
        }
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        Ok(())
    }

    /// What `{{ file.… }}` sees.
    pub(crate) fn scope(&self) -> Value {
        json!({
            "uri": self.uri,
            "name": self.file_name(),
            "size": self.size,
            "sha256": self.sha256,
            "content_type": self.content_type,
        })
    }
}

fn check_uri(uri: &str) -> Result<(), String> {
    if uri.len() > LONGEST_URI {
        return Err(format!("the uri has {} bytes; at most {LONGEST_URI} are allowed", uri.len()));
    }
    if uri.chars().any(|c| c.is_control() || c == ' ') {
        return Err("a uri has no blanks and no control characters; a blank is written `%20`".to_owned());
    }
    let Some((scheme, rest)) = uri.split_once("://") else {
        return Err(format!("`{uri}` is no uri of a file"));
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    match scheme {
        "file" if authority.is_empty() && !path.is_empty() => Ok(()),
        "file" => Err("a file on this machine is named by its whole path, after three slashes".to_owned()),
        "s3" if !authority.is_empty() && !path.is_empty() => Ok(()),
        "s3" => Err("a file in an object store is named by its bucket and its key".to_owned()),
        "http" | "https" if !authority.is_empty() => Ok(()),
        "http" | "https" => Err("the uri names no host".to_owned()),
        _ => Err(format!("files are not fetched from `{scheme}:`; `file`, `s3`, `http` and `https` are known")),
    }
}

fn check_sha256(text: &str) -> Result<(), String> {
    match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(()),
        false => Err("a SHA-256 checksum has 64 hexadecimal digits".to_owned()),
    }
}

/// It may become a part of a path.
fn check_name(name: &str) -> Result<(), String> {
    let fits = (1..=LONGEST_NAME).contains(&name.len());
    match fits && !name.chars().any(|c| c.is_control() || c == '/') {
        true => Ok(()),
        false => Err(format!("the name of a file has 1 to {LONGEST_NAME} bytes and no `/`")),
    }
}

/// `file:` of one item of the list of tasks; its texts may hold what tells the tasks of a `matrix` apart.
pub(super) struct FileNode<'a> {
    written: FileRef,
    node: &'a Node,
}

impl<'a> FileNode<'a> {
    pub(super) fn read(node: &'a Node, path: &Path<'_>, problems: &mut Problems) -> Option<Self> {
        let fields = Fields::open(node, path, &FILE_KEYS, problems)?;
        let before = problems.count();
        let Some(uri) = fields.get("uri") else {
            problems.add(fields.at, path, "the file has no `uri`").help(EXAMPLE);
            return None;
        };
        let uri = decode::text(uri, &path.key("uri"), problems);
        let mut text = |key: &str| {
            let text = fields.get(key).and_then(|node| decode::text(node, &path.key(key), problems));
            text.map(str::to_owned)
        };
        let (sha256, content_type, name) = (text("sha256"), text("content_type"), text("name"));
        let size = fields.get("size").and_then(|node| decode::integer(node, &path.key("size"), 0..=i64::MAX, problems));
        let size = size.and_then(|size| u64::try_from(size).ok());
        let written = FileRef { uri: uri?.to_owned(), size, sha256, content_type, name };
        (problems.count() == before).then_some(Self { written, node })
    }

    /// The file of this task; `None` if something is wrong with it.
    pub(super) fn of(
        &self,
        plan: &PlanId,
        task: &TaskDefinition,
        path: &Path<'_>,
        problems: &mut Problems,
    ) -> Option<FileRef> {
        let scope = json!({
            "plan": plan,
            "task": task.id,
            "tenant": task.tenant,
            "input": task.input,
            "matrix": task.matrix,
        });
        let before = problems.count();
        let mut text = |key: &str, written: &str, check: fn(&str) -> Result<(), String>| {
            let rendered = render(written, &scope);
            let problem = rendered.as_ref().map_or_else(|error| Err(error.clone()), |text| check(text));
            if let Err(reason) = problem {
                let addition = problems.add(self.place(key), &path.key(key), reason);
                if key == "uri" {
                    addition.help(EXAMPLE);
                }
            }
            rendered.unwrap_or_default()
        };
        let written = &self.written;
        let file = FileRef {
            uri: text("uri", &written.uri, check_uri),
            size: written.size,
            sha256: written.sha256.as_ref().map(|sha256| text("sha256", sha256, check_sha256).to_ascii_lowercase()),
            content_type: written.content_type.as_ref().map(|kind| text("content_type", kind, |_| Ok(()))),
            name: written.name.as_ref().map(|name| text("name", name, check_name)),
        };
        (problems.count() == before).then_some(file)
    }

    fn place(&self, key: &str) -> usize {
        let Kind::Map(entries) = &self.node.kind else { return self.node.at() };
        entries.iter().find(|entry| &*entry.key == key).map_or(self.node.at(), |entry| entry.value.at())
    }
}

/// What it reads is known already, so it is filled in once and for all.
fn render(text: &str, scope: &Value) -> Result<String, String> {
    let value = json!(text);
    if !template::holds_template(&value) {
        return Ok(text.to_owned());
    }
    match template::render_value(&value, scope) {
        Ok(Value::String(text)) => Ok(text),
        Ok(other) => Ok(other.to_string()),
        Err(error) => Err(format!("bad template: {error}")),
    }
}
