//! Plan files: from a path or stdin to a plan that this build can run.

use std::io::Read;

use milepost_core::id::PlanId;
#[cfg(feature = "kafka")]
use milepost_core::plan::Chain;
use milepost_core::plan::{ParseOptions, Plan, PlanErrors, parse};
use milepost_engine::Registry;

use crate::exit::{Exit, Failure};

/// Plan files larger than this are refused.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

pub(crate) fn registry() -> Registry {
    milepost_stages::builtin().into_iter().fold(Registry::new(), |registry, (name, kind)| registry.with(name, kind))
}

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum Unusable {
    Unreadable(Failure),
    Wrong(PlanErrors),
}

/// `-` is stdin.
pub(crate) fn read(file: &str, registry: &Registry) -> Result<Plan, Unusable> {
    let bytes = text(file)?;
    registry.read_plan(shown(file), &bytes).map_err(Unusable::Wrong)
}

/// A file with stages and no tasks, of which messages make tasks.
#[cfg(feature = "kafka")]
pub(crate) fn read_chain(file: &str, registry: &Registry) -> Result<Chain, Unusable> {
    let bytes = text(file)?;
    registry.read_chain(file, &bytes).map_err(Unusable::Wrong)
}

/// The file as it is, if it is a plan as far as can be said without knowing the stage kinds of whoever runs it.
pub(crate) fn read_for_server(file: &str) -> Result<Vec<u8>, Unusable> {
    let bytes = text(file)?;
    // A plan without an id gets one from the server.
    let id = PlanId::parse("plan").expect("letters are a plan id");
    parse(&bytes, &ParseOptions::new(shown(file), id)).map_err(Unusable::Wrong)?;
    Ok(bytes)
}

/// What messages call it.
pub(crate) fn shown(file: &str) -> &str {
    if file == "-" { "stdin" } else { file }
}

fn text(file: &str) -> Result<Vec<u8>, Unusable> {
    bytes(file).map_err(|error| {
        let failure = Failure::new(Exit::Usage, format!("cannot read the plan file {file}: {error}"));
        Unusable::Unreadable(failure)
    })
}

fn bytes(file: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that reading says that there is too much.
    let most = MAX_BYTES + 1;
    if file == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(file)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
