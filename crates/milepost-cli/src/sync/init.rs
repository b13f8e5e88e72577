//! `sync init`: a plan file from what a source has. Reads the source, and never the target.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use milepost_core::id::PlanId;
use milepost_tables::{Address, Dialect, TableName};
use serde_json::json;

use super::catalogue::{self, Found, Order};
use super::choice::Choice;
use super::database::Place;
use super::plan_text::{PlanText, Settings, Unit, in_all};
use super::{names, tables};
use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};
use crate::text::{count, shell};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The database to copy from: sqlite:PATH, postgres://…, mysql://…, env:NAME for the variable that has it, or a name
    /// from [databases] in the settings
    source: String,
    /// The database to copy to, named in the same ways
    target: String,
    #[command(flatten)]
    choice: Choice,
    /// Where the plan is written; `-` is stdout [default: PLAN.yaml]
    #[arg(long, short, value_name = "FILE")]
    output: Option<String>,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// What the plan is called [default: SOURCE-to-TARGET]
    #[arg(long, value_name = "NAME", value_parser = |name: &str| PlanId::parse(name).map_err(|error| error.to_string()))]
    plan: Option<PlanId>,
    /// Which tables come first
    #[arg(long, value_name = "BY", default_value = "size", hide_possible_values = true)]
    order: Order,
    #[command(flatten)]
    settings: Settings,
}

pub(crate) async fn init(context: &Context, args: Args) -> Outcome {
    let (source, target) = (Place::named(context, &args.source)?, Place::named(context, &args.target)?);
    if source.address == target.address {
        return Err(Failure::new(Exit::Usage, format!("{} cannot be copied to itself", source.address)));
    }
    let plan = args.plan.unwrap_or_else(|| names::plan_id(&source.address, &target.address));
    let output = Output::of(args.output, &plan);
    if context.json && output == Output::Stdout {
        return Err(Failure::new(Exit::Usage, "--json and `--output -` both write to stdout").help("name a file"));
    }
    output.must_be_free(args.force)?;

    let catalogue = catalogue::read(&source, &args.choice, args.order).await?;
    let dialects = (dialect(&source.address), dialect(&target.address));
    let unit = |found: Found| {
        let into = names::into(&found.table.name, dialects.0, dialects.1);
        let (id, tenant) = (names::task_id(&plan, &found.table.name), names::tenant(&target.address, &into));
        Unit { id, tenant, into, found }
    };
    let units: Vec<Unit> = catalogue.tables.into_iter().map(unit).collect();
    must_be_told_apart(&units, dialects.1)?;

    let (file, settings) = (output.file(), &args.settings);
    let text =
        PlanText { plan: &plan, file, source: &source, target: &target, order: args.order, settings, units: &units };
    let secret = [&source, &target].into_iter().any(Place::tells_password);
    output.write(&text.write(), secret, args.force)?;
    warn(context, &catalogue.idle, &units, secret);
    show(context, &plan, &output, &units);
    Ok(Exit::Done)
}

/// Where the plan goes.
#[derive(Debug, PartialEq, Eq)]
enum Output {
    Stdout,
    File(String),
}

impl Output {
    fn of(named: Option<String>, plan: &PlanId) -> Self {
        match named {
            Some(file) if file == "-" => Output::Stdout,
            Some(file) => Output::File(file),
            None => Output::File(format!("{plan}.yaml")),
        }
    }

    fn file(&self) -> Option<&str> {
        match self {
            Output::Stdout => None,
            Output::File(file) => Some(file),
        }
    }

    /// Said before a large catalogue is read, and not only after it.
    fn must_be_free(&self, force: bool) -> Result<(), Failure> {
        match self.file() {
            Some(file) if !force && Path::new(file).exists() => Err(taken(file)),
            Some(_) | None => Ok(()),
        }
    }

    /// The whole plan or nothing. One that tells a password is for its owner's eyes.
    fn write(&self, text: &str, secret: bool, force: bool) -> Result<(), Failure> {
        let Some(file) = self.file() else {
            Data::new().bytes(text.as_bytes());
            return Ok(());
        };
        let unwritable = |error| Failure::new(Exit::Usage, format!("cannot write {file}: {error}"));
        let folder = Path::new(file).parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mode = std::fs::Permissions::from_mode(if secret { 0o600 } else { 0o666 });
        let beside = tempfile::Builder::new().permissions(mode).tempfile_in(folder);
        let mut beside = beside.map_err(unwritable)?;
        beside.write_all(text.as_bytes()).map_err(unwritable)?;
        let kept = if force { beside.persist(file) } else { beside.persist_noclobber(file) };
        match kept {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(taken(file)),
            Err(error) => Err(unwritable(error.error)),
        }
    }
}

fn taken(file: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{file} is there already"))
        .help("`--force` replaces it, `--output FILE` names another, `--output -` is stdout")
}

fn dialect(address: &Address) -> Dialect {
    match address {
        Address::Sqlite(_) => Dialect::Sqlite,
        Address::Postgres(_) => Dialect::Postgres,
        Address::Mysql(_) => Dialect::Mysql,
    }
}

/// Two tables that get one name at the target would replace each other, turn by turn.
fn must_be_told_apart(units: &[Unit], target: Dialect) -> Result<(), Failure> {
    let mut names: BTreeMap<String, &TableName> = BTreeMap::new();
    for unit in units {
        let own = &unit.found.table.name;
        let into = match target {
            Dialect::Postgres => unit.into.to_string(),
            Dialect::Sqlite | Dialect::Mysql => unit.into.to_string().to_lowercase(),
        };
        if let Some(other) = names.insert(into, own) {
            let message = format!("{other} and {own} would both be {} in {target}", unit.into);
            return Err(Failure::new(Exit::Usage, message)
                .help("leave one out by `--exclude`, and copy it by a plan of its own with another `into`"));
        }
    }
    Ok(())
}

fn warn(context: &Context, idle: &[String], units: &[Unit], secret: bool) {
    if secret {
        output::message(
            "the plan tells a password: only you can read the file, and `env:NAME` in its place would keep it out",
        );
    }
    if context.quiet {
        return;
    }
    for pattern in idle {
        output::message(&format!("no table is like `{pattern}`"));
    }
    for unit in units.iter().filter(|unit| !unit.found.table.left_out.is_empty()) {
        let table = &unit.found.table;
        output::message(&format!("not copied with {}: {}", table.name, table.left_out.join(", ")));
    }
}

fn show(context: &Context, plan: &PlanId, output: &Output, units: &[Unit]) {
    let Output::File(file) = output else { return };
    let mut data = Data::new();
    if context.json {
        let unit = |unit: &Unit| {
            let mut shown = tables::as_json(&unit.found);
            shown["taskId"] = json!(unit.id);
            shown["tenant"] = json!(unit.tenant);
            shown["into"] = json!(unit.into.to_string());
            shown
        };
        let tables: Vec<_> = units.iter().map(unit).collect();
        return data.json(&json!({ "planId": plan, "file": file, "tables": tables }));
    }
    let size = in_all(units).map(|size| format!(", {size}")).unwrap_or_default();
    data.line(format!("{file}: plan {plan}, {}{size}", count(units.len() as u64, "table")));
    drop(data);
    if !context.quiet {
        output::message(&format!("`{}` copies them", context.command(&format!("run {}", shell(file)))));
    }
}
