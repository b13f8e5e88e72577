//! A token's text, `mp_<id>_<secret>`: made, read, and proved. The secret itself is kept by nobody but its bearer.

use milepost_core::api::{NewToken, TokenRequest, TokenView};
use milepost_core::time::Timestamp;
use milepost_store::TokenRow;
use rustls::crypto::{GetRandomFailed, ring};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::caller::ANONYMOUS;

const PREFIX: &str = "mp";
const ID_BYTES: usize = 8;
/// 256 bits: nobody guesses it, so a fast hash is enough to keep it by.
const SECRET_BYTES: usize = 32;
const LONGEST_NAME: usize = 64;
const MOST_TENANTS: usize = 1000;

/// Why a token is not made.
#[derive(Debug, thiserror::Error)]
pub enum BadToken {
    #[error(
        "a token's name is 1 to 64 letters, digits, `.`, `_` and `-`, a letter or digit first, and not `anonymous`"
    )]
    Name,
    #[error("a token is bound to at most {MOST_TENANTS} tenants")]
    Tenants,
    #[error("a token must expire later than now")]
    Expired,
    #[error("there is a token called `{0}` already; revoke it first, or choose another name")]
    Taken(String),
    #[error("the system gave no random bytes")]
    Random,
}

impl From<GetRandomFailed> for BadToken {
    fn from(GetRandomFailed: GetRandomFailed) -> Self {
        BadToken::Random
    }
}

/// Makes a token beside those that are there: the row to keep, and what to show its bearer once.
pub fn mint(request: TokenRequest, others: &[TokenRow], now: Timestamp) -> Result<(TokenRow, NewToken), BadToken> {
    let TokenRequest { name, scope, tenants, expires_at } = request;
    check_name(&name)?;
    // The log and request keys know a caller by this name alone.
    if others.iter().any(|other| other.name == name && is_live(other, now)) {
        return Err(BadToken::Taken(name));
    }
    if tenants.len() > MOST_TENANTS {
        return Err(BadToken::Tenants);
    }
    if expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(BadToken::Expired);
    }
    let (id, secret) = (random::<ID_BYTES>()?, random::<SECRET_BYTES>()?);
    let hash = hash(&secret);
    let row = TokenRow { id, name, hash, scope, tenants, created_at: now, expires_at, revoked_at: None };
    let shown = format!("{PREFIX}_{}_{secret}", row.id);
    let new = NewToken { token: TokenView::from(&row), secret: shown };
    Ok((row, new))
}

pub(super) fn is_live(row: &TokenRow, now: Timestamp) -> bool {
    row.revoked_at.is_none() && row.expires_at.is_none_or(|expires_at| expires_at > now)
}

/// The parts of a token's text.
pub(super) struct Shown<'a> {
    pub(super) id: &'a str,
    secret: &'a str,
}

impl<'a> Shown<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.strip_prefix('_')?.split_once('_')?;
        let is_hex = |part: &str, bytes: usize| {
            part.len() == 2 * bytes && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        (is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES)).then_some(Self { id, secret })
    }

    /// Takes as long for a near miss as for a far one.
    pub(super) fn proves(&self, row: &TokenRow) -> bool {
        hash(self.secret).ct_eq(&row.hash).into()
    }
}

fn check_name(name: &str) -> Result<(), BadToken> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let good = name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(allowed)
        && name != ANONYMOUS;
    if good { Ok(()) } else { Err(BadToken::Name) }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Random bytes of the system's, in hexadecimal.
fn random<const N: usize>() -> Result<String, GetRandomFailed> {
    let mut bytes = [0; N];
    ring::default_provider().secure_random.fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_core::api::Scope;

    fn request(name: &str) -> TokenRequest {
        TokenRequest { name: name.to_owned(), scope: Scope::Read, tenants: Vec::new(), expires_at: None }
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000)
    }

    #[test]
    fn only_the_secret_that_was_shown_proves_a_token() {
        let (row, new) = mint(request("ops"), &[], now()).unwrap();
        let (_, other) = mint(request("ops"), &[], now()).unwrap();
        assert!(Shown::parse(&new.secret).unwrap().proves(&row));
        assert!(!Shown::parse(&other.secret).unwrap().proves(&row));
        assert!(!format!("{row:?}").contains(new.secret.rsplit('_').next().unwrap()));
    }

    #[test]
    fn what_is_no_token_is_not_read_as_one() {
        let (_, new) = mint(request("ops"), &[], now()).unwrap();
        let cut = &new.secret[..new.secret.len() - 1];
        for text in ["", "mp", "mp_", "mp__", "mp_a_b", cut, &new.secret.to_uppercase(), &format!("{}0", new.secret)] {
            assert!(Shown::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_name_is_given_once_while_its_token_is_live() {
        let (mut row, _) = mint(request("ops"), &[], now()).unwrap();
        assert!(matches!(mint(request("ops"), &[row.clone()], now()), Err(BadToken::Taken(_))));
        row.revoked_at = Some(now());
        mint(request("ops"), &[row], now()).unwrap();
    }

    #[test]
    fn a_name_that_would_mislead_a_reader_of_the_log_is_refused() {
        for name in ["", "anonymous", "a b", "-a", "ä", "a\n", &"a".repeat(65)] {
            assert!(matches!(mint(request(name), &[], now()), Err(BadToken::Name)), "{name:?}");
        }
        let expired = TokenRequest { expires_at: Some(now()), ..request("a") };
        assert!(matches!(mint(expired, &[], now()), Err(BadToken::Expired)));
    }
}
