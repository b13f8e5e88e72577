//! A task as one text, from which the fold of a long log can go on. It says nothing that the log does not say: whoever
//! cannot use one folds the log from its start.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::StageName;
use crate::message::Arrival;
use crate::time::Timestamp;

use super::event::By;
use super::flow::FlowImage;
use super::state::{Damage, FailureInfo, StageState, Task, TaskFailure, TaskSpec, Undo};
use super::status::TaskStatus;

/// Of the text's form. An image of any other is not read: it is made anew from the log.
const FORM: &str = "3";

/// Why an image is of no use.
#[derive(Debug, thiserror::Error)]
pub enum InvalidImage {
    #[error("its form is {found:?}, and {FORM:?} is the one that is known")]
    Form { found: String },
    #[error("it cannot be read")]
    Text(#[from] serde_json::Error),
    #[error("its parts do not fit each other, or are not of this task")]
    Parts,
}

/// All of a task but what was asked for, which is kept elsewhere.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image<'a> {
    version: u64,
    status: TaskStatus,
    interrupted: bool,
    node: Option<Arc<str>>,
    pause_requested: Option<Cow<'a, By>>,
    paused_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Arc<Arrival>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dead_letter: Option<u64>,
    stages: Cow<'a, [StageState]>,
    flow: Option<FlowImage<'a>>,
    done: Cow<'a, [StageName]>,
    done_at: Option<Timestamp>,
    undo: Option<Cow<'a, Undo>>,
    failure: Option<Cow<'a, TaskFailure>>,
    failures: Cow<'a, [FailureInfo]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    damage: Option<Cow<'a, Damage>>,
    takeovers: u32,
    run: u32,
    run_started_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    updated_at: Timestamp,
}

impl Task {
    /// How much an image of it holds, in things of which there may be many.
    pub fn weight(&self) -> usize {
        self.stages.len() + self.flow.as_ref().map_or(0, |flow| flow.weight())
    }

    pub fn image(&self) -> String {
        // No `..`: what a task gains, its image has to gain.
        let Self {
            spec: _,
            version,
            status,
            interrupted,
            node,
            pause_requested,
            paused_at,
            message,
            dead_letter,
            stages,
            flow,
            done,
            done_at,
            undo,
            failure,
            failures,
            damage,
            takeovers,
            run,
            run_started_at,
            started_at,
            ended_at,
            updated_at,
        } = self;
        let image = Image {
            version: *version,
            status: *status,
            interrupted: *interrupted,
            node: node.clone(),
            pause_requested: pause_requested.as_ref().map(Cow::Borrowed),
            paused_at: *paused_at,
            message: message.clone(),
            dead_letter: *dead_letter,
            stages: Cow::Borrowed(stages),
            flow: flow.as_ref().map(|flow| flow.image()),
            done: Cow::Borrowed(done),
            done_at: *done_at,
            undo: undo.as_ref().map(Cow::Borrowed),
            failure: failure.as_ref().map(Cow::Borrowed),
            failures: Cow::Borrowed(failures),
            damage: damage.as_ref().map(Cow::Borrowed),
            takeovers: *takeovers,
            run: *run,
            run_started_at: *run_started_at,
            started_at: *started_at,
            ended_at: *ended_at,
            updated_at: *updated_at,
        };
        let text = serde_json::to_string(&image).expect("a task is made of JSON, names and numbers");
        format!("{FORM}\n{text}")
    }

    /// The task that an image was made of.
    pub fn from_image(spec: Arc<TaskSpec>, text: &str) -> Result<Self, InvalidImage> {
        let image = match text.split_once('\n') {
            Some((FORM, image)) => image,
            Some((found, _)) => return Err(InvalidImage::Form { found: found.to_owned() }),
            None => return Err(InvalidImage::Form { found: String::new() }),
        };
        let image: Image<'_> = serde_json::from_str(image)?;
        let flow = image.flow.map(|flow| flow.restore().ok_or(InvalidImage::Parts)).transpose()?;
        let task = Self {
            version: image.version,
            status: image.status,
            interrupted: image.interrupted,
            node: image.node,
            pause_requested: image.pause_requested.map(Cow::into_owned),
            paused_at: image.paused_at,
            message: image.message,
            dead_letter: image.dead_letter,
            stages: image.stages.into_owned(),
            flow: flow.map(Box::new),
            done: image.done.into_owned(),
            done_at: image.done_at,
            undo: image.undo.map(Cow::into_owned),
            failure: image.failure.map(Cow::into_owned),
            failures: image.failures.into_owned(),
            damage: image.damage.map(Cow::into_owned),
            takeovers: image.takeovers,
            run: image.run,
            run_started_at: image.run_started_at,
            started_at: image.started_at,
            ended_at: image.ended_at,
            updated_at: image.updated_at,
            spec,
        };
        if task.fits_together() { Ok(task) } else { Err(InvalidImage::Parts) }
    }

    fn fits_together(&self) -> bool {
        let stages = self.stages.len();
        let undo = self.undo.iter().flat_map(|undo| &undo.queue).all(|index| *index < stages);
        self.flow.is_some() == self.spec.workflow.is_some() && self.definitions().len() == stages && undo
    }
}
