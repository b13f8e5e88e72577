//! Keys to the API: made, listed, revoked. Their secrets are shown once and kept by nobody.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use milepost_core::api::{List, NewToken, Scope, TokenRequest, TokenView};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::responses::{ListProblems, ReadProblems, SubmitProblems};
use crate::app::App;
use crate::auth::{BadToken, Caller, mint};
use crate::body::Object;
use crate::problem::{Answer, Problem};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(revoke))
}

/// Makes a token. The answer is the only time that its secret is shown.
#[utoipa::path(
    post,
    path = "/tokens",
    tag = "tokens",
    request_body = TokenRequest,
    responses(
        (status = 201, description = "made", body = NewToken),
        SubmitProblems,
    )
)]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Object(request): Object<TokenRequest>,
) -> Answer<(StatusCode, Json<NewToken>)> {
    may_manage(&caller)?;
    let others = app.store().tokens().await?;
    let (row, new) = mint(request, &others, app.engine().clock().now())?;
    tracing::info!(by = caller.name(), token = row.id, name = row.name, scope = ?row.scope, "a token was made");
    app.store().put_token(row).await?;
    app.tokens().forget();
    Ok((StatusCode::CREATED, Json(new)))
}

/// Every token, without its secret; also those that are revoked or have expired.
#[utoipa::path(
    get,
    path = "/tokens",
    tag = "tokens",
    responses(
        (status = 200, description = "all of them", body = List<TokenView>),
        ListProblems,
    )
)]
async fn list(State(app): State<App>, caller: Caller) -> Answer<Json<List<TokenView>>> {
    may_manage(&caller)?;
    let items = app.store().tokens().await?.iter().map(TokenView::from).collect();
    Ok(Json(List { items, next_cursor: None }))
}

/// Revokes a token: refused here at once, and by other nodes within seconds. To do it again changes nothing.
#[utoipa::path(
    delete,
    path = "/tokens/{id}",
    tag = "tokens",
    params(("id" = String, Path, description = "the part between `mp_` and the second `_`")),
    responses(
        (status = 200, description = "revoked", body = TokenView),
        ReadProblems,
    )
)]
async fn revoke(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Answer<Json<TokenView>> {
    may_manage(&caller)?;
    let row = app.store().tokens().await?.into_iter().find(|row| row.id == id);
    let mut row = row.ok_or_else(|| Problem::not_found("token", &id))?;
    if row.revoked_at.is_none() {
        row.revoked_at = Some(app.engine().clock().now());
        tracing::info!(by = caller.name(), token = row.id, name = row.name, "a token was revoked");
        app.store().put_token(row.clone()).await?;
    }
    app.tokens().forget();
    Ok(Json(TokenView::from(&row)))
}

/// One that is bound to tenants could otherwise make itself one that is not.
fn may_manage(caller: &Caller) -> Answer<()> {
    caller.may(Scope::Admin)?;
    caller.may_touch_all()
}

impl From<BadToken> for Problem {
    fn from(error: BadToken) -> Self {
        let detail = error.to_string();
        match error {
            BadToken::Name | BadToken::Tenants | BadToken::Expired => Self::bad_request(detail),
            BadToken::Taken(_) => Self::new(StatusCode::CONFLICT, "clash", detail),
            BadToken::Random => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail),
        }
    }
}
