//! `sync tables`: what there is to copy.

use indicatif::{HumanBytes, HumanCount};
use milepost_core::api::List;
use serde_json::{Value, json};

use super::catalogue::{self, Found, Order};
use super::choice::Choice;
use super::database::Place;
use crate::context::Context;
use crate::exit::{Exit, Outcome};
use crate::output::Data;
use crate::text::{Table, dash};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// sqlite:PATH, postgres://…, mysql://…, env:NAME for the variable that has it, or a name from [databases] in the settings
    source: String,
    #[command(flatten)]
    choice: Choice,
    #[arg(long, value_name = "BY", default_value = "size")]
    order: Order,
}

pub(crate) async fn tables(context: &Context, args: Args) -> Outcome {
    let source = Place::named(context, &args.source)?;
    let catalogue = catalogue::read(&source, &args.choice, args.order).await?;
    let mut data = Data::new();
    if context.json {
        data.json(&List { items: catalogue.tables.iter().map(as_json).collect(), next_cursor: None });
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["TABLE", "ROWS", "SIZE", "KEY"]);
    for found in &catalogue.tables {
        table.row(vec![
            found.table.name.to_string(),
            dash(found.rows.map(HumanCount)),
            dash(found.bytes.map(HumanBytes)),
            dash(found.key()),
        ]);
    }
    table.lines("").iter().for_each(|line| data.line(line));
    Ok(Exit::Done)
}

pub(crate) fn as_json(found: &Found) -> Value {
    let names =
        |columns: Vec<usize>| columns.iter().map(|at| found.table.columns[*at].name.clone()).collect::<Vec<_>>();
    json!({
        "table": found.table.name.to_string(),
        "rows": found.rows,
        "bytes": found.bytes,
        "key": names(found.table.paging_key()),
        "notCopied": found.table.left_out,
    })
}
