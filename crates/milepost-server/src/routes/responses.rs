//! What else a route may answer, for the document: one list for each kind of route.

use std::collections::BTreeMap;

use milepost_core::api::ProblemView;
use utoipa::openapi::{ContentBuilder, HeaderBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Type};
use utoipa::{IntoResponses, ToSchema};

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident: [$($status:literal),+];)+) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    [$($status),+].into_iter().map(|status: u16| (status.to_string(), problem(status).into())).collect()
                }
            }
        )+
    };
}

problems!(
    /// Of lists, and of what is always there.
    ListProblems: [400, 401, 403, 429, 500, 503];
    /// Of one thing, that may not be there.
    ReadProblems: [400, 401, 403, 404, 429, 500, 503];
    SubmitProblems: [400, 401, 403, 409, 413, 415, 422, 429, 500, 503];
    VerbProblems: [400, 401, 403, 404, 409, 413, 415, 422, 429, 500, 503];
);

fn problem(status: u16) -> Response {
    let text = match status {
        400 => {
            "What was asked cannot be read: a query parameter, a name in the path, a header, or text that is no JSON"
        }
        401 => "There is no token, or it is not valid",
        403 => "The token does not allow this, or the plan has commands and the server takes none",
        404 => "There is no such thing",
        409 => "Its state forbids it, it is at another version, or it clashes with what is there",
        413 => "The body is too large",
        415 => "The body is of another kind than is read here",
        422 => {
            "It was read, and is wrong: `errors` says where. Or (`key-reused`) its `Idempotency-Key` was used for another"
        }
        429 => "Too many requests",
        500 => "What is stored cannot be read",
        503 => "The store is out of reach, or busy: try again",
        _ => "Another problem",
    };
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemView::name()))).build();
    let response = ResponseBuilder::new().description(text).content("application/problem+json", content);
    if !matches!(status, 409 | 429 | 503) {
        return response.build();
    }
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let retry_after =
        HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds until it is worth trying again"));
    response.header("Retry-After", retry_after.build()).build()
}
