//! Taking a plan in: read, checked, allowed, and stored as a whole or not at all.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use milepost_core::api::{Accepted, PlanView, ProblemPart, Scope};
use milepost_core::id::IdempotencyKey;
use milepost_core::plan::{Action, Plan, PlanErrors, StageDefinition};
use milepost_engine::EngineError;
use milepost_store::{RequestKey, Resubmit, Start, StoreError, Submitted};
use serde::de::IgnoredAny;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::responses::SubmitProblems;
use crate::app::App;
use crate::auth::Caller;
use crate::body;
use crate::extract::{Parameters, Query, Refused, flag, once};
use crate::idempotency;
use crate::problem::{Answer, Problem};

/// Reading a larger plan takes long enough to keep others waiting, so that it gets a thread of its own.
const READ_IN_PLACE: usize = 64 * 1024;
const YAML: [&str; 3] = ["application/yaml", "application/x-yaml", "text/yaml"];

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(submit_plan))
}

/// A plan file's content. The document gets the schema that `milepost schema` prints in its place.
pub(super) struct PlanBody;

impl PartialSchema for PlanBody {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().into()
    }
}

impl ToSchema for PlanBody {
    fn name() -> std::borrow::Cow<'static, str> {
        "Plan".into()
    }
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct SubmitOptions {
    /// Start it as soon as it is stored; otherwise it is READY until somebody does. With `trigger: message` it always is
    /// started, and its tasks wait for their messages.
    #[param(default = false)]
    start: Option<bool>,
    /// When the plan is there with other content: add new tasks and remove those gone, while none of it runs.
    #[param(default = false)]
    update: Option<bool>,
    /// Of a plan with `trigger: message`: in the same commit put a message for each of its tasks into the outbox.
    #[param(default = false)]
    publish: Option<bool>,
}

impl Parameters for SubmitOptions {
    const NAMES: &'static [&'static str] = &["start", "update", "publish"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        match name {
            "start" => once(&mut self.start, flag(value)?),
            "update" => once(&mut self.update, flag(value)?),
            "publish" => once(&mut self.publish, flag(value)?),
            _ => Err(Refused::Unknown),
        }
    }
}

/// Hands in a plan.
///
/// The body is a plan file, as JSON or YAML. The same plan again carries on; other content under its id is refused.
#[utoipa::path(post, path = "/plans", tag = "plans",
    params(
        SubmitOptions,
        ("Idempotency-Key" = Option<String>, Header, pattern = r#"^([!#-~]([ -~]{0,253}[!-~])?|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#,
            description = "Names this request: sent again within a day, it gets the first one's answer", example = "7f3a-deploy")
    ),
    request_body(description = "The plan", content(
        (PlanBody = "application/json", example = json!({
            "plan": "deploy-2025-11",
            "stages": [{ "name": "push", "uses": "noop" }, { "name": "verify", "uses": "noop" }],
            "tasks": [{ "id": "task-1", "tenant": "tenant-001" }, { "matrix": { "tenant": ["tenant-002", "tenant-003"] } }],
        })),
        (PlanBody = "application/yaml"),
        (PlanBody = "application/x-yaml"),
        (PlanBody = "text/yaml"),
    )),
    responses(
        (status = 201, description = "Stored, and durable", body = Accepted, headers(
            ("Location" = String, description = "Where the plan is"),
            ("Idempotency-Replayed" = String, description = "`true` when this is the answer of an earlier request"),
        )),
        (status = 200, description = "It was there already", body = Accepted, headers(
            ("Location" = String, description = "Where the plan is"),
            ("Idempotency-Replayed" = String, description = "`true` when this is the answer of an earlier request"),
        )),
        SubmitProblems,
    ))]
async fn submit_plan(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<SubmitOptions>,
    request: Request,
) -> Answer<Response> {
    caller.may(Scope::Operate)?;
    if asked.update.unwrap_or(false) {
        // What the new content leaves out is removed, whichever tenant it is of.
        caller.may_touch_all()?;
    }
    let (parts, content) = request.into_parts();
    let key = idempotency::key(&parts.headers)?;
    let format = format(body::media_type(&parts.headers))?;
    let bytes = body::read(&parts.headers, content, app.settings().max_body_bytes).await?;
    let request = key.as_ref().map(|key| {
        let query = parts.uri.query().unwrap_or_default();
        let asked = [parts.method.as_str(), parts.uri.path(), query, body::media_type(&parts.headers)];
        let [method, path, query, media] = asked.map(str::as_bytes);
        idempotency::request_key(&caller, key, &[method, path, query, media, &bytes])
    });
    let _turn = request.as_ref().map(|request| app.in_flight().enter(request)).transpose()?;
    let plan = read(&app, format, bytes).await?;
    allowed(&app, &caller, &plan)?;
    let submitted = submit(&app, plan, &asked, request).await;
    answer(submitted.map_err(|error| refusal(error, key.as_ref()))?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Yaml,
}

fn format(media_type: &str) -> Answer<Format> {
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(Format::Json);
    }
    if YAML.iter().any(|yaml| media_type.eq_ignore_ascii_case(yaml)) {
        return Ok(Format::Yaml);
    }
    Err(body::unsupported(media_type, "application/json, application/yaml, application/x-yaml or text/yaml"))
}

async fn read(app: &App, format: Format, bytes: Bytes) -> Answer<Plan> {
    if bytes.len() <= READ_IN_PLACE {
        return read_now(app, format, &bytes);
    }
    let app = app.clone();
    let reading = tokio::task::spawn_blocking(move || read_now(&app, format, &bytes)).await;
    reading.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn read_now(app: &App, format: Format, bytes: &[u8]) -> Answer<Plan> {
    if format == Format::Json {
        // The reader of plans takes YAML as well, which is more than this says it is.
        body::json::<IgnoredAny>(bytes)?;
    }
    app.engine().registry().read_plan("body", bytes).map_err(invalid)
}

fn invalid(errors: PlanErrors) -> Problem {
    let total = errors.errors.len() + errors.more;
    let first =
        errors.errors.first().map(|error| format!("line {}, column {}: {}", error.line, error.column, error.message));
    let found = if total == 1 { "1 error".to_owned() } else { format!("{total} errors") };
    let detail = format!("the plan has {found}; {}", first.unwrap_or_default());
    let parts = errors.errors.into_iter().map(|error| ProblemPart {
        message: error.message,
        path: Some(error.path).filter(|path| !path.is_empty()),
        help: error.help,
        line: Some(error.line as u64),
        column: Some(error.column as u64),
    });
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-plan", detail).with_parts(parts.collect())
}

fn allowed(app: &App, caller: &Caller, plan: &Plan) -> Answer<()> {
    for task in &plan.tasks {
        caller.may_touch(task.tenant.as_ref())?;
    }
    if app.settings().allow_commands {
        return Ok(());
    }
    let own = plan.tasks.iter().filter_map(|task| task.stages.as_ref());
    let mut stages = std::iter::once(&plan.definition.stages).chain(own).flat_map(|stages| stages.iter());
    match stages.find(|stage| runs_command(stage)) {
        None => Ok(()),
        Some(stage) => {
            let detail = format!(
                "stage `{}` has a command, and this server takes none; `milepost serve --allow-commands` would",
                stage.name
            );
            Err(Problem::new(StatusCode::FORBIDDEN, "commands-not-allowed", detail))
        }
    }
}

fn runs_command(stage: &StageDefinition) -> bool {
    let is_command = |action: &Action| action.script.is_some() || action.uses == "run";
    is_command(&stage.action) || stage.rollback.as_ref().is_some_and(is_command)
}

async fn submit(
    app: &App,
    plan: Plan,
    asked: &SubmitOptions,
    request: Option<RequestKey>,
) -> Result<Submitted, EngineError> {
    let start = if asked.start.unwrap_or(false) { Start::AtOnce } else { Start::Later };
    let resubmit = if asked.update.unwrap_or(false) { Resubmit::Update } else { Resubmit::Same };
    if asked.publish.unwrap_or(false) {
        return app.engine().submit_and_publish(Arc::new(plan), resubmit, request, None).await;
    }
    app.engine().submit_under(Arc::new(plan), start, resubmit, request).await
}

/// The store's key is ours; the client knows its own.
fn refusal(error: EngineError, key: Option<&IdempotencyKey>) -> Problem {
    match (error, key) {
        (EngineError::Store(StoreError::KeyReused { .. }), Some(key)) => {
            EngineError::Store(StoreError::KeyReused { key: key.to_string() }).into()
        }
        (error, _) => error.into(),
    }
}

fn answer(submitted: Submitted) -> Answer<Response> {
    let Submitted { plan, created, replayed, difference } = submitted;
    let location = format!("/api/v1/plans/{}", plan.id);
    let location = HeaderValue::try_from(location).expect("a plan id is made of characters that headers may have");
    let accepted =
        Accepted { plan: PlanView::from(&plan), created, added: difference.added, removed: difference.removed };
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, [(header::LOCATION, location)], Json(accepted)).into_response();
    if replayed {
        response.headers_mut().insert(idempotency::REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}
