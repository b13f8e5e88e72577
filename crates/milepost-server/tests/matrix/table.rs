//! Who may do what: one row for each route, one column for each kind of caller.

use Answer::{Allowed, Forbidden, Unauthorized};
use Reach::{Every, EveryChange, Health, Manage, Public, Tenants, TenantsChange};

/// What a caller is told. `Allowed` is whatever comes once they are let in, also that the state forbids it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    Unauthorized,
    Forbidden,
}

impl Answer {
    pub(crate) fn of(status: u16) -> Self {
        match status {
            401 => Unauthorized,
            403 => Forbidden,
            _ => Allowed,
        }
    }
}

/// Who can be asking. The first five are nobody: what they show proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    NoToken,
    Garbage,
    WrongSecret,
    Expired,
    Revoked,
    Read,
    Operate,
    Admin,
    /// May operate, and is bound to the tenant of the task that is asked for.
    BoundHere,
    /// May operate, and is bound to another.
    BoundElsewhere,
}

impl Who {
    pub(crate) const ALL: [Who; 10] = [
        Who::NoToken,
        Who::Garbage,
        Who::WrongSecret,
        Who::Expired,
        Who::Revoked,
        Who::Read,
        Who::Operate,
        Who::Admin,
        Who::BoundHere,
        Who::BoundElsewhere,
    ];
}

/// What a route reaches, which is all that decides who may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Whether the process is well.
    Health,
    /// What says nothing of any plan.
    Public,
    /// To see what is not one tenant's.
    Every,
    /// To see what is one tenant's.
    Tenants,
    /// To change what is not one tenant's.
    EveryChange,
    /// To change what is one tenant's.
    TenantsChange,
    /// Tokens.
    Manage,
}

impl Reach {
    pub(crate) fn answer(self, who: Who) -> Answer {
        let (scopes, bound) = match self {
            Health => return Allowed,
            Public => ([Allowed, Allowed, Allowed], [Allowed, Allowed]),
            Every => ([Allowed, Allowed, Allowed], [Forbidden, Forbidden]),
            Tenants => ([Allowed, Allowed, Allowed], [Allowed, Forbidden]),
            EveryChange => ([Forbidden, Allowed, Allowed], [Forbidden, Forbidden]),
            TenantsChange => ([Forbidden, Allowed, Allowed], [Allowed, Forbidden]),
            Manage => ([Forbidden, Forbidden, Allowed], [Forbidden, Forbidden]),
        };
        match who {
            Who::NoToken | Who::Garbage | Who::WrongSecret | Who::Expired | Who::Revoked => Unauthorized,
            Who::Read => scopes[0],
            Who::Operate => scopes[1],
            Who::Admin => scopes[2],
            Who::BoundHere => bound[0],
            Who::BoundElsewhere => bound[1],
        }
    }
}

pub(crate) const ROUTES: &[(&str, Reach)] = &[
    ("GET /healthz", Health),
    ("GET /readyz", Health),
    ("GET /metrics", Every),
    ("GET /api/v1/docs", Public),
    ("GET /api/v1/openapi.json", Public),
    ("GET /api/v1/consumer", Every),
    ("POST /api/v1/consumer/pause", EveryChange),
    ("POST /api/v1/consumer/resume", EveryChange),
    ("GET /api/v1/dead-letters", Every),
    // A letter is its task's, and so its task's tenant's.
    ("GET /api/v1/dead-letters/{id}", Tenants),
    ("POST /api/v1/dead-letters/{id}/redrive", TenantsChange),
    ("GET /api/v1/locks", Every),
    ("GET /api/v1/nodes", Every),
    ("GET /api/v1/plans", Every),
    // Its tasks say whose it is.
    ("POST /api/v1/plans", TenantsChange),
    ("GET /api/v1/plans/{id}", Every),
    ("GET /api/v1/plans/{id}/progress", Every),
    ("GET /api/v1/plans/{id}/progress/stream", Every),
    ("GET /api/v1/plans/{id}/report", Every),
    ("GET /api/v1/plans/{id}/tasks", Every),
    ("POST /api/v1/plans/{id}/cancel", EveryChange),
    ("POST /api/v1/plans/{id}/pause", EveryChange),
    ("POST /api/v1/plans/{id}/reset-failed", EveryChange),
    ("POST /api/v1/plans/{id}/resume", EveryChange),
    ("POST /api/v1/plans/{id}/retry", EveryChange),
    ("POST /api/v1/plans/{id}/rollback", EveryChange),
    ("POST /api/v1/plans/{id}/start", EveryChange),
    ("GET /api/v1/tasks/{id}", Tenants),
    ("GET /api/v1/tasks/{id}/checkpoint", Tenants),
    ("GET /api/v1/tasks/{id}/events", Tenants),
    ("GET /api/v1/tasks/{id}/explain", Tenants),
    ("GET /api/v1/tasks/{id}/logs", Tenants),
    ("GET /api/v1/tasks/{id}/progress/stream", Tenants),
    ("POST /api/v1/tasks/{id}/cancel", TenantsChange),
    ("POST /api/v1/tasks/{id}/pause", TenantsChange),
    ("POST /api/v1/tasks/{id}/publish", TenantsChange),
    ("POST /api/v1/tasks/{id}/repair", TenantsChange),
    ("POST /api/v1/tasks/{id}/reset-failed", TenantsChange),
    ("POST /api/v1/tasks/{id}/resume", TenantsChange),
    ("POST /api/v1/tasks/{id}/retry", TenantsChange),
    ("POST /api/v1/tasks/{id}/rollback", TenantsChange),
    ("POST /api/v1/tasks/{id}/signals/{name}", TenantsChange),
    ("GET /api/v1/tenants/{tenant}/checkpoint", Tenants),
    ("GET /api/v1/tenants/{tenant}/lock", Tenants),
    ("GET /api/v1/tenants/{tenant}/task", Tenants),
    ("POST /api/v1/tenants/{tenant}/cancel", TenantsChange),
    ("POST /api/v1/tenants/{tenant}/pause", TenantsChange),
    ("POST /api/v1/tenants/{tenant}/resume", TenantsChange),
    ("POST /api/v1/tenants/{tenant}/retry", TenantsChange),
    ("POST /api/v1/tenants/{tenant}/rollback", TenantsChange),
    ("GET /api/v1/tokens", Manage),
    ("POST /api/v1/tokens", Manage),
    ("DELETE /api/v1/tokens/{id}", Manage),
];
