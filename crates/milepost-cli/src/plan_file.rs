//! Plan files: from a path or stdin to a plan that this build can run.

use std::io::Read;

use milepost_core::id::PlanId;
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
    let bytes = bytes(file).map_err(|error| {
        let failure = Failure::new(Exit::Usage, format!("cannot read the plan file {file}: {error}"));
        Unusable::Unreadable(failure)
    })?;
    let check = |name: &str, with: &serde_json::Value| registry.check(name, with);
    let shown = if file == "-" { "stdin" } else { file };
    let options = ParseOptions { check_action: &check, ..ParseOptions::new(shown, new_plan_id()) };
    parse(&bytes, &options).map_err(Unusable::Wrong)
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

fn new_plan_id() -> PlanId {
    let id = format!("plan-{}", uuid::Uuid::now_v7());
    PlanId::parse(&id).expect("`plan-` and a UUID are a plan id")
}
