//! The plan as people read and edit it. Comments say what each value means and what else it could be, and what of a table
//! is not copied.

use std::fmt::Write;

use milepost_core::id::PlanId;
use milepost_tables::TableName;

use super::catalogue::{Found, Order, size};
use super::database::Place;
use crate::text::{count, shell};

#[derive(Debug)]
pub(crate) struct PlanText<'a> {
    pub(crate) plan: &'a PlanId,
    /// What to type to run it; none if it goes to nobody knows where.
    pub(crate) file: Option<&'a str>,
    pub(crate) source: &'a Place,
    pub(crate) target: &'a Place,
    pub(crate) order: Order,
    pub(crate) settings: &'a Settings,
    pub(crate) units: &'a [Unit],
}

/// How every table is copied.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "How tables are copied")]
pub(crate) struct Settings {
    /// Tables at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// What becomes of a target that is there: fail, drop, truncate, append or upsert
    #[arg(long, value_name = "WHAT", default_value = "fail", hide_possible_values = true,
          value_parser = ["fail", "drop", "truncate", "append", "upsert"])]
    if_exists: String,
    /// Where a table begins again after a break: `table`, from zero; `chunk`, after its last committed batch
    #[arg(long, value_name = "BY", default_value = "table", hide_possible_values = true, value_parser = ["table", "chunk"])]
    resume: String,
    /// What is compared at the end: none, counts or checksums
    #[arg(long, value_name = "WHAT", default_value = "counts", hide_possible_values = true,
          value_parser = ["none", "counts", "checksums"])]
    verify: String,
    /// Rows that are read and committed at once, 100 to 10000
    #[arg(long, value_name = "N", default_value_t = 2500, value_parser = clap::value_parser!(u32).range(100..=10_000))]
    batch_size: u32,
}

/// One table, and the task that copies it.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) into: TableName,
    pub(crate) found: Found,
}

impl PlanText<'_> {
    pub(crate) fn write(&self) -> String {
        let mut text = self.head();
        for unit in self.units {
            unit.write(&mut text);
        }
        text
    }

    fn head(&self) -> String {
        let Settings { concurrency, if_exists, resume, verify, batch_size } = self.settings;
        let (from, to) = (in_template(&self.source.word), in_template(&self.target.word));
        let tables = count(self.units.len() as u64, "table");
        let size = in_all(self.units).map(|size| format!(" ({size})")).unwrap_or_default();
        let (source, target) = (comment(&self.source.address), comment(&self.target.address));
        let order = match self.order {
            Order::Size => "The largest first, so that the end is not one long table.",
            Order::Name => "By name.",
        };
        let run = format!("milepost run {}", self.file.map_or("FILE".to_owned(), shell));
        format!(
            r#"# Copies {tables}{size}
#   from {source}
#   to   {target}
# Each is a task of its own: it is written beside its target, and appears there whole when it is done.
#
#   {run}                   copies them; again, it goes on with those that are not done
#   {run} --retry-failed    also those that failed
plan: {plan}
max_concurrency: {concurrency:<15} # tables at once
defaults:
  timeout: 24h                   # one attempt at one table
  retry: {{ max_attempts: 10, base: 1s, max: 1m }} # when a database is away
stages:
  - name: copy
    uses: copy-table
    with:
      from: {from}
      to: {to}
      table: "{{{{ input.table }}}}"
      into: "{{{{ input.into }}}}"
      if_exists: {if_exists:<15} # a target that is there: fail | drop | truncate | append | upsert
      resume: {resume:<18} # a table that was broken off begins: table, from zero | chunk, after its last committed batch
      verify: {verify:<18} # compared at the end: none | counts | checksums
      batch_size: {batch_size:<14} # rows that are read and committed at once, 100 to 10000
      # on_row_error: skip       # leave out rows that the target cannot hold, instead of failing; they go to milepost-rejected/
      # rows_per_second: 10000   # of one table, at most; also bytes_per_second
tasks:
  # {order}
"#,
            plan = self.plan,
        )
    }
}

impl Unit {
    fn write(&self, text: &mut String) {
        let name = &self.found.table.name;
        let mut notes = Vec::new();
        if self.found.key().is_none() {
            notes.push(format!("{name} has no key: one pass, cannot resume by chunk"));
        }
        if !self.found.table.left_out.is_empty() {
            notes.push(format!("{name}, not copied: {}", self.found.table.left_out.join(", ")));
        }
        for note in notes {
            let _ = writeln!(text, "  # {}", comment(note));
        }
        let size = self.found.size().map(|size| format!("    # {size}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "  - {{ id: {}, tenant: {}, input: {{ table: {}, into: {} }} }}{size}",
            scalar(&self.id),
            quoted(&self.tenant),
            scalar(&name.to_string()),
            scalar(&self.into.to_string()),
        );
    }
}

/// As far as it is known of every one.
pub(crate) fn in_all(units: &[Unit]) -> Option<String> {
    let sum = |of: fn(&Found) -> Option<u64>| units.iter().map(|unit| of(&unit.found)).sum::<Option<u64>>();
    size(sum(|found| found.rows), sum(|found| found.bytes))
}

/// One line, whatever is in it.
fn comment(text: impl ToString) -> String {
    text.to_string().chars().map(|c| if breaks_a_line(c) { ' ' } else { c }).collect()
}

fn in_template(text: &str) -> String {
    scalar(&text.replace("{{", "{{ '{{' }}"))
}

/// Without quotes where nobody could take it for anything but text.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
        && !WORDS.contains(&text.to_lowercase().as_str());
    if plain { text.to_owned() } else { quoted(text) }
}

/// As JSON spells it, which YAML reads too; what could end a line, or cannot be seen, by its number.
fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json.chars().fold(String::new(), |mut quoted, c| {
        if breaks_a_line(c) {
            let _ = write!(quoted, "\\u{:04x}", u32::from(c));
        } else {
            quoted.push(c);
        }
        quoted
    })
}

fn breaks_a_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use milepost_core::plan::{ParseOptions, parse};
    use milepost_tables::Table;

    use super::super::names;
    use super::*;

    fn settings() -> Settings {
        Settings {
            concurrency: 7,
            if_exists: "drop".to_owned(),
            resume: "chunk".to_owned(),
            verify: "none".to_owned(),
            batch_size: 100,
        }
    }

    fn unit(plan: &PlanId, target: &Place, name: &TableName) -> Unit {
        let table = Table {
            name: name.clone(),
            columns: Vec::new(),
            primary: Vec::new(),
            indexes: Vec::new(),
            rows: None,
            left_out: vec!["trigger a\nb\u{2028}tasks: []".to_owned()],
        };
        Unit {
            id: names::task_id(plan, name),
            tenant: names::tenant(&target.address, name),
            into: name.clone(),
            found: Found { table, rows: Some(3), bytes: None },
        }
    }

    #[test]
    fn a_plan_of_tables_with_any_names_says_what_was_meant() {
        let plan = PlanId::parse("move").unwrap();
        let place = |word: &str| Place { word: word.to_owned(), address: "sqlite:b.db".parse().unwrap() };
        let (source, target) = (place("postgres://ann:{{x}}@db/a"), place("sqlite:b: c.db"));
        let odd =
            ["true", "No", "null", "12", "1e3", "0x1", "- a", "a: b", "a #b", "{{ x }}", "%", "@a", "'", "\"", "\\"];
        let names =
            odd.into_iter().chain(["\n", "\u{85}", "\u{2028}", "\u{7f}", "\u{feff}", "订单", "🚚", " ", "~", "*"]);
        let names: Vec<TableName> = names
            .flat_map(|name| [TableName::new(name), TableName { schema: Some(name.into()), name: "t".into() }])
            .collect();
        let units: Vec<Unit> = names.iter().map(|name| unit(&plan, &target, name)).collect();
        let settings = settings();
        let text = PlanText {
            plan: &plan,
            file: None,
            source: &source,
            target: &target,
            order: Order::Size,
            settings: &settings,
            units: &units,
        }
        .write();
        let parsed = parse(text.as_bytes(), &ParseOptions::new("p.yaml", PlanId::parse("none").unwrap()));
        let parsed = parsed.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert_eq!((&parsed.definition.id, parsed.definition.settings.max_concurrency), (&plan, 7));
        assert_eq!(parsed.tasks.len(), names.len());
        for (task, name) in parsed.tasks.iter().zip(&names) {
            assert_eq!(task.input["table"], name.to_string());
            assert_eq!(task.input["into"].as_str().unwrap().parse(), Ok(name.clone()), "{name:?}");
        }
        for words in ["if_exists: drop ", "resume: chunk ", "verify: none ", "batch_size: 100 ", "has no key: one pass"]
        {
            assert!(text.contains(words), "{text}");
        }
    }
}
