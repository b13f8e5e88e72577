//! The document that describes the API, made from the code of its routes, and the page that shows it.

use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::body::Bytes;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use milepost_core::api::ProblemView;
use serde_json::{Map, Value, json};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, Settings};

const PAGE: &str = include_str!("docs.html");
/// The page has all it needs in itself and asks nobody but this server; only what bears the nonce is its own.
const PAGE_MAY: &str = "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The finished document; known only once every route is.
#[derive(Debug, Clone, Default)]
pub(super) struct Document(Arc<OnceLock<Bytes>>);

pub(super) fn routes(document: &Document) -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(openapi)).routes(routes!(docs)).layer(Extension(document.clone()))
}

/// What every route adds itself to.
pub(super) fn blank() -> OpenApi {
    let bearer = SecurityScheme::Http(
        Http::builder()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("`mp_<id>_<secret>`, as `POST /tokens` answers it"))
            .build(),
    );
    let components = ComponentsBuilder::new()
        .schema(ProblemView::name(), ProblemView::schema())
        .schema(milepost_core::api::ProblemPart::name(), milepost_core::api::ProblemPart::schema())
        .security_scheme("bearer", bearer);
    let info = InfoBuilder::new()
        .title("Milepost")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Durable plans of tasks of stages: each stage's result is kept before the next one starts."));
    OpenApiBuilder::new().info(info).components(Some(components.build())).build()
}

impl Document {
    pub(super) fn finish(&self, api: &OpenApi, settings: &Settings) {
        let mut document = serde_json::to_value(api).expect("the document is made of texts and numbers");
        if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
            // In place of what stands there for the plan: the schema that editors and `milepost schema` have.
            schemas.extend(milepost_core::plan::openapi_schemas("Plan"));
            mend(schemas);
        }
        let bearer = json!({ "bearer": [] });
        // Without tokens set up, a request needs none.
        document["security"] = if settings.require_token { json!([bearer]) } else { json!([{}, bearer]) };
        document["tags"] = tags();
        let text = serde_json::to_vec(&document).expect("JSON is JSON");
        // Only the first of several would be served, and there is only one.
        let _ = self.0.set(text.into());
    }
}

/// What the derived schemas cannot say.
fn mend(schemas: &mut Map<String, Value>) {
    for (name, schema) in schemas.iter_mut() {
        // A list's items by their name, rather than spelled out again.
        if let Some(item) = name.strip_prefix("List_") {
            schema["properties"]["items"]["items"] = json!({ "$ref": format!("#/components/schemas/{item}") });
        }
    }
    if let Some(words) = schemas.get_mut("VerbWords") {
        words["additionalProperties"] = json!(false);
    }
    // No checkpoint is no null, but nothing beside `hasCheckpoint`.
    if let Some(checkpoint) = schemas.get_mut("CheckpointView") {
        checkpoint["allOf"][0] = json!({
            "oneOf": [{ "$ref": "#/components/schemas/Checkpoint" }, { "type": "object", "maxProperties": 1 }]
        });
    }
}

fn tags() -> Value {
    json!([
        { "name": "plans", "description": "Plans as a whole: handing in, watching, operating" },
        { "name": "tasks", "description": "One task: state, log, checkpoint, output" },
        { "name": "tenants", "description": "The task of a tenant that matters most, and who holds the tenant" },
        { "name": "machinery", "description": "Nodes and locks" },
        { "name": "health", "description": "Whether the process lives and can do its work" },
        { "name": "docs", "description": "This document" },
    ])
}

/// The description of this API, as OpenAPI 3.1.
#[utoipa::path(get, path = "/openapi.json", tag = "docs", security(()),
    responses((status = 200, description = "The document", body = Value, content_type = "application/json")))]
async fn openapi(Extension(Document(document)): Extension<Document>) -> impl IntoResponse {
    let bytes = document.get().cloned().unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")], bytes)
}

/// This API as a page for people.
#[utoipa::path(get, path = "/docs", tag = "docs", security(()),
    responses((status = 200, description = "A page", body = String, content_type = "text/html")))]
async fn docs() -> impl IntoResponse {
    let nonce = uuid::Uuid::now_v7().simple().to_string();
    let with_nonce = |text: &str| text.replace("{nonce}", &nonce);
    let headers = [
        (header::CONTENT_SECURITY_POLICY, with_nonce(PAGE_MAY)),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        // A nonce is for once.
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, Html(with_nonce(PAGE)))
}
