//! The sender of a request, as handlers see them.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use milepost_core::api::Scope;
use milepost_core::id::Tenant;
use milepost_core::task::By;
use milepost_store::TokenRow;

use crate::app::App;
use crate::problem::{Answer, Problem};

/// Who a log names when no token was asked for.
pub(super) const ANONYMOUS: &str = "anonymous";

/// The sender of a request. Handlers ask it before they do anything.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// As the log names them: a token's name, or `anonymous` on a loopback address without tokens.
    name: String,
    /// Of the token they showed, if they showed one.
    token: Option<String>,
    scope: Scope,
    /// Empty: not bound to any.
    tenants: Vec<Tenant>,
}

impl Caller {
    fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), token: None, scope: Scope::Admin, tenants: Vec::new() }
    }

    pub(super) fn of(row: &TokenRow) -> Self {
        Self { name: row.name.clone(), token: Some(row.id.clone()), scope: row.scope, tenants: row.tenants.clone() }
    }

    pub(crate) fn may(&self, scope: Scope) -> Answer<()> {
        if self.scope >= scope {
            return Ok(());
        }
        let detail = format!("this token may only `{:?}`, and this needs `{scope:?}`", self.scope).to_lowercase();
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }

    /// A task of this tenant. One bound to tenants has nothing to do with others, nor with tasks of none.
    pub(crate) fn may_touch(&self, tenant: Option<&Tenant>) -> Answer<()> {
        if self.tenants.is_empty() || tenant.is_some_and(|tenant| self.tenants.contains(tenant)) {
            return Ok(());
        }
        Err(Problem::new(StatusCode::FORBIDDEN, "other-tenant", "this token is bound to other tenants"))
    }

    /// What is not any one tenant's: plans as a whole, lists, nodes, locks.
    pub(crate) fn may_touch_all(&self) -> Answer<()> {
        if self.tenants.is_empty() {
            return Ok(());
        }
        let detail = "this token is bound to tenants: use /tenants/{t}/... and /tasks/{id}";
        Err(Problem::new(StatusCode::FORBIDDEN, "other-tenant", detail))
    }

    pub(crate) fn by(&self, why: Option<String>) -> By {
        By { who: self.name.clone(), why }
    }

    /// Keeps one caller's request keys from another's.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
}

/// A token that is shown must be a good one, also where none is needed: a script learns early that its token is dead.
pub(crate) async fn authenticate(app: &App, headers: &HeaderMap) -> Answer<Caller> {
    match bearer(headers)? {
        Some(text) => app.tokens().prove(app.store(), text, app.engine().clock().now()).await,
        None if app.settings().require_token => {
            let detail = "a token is needed: send `Authorization: Bearer mp_...`";
            Err(Problem::new(StatusCode::UNAUTHORIZED, "token-missing", detail))
        }
        None => Ok(Caller::anonymous()),
    }
}

fn bearer(headers: &HeaderMap) -> Answer<Option<&str>> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().ok().and_then(|value| value.split_once(' '));
    match text {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        Some(_) | None => {
            let detail = "only `Authorization: Bearer mp_...` is understood";
            Err(Problem::new(StatusCode::UNAUTHORIZED, "invalid-token", detail))
        }
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        // Found out once, before the request came here.
        match parts.extensions.get::<Caller>() {
            Some(caller) => Ok(caller.clone()),
            None => authenticate(app, &parts.headers).await,
        }
    }
}
