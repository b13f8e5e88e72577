//! What each kind of caller shows.

use milepost_core::api::{NewToken, Scope, TokenRequest};
use milepost_core::id::Tenant;
use milepost_core::time::{Millis, Timestamp};
use milepost_server::mint;
use milepost_store::Store;

use crate::table::Who;
use crate::world::{ELSEWHERE, HERE};

/// The text after `Bearer`; none for those who show nothing.
pub(crate) async fn token(store: &dyn Store, who: Who, now: Timestamp) -> Option<String> {
    let admin = |name: &str| request(name, Scope::Admin, &[]);
    let shown = match who {
        Who::NoToken => return None,
        Who::Garbage => return Some("mp_not-a-token".to_owned()),
        Who::WrongSecret => {
            let (right, other) = (made(store, admin("right"), now).await, mint(admin("other"), &[], now));
            let secret = other.expect("a token").1.secret;
            let secret = secret.rsplit_once('_').expect("a secret").1;
            return Some(format!("mp_{}_{secret}", right.token.id));
        }
        Who::Expired => {
            let long_ago = Timestamp::from_millis(0);
            let expires_at = Some(long_ago + Millis::from_secs(1));
            made(store, TokenRequest { expires_at, ..admin("expired") }, long_ago).await
        }
        Who::Revoked => {
            let (mut row, new) = mint(admin("revoked"), &[], now).expect("a token");
            row.revoked_at = Some(now);
            store.put_token(row).await.expect("a store");
            new
        }
        Who::Read => made(store, request("read", Scope::Read, &[]), now).await,
        Who::Operate => made(store, request("operate", Scope::Operate, &[]), now).await,
        Who::Admin => made(store, admin("admin"), now).await,
        Who::BoundHere => made(store, request("here", Scope::Operate, &[HERE]), now).await,
        Who::BoundElsewhere => made(store, request("elsewhere", Scope::Operate, &[ELSEWHERE]), now).await,
    };
    Some(shown.secret)
}

/// A token for nobody to show; it is there to be revoked.
pub(crate) async fn spare(store: &dyn Store, now: Timestamp) -> String {
    made(store, request("spare", Scope::Read, &[]), now).await.token.id
}

fn request(name: &str, scope: Scope, tenants: &[&str]) -> TokenRequest {
    let tenants = tenants.iter().map(|tenant| Tenant::parse(tenant).expect("a tenant")).collect();
    TokenRequest { name: name.to_owned(), scope, tenants, expires_at: None }
}

async fn made(store: &dyn Store, request: TokenRequest, now: Timestamp) -> NewToken {
    let (row, new) = mint(request, &[], now).expect("a token");
    store.put_token(row).await.expect("a store");
    new
}
