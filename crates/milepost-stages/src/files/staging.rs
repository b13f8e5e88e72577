//! `to:` and `publish:`, which the stages that make files share: where a file belongs, and when it may be seen there.
//!
//! With `publish: end` a stage writes to a hidden name beside its target, and the engine asks for it to be shown in the
//! attempt that completes the task, before that is written. A crash can come
//! - while the hidden file is written: the stage is run again and writes it again;
//! - after the stage's success: whoever goes on with the task finds it there, on whatever node, and shows it at the end;
//! - between showing it and the end of the task: the last stage is run again, and what is no longer hidden is made and
//!   shown again, with the same result.
//!
//! A task that fails or is cancelled takes it away. If that is cut short, or the task was cancelled while no node had it,
//! a hidden name stays that nobody looks at. A task that is retried afterwards makes it again at its end.

use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::StageCall;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::node::NodeFiles;
use super::place::Place;
use super::put::Content;
use super::save::hexadecimal;
use crate::parameters::is_template;

/// Where the result of a stage goes.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) uri: String,
    pub(super) place: Place,
    /// Where it waits until the task completes.
    hidden: Option<Place>,
}

impl Target {
    pub(super) fn of(call: &StageCall) -> Result<Self, Failure> {
        let uri = match call.with.get("to") {
            Some(Value::String(uri)) => uri.clone(),
            _ => return Err(Failure::fatal(ErrorType::Validation, "`to` must be the uri to write to")),
        };
        let place = Place::parse(&uri)?;
        let name = name_for(&format!("{}/{}", call.task, call.stage));
        let hidden = if holds_back(&call.with) { place.beside(&name) } else { None };
        Ok(Self { uri, place, hidden })
    }

    /// Writes what the stage made to where it may be now.
    pub(super) async fn put(&self, files: &NodeFiles, content: &Content) -> Result<u64, Failure> {
        files.put(content, self.hidden.as_ref().unwrap_or(&self.place)).await
    }

    /// False if nothing is hidden: it has been shown already, or was taken away.
    pub(super) async fn show(&self, files: &NodeFiles) -> Result<bool, Failure> {
        let Some(hidden) = &self.hidden else { return Ok(true) };
        if files.size(hidden).await?.is_none() {
            return Ok(false);
        }
        files.rename(hidden, &self.place).await?;
        Ok(true)
    }

    pub(super) async fn take_away(&self, files: &NodeFiles) {
        let Some(hidden) = &self.hidden else { return };
        if let Err(failure) = files.delete(hidden).await {
            tracing::warn!(place = %hidden, reason = %failure, "what a task held back could not be removed");
        }
    }
}

pub(super) fn holds_back(with: &Value) -> bool {
    with.get("publish").and_then(Value::as_str) == Some("end")
}

/// What is wrong with `to` and `publish`, before a plan is accepted.
pub(super) fn check(with: Option<&Map<String, Value>>) -> Result<(), String> {
    let get = |key: &str| with.and_then(|with| with.get(key)).filter(|value| !value.is_null());
    match get("to") {
        None => return Err("`to` is missing: the uri to write to".to_owned()),
        Some(value) if is_template(value) => {}
        Some(Value::String(uri)) => match Place::parse(uri).map_err(|failure| format!("`to`: {}", failure.reason))? {
            Place::Disk(_) | Place::Object { .. } => {}
            Place::Web(_) => return Err("`to` must begin with file:/// or s3://".to_owned()),
        },
        Some(_) => return Err("`to` must be text".to_owned()),
    }
    match get("publish") {
        None => Ok(()),
        Some(Value::String(when)) if when == "end" || when == "now" => Ok(()),
        Some(_) => Err("`publish` is `now`, or `end` for when the whole task has succeeded".to_owned()),
    }
}

/// Short, whatever it is made from: names have limits, and two names together may pass them.
pub(super) fn name_for(text: &str) -> String {
    format!(".milepost-{}", &hexadecimal(&Sha256::digest(text.as_bytes()))[..24])
}
