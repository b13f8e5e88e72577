//! `store migrate FROM TO`: which stores, whether both are stopped, and what came of it.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use milepost_engine::Options;
use milepost_store::sqlite::SqliteStore;
use milepost_store::{Store, StoreError};
use serde_json::json;

use super::moving::{Moved, Moving, Trouble};
use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Data;
use crate::store_url::StoreUrl;
use crate::text::count;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store that has it all, as for --store; or env:NAME for the variable that has the URL. It stays as it is
    from: String,
    /// The store that is to have it: an empty one, or one that this command was filling when it was cut off
    to: String,
}

pub(crate) async fn migrate(context: &Context, args: Args) -> Outcome {
    let (from, to) = (StoreUrl::parse(&named(&args.from)?)?, StoreUrl::parse(&named(&args.to)?)?);
    if from == to {
        return Err(Failure::new(Exit::Usage, format!("{from} cannot be moved to itself")));
    }
    let source = open_source(&from).await?;
    let target = open_target(&to).await?;
    let moving = Moving { from: &*source, to: &*target, bar: bar(context) };
    let moved = moving.run().await;
    moving.bar.finish_and_clear();
    let moved = moved.map_err(|trouble| tell(trouble, &from, &to))?;
    // Whoever came meanwhile may have changed what was read before.
    must_be_stopped(&from, &*source).await?;
    must_be_stopped(&to, &*target).await?;
    show(context, &from, &to, &moved);
    Ok(Exit::Done)
}

/// A password is better kept in a variable than typed.
fn named(url: &str) -> Result<String, Failure> {
    match url.strip_prefix("env:") {
        Some(name) => std::env::var(name)
            .map_err(|_| Failure::new(Exit::Usage, format!("there is no variable `{name}` (in `{url}`)"))),
        None => Ok(url.to_owned()),
    }
}

/// A file is kept from being owned meanwhile.
async fn open_source(url: &StoreUrl) -> Result<Arc<dyn Store>, Failure> {
    let Some(path) = url.file() else {
        let store = url.visit().await?;
        must_be_stopped(url, &*store).await?;
        return Ok(store);
    };
    match SqliteStore::open_to_move(path) {
        Ok(store) => Ok(Arc::new(store)),
        Err(StoreError::NotFound { .. }) => Err(url.missing()),
        Err(error) => Err(in_use(url, error)),
    }
}

async fn open_target(url: &StoreUrl) -> Result<Arc<dyn Store>, Failure> {
    if url.file().is_some() {
        return url.join(&Options::new("milepost")).await.map_err(|error| in_use(url, error));
    }
    let store = url.visit().await?;
    must_be_stopped(url, &*store).await?;
    Ok(store)
}

fn in_use(url: &StoreUrl, error: StoreError) -> Failure {
    let owned = matches!(error, StoreError::Owned { .. });
    let failure = url.failure(error);
    if owned { failure.help("stores are moved while both are stopped") } else { failure }
}

async fn must_be_stopped(url: &StoreUrl, store: &dyn Store) -> Result<(), Failure> {
    let nodes = store.nodes().await.map_err(|error| url.failure(error))?;
    let live: Vec<&str> = nodes.iter().filter(|node| node.live).map(|node| node.name.as_str()).collect();
    if live.is_empty() {
        return Ok(());
    }
    let are = if live.len() == 1 { "node is" } else { "nodes are" };
    let message = format!("{url} is in use: {} {are} on it: {}", live.len(), live.join(", "));
    Err(Failure::new(Exit::OutOfReach, message)
        .help("stores are moved while both are stopped: end these first; one that was killed is gone after 15 s"))
}

fn tell(trouble: Trouble, from: &StoreUrl, to: &StoreUrl) -> Failure {
    match trouble {
        Trouble::From(error) => from.failure(error).help("nothing was changed there; what has arrived elsewhere stays"),
        Trouble::To(error) => {
            to.failure(error).help("what has arrived stays; the same command again goes on where this one stopped")
        }
        Trouble::NotEmpty(what) => Failure::new(Exit::Refused, format!("{to} is not empty: {what}"))
            .help("a store is moved into an empty one: name another, or empty this one")
            .help("one that this command was filling when it was cut off is gone on with"),
        Trouble::Differs(what) => {
            Failure::new(Exit::OutOfReach, format!("what was read back from {to} is not what {from} has: {what}"))
                .help("do not use the copy; the original is as it was")
        }
    }
}

/// Nothing to see unless somebody looks.
fn bar(context: &Context) -> ProgressBar {
    let hidden = context.quiet || context.json;
    let bar = ProgressBar::with_draw_target(
        None,
        if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() },
    );
    let style = ProgressStyle::with_template("{msg:12} [{bar:30}] {pos}/{len} tasks, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

fn show(context: &Context, from: &StoreUrl, to: &StoreUrl, moved: &Moved) {
    let mut data = Data::new();
    let digest: String = moved.digest.iter().map(|byte| format!("{byte:02x}")).collect();
    if context.json {
        return data.json(&json!({
            "from": from.to_string(),
            "to": to.to_string(),
            "plans": moved.plans,
            "tasks": moved.tasks,
            "events": moved.events,
            "outputBytes": moved.output_bytes,
            "tokens": moved.tokens,
            "bookLines": moved.entries,
            "alreadyThere": moved.already_there,
            "digest": digest,
        }));
    }
    data.line(format!(
        "moved {}, {}, {}, {} of output, {} and {} of the books from {from} to {to}",
        count(moved.plans, "plan"),
        count(moved.tasks, "task"),
        count(moved.events, "event"),
        count(moved.output_bytes, "byte"),
        count(moved.tokens, "token"),
        count(moved.entries, "line"),
    ));
    if moved.already_there > 0 {
        data.line(format!("{} of the plans had arrived before", moved.already_there));
    }
    data.line(format!("read back and found the same: {digest}"));
}
