//! `token`: keys to the API of a server, made where its store is, or by the server itself.

use milepost::Client;
use milepost_core::api::{List, NewToken, Scope, TokenRequest, TokenView};
use milepost_core::id::Tenant;
use milepost_core::time::{Millis, Timestamp};
use milepost_engine::Clock;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};
use crate::socket::{TokenAnswer, TokenOrder, TokenVerb, ask};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Make a token and print it, once
    Create(Create),
    /// Every token, without its secret
    List,
    /// Refuse a token from now on
    Revoke {
        /// The part between `mp_` and the second `_`
        id: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// How the log will call its bearer
    name: String,
    /// What it allows, each including those before it
    #[arg(long, value_enum)]
    scope: ScopeName,
    /// Only tasks of this tenant; may be given more than once
    #[arg(long = "tenant", value_name = "T")]
    tenants: Vec<String>,
    /// For how long, such as 12h or 30d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<Millis>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ScopeName {
    /// See everything, change nothing
    Read,
    /// Submit plans and use the operator's verbs
    Operate,
    /// Make and revoke tokens
    Admin,
}

impl From<ScopeName> for Scope {
    fn from(name: ScopeName) -> Self {
        match name {
            ScopeName::Read => Scope::Read,
            ScopeName::Operate => Scope::Operate,
            ScopeName::Admin => Scope::Admin,
        }
    }
}

pub(crate) async fn token(context: &Context, args: Args) -> Outcome {
    let verb = args.verb.order()?;
    let answer = match context.client()? {
        Some(client) => by_server(&client, verb).await?,
        None => by_owner(context, verb).await?,
    };
    match answer {
        TokenAnswer::Created(new) => show_new(context, &new),
        TokenAnswer::Tokens(tokens) => show_all(context, tokens),
        TokenAnswer::Revoked(token) => show_revoked(context, &token),
        other @ (TokenAnswer::Refused { .. } | TokenAnswer::NotFound { .. } | TokenAnswer::Failed { .. }) => {
            return Err(other.failure());
        }
    }
    Ok(Exit::Done)
}

async fn by_owner(context: &Context, verb: TokenVerb) -> Result<TokenAnswer, Failure> {
    let url = context.store()?;
    url.must_exist().map_err(|failure| failure.help("`milepost serve` makes one as well"))?;
    Ok(ask(&url, &TokenOrder::new(verb)).await?.0)
}

async fn by_server(client: &Client, verb: TokenVerb) -> Result<TokenAnswer, Failure> {
    Ok(match verb {
        TokenVerb::Create { mut request, lives_for } => {
            request.expires_at = lives_for.map(|length| Clock::system().now() + length);
            TokenAnswer::Created(client.create_token(&request).await?)
        }
        TokenVerb::List => TokenAnswer::Tokens(client.tokens().await?.items),
        TokenVerb::Revoke { id } => TokenAnswer::Revoked(client.revoke_token(&id).await?),
    })
}

impl Verb {
    fn order(self) -> Result<TokenVerb, Failure> {
        Ok(match self {
            Verb::Create(create) => {
                let tenants: Result<Vec<Tenant>, _> = create.tenants.iter().map(Tenant::parse).collect();
                let tenants = tenants.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
                let scope = create.scope.into();
                let request = TokenRequest { name: create.name, scope, tenants, expires_at: None };
                TokenVerb::Create { request, lives_for: create.expires }
            }
            Verb::List => TokenVerb::List,
            Verb::Revoke { id } => TokenVerb::Revoke { id },
        })
    }
}

fn show_new(context: &Context, new: &NewToken) {
    let mut data = Data::new();
    if context.json {
        return data.json(new);
    }
    // Alone on its line, for `TOKEN=$(milepost token create ...)`.
    data.line(&new.secret);
    if !context.quiet {
        let NewToken { token, .. } = new;
        let until = token.expires_at.map(|at| format!(", until {at}")).unwrap_or_default();
        let revoke = context.command(&format!("token revoke {}", token.id));
        output::message(&format!(
            "token {} ({}, {}{until}): shown this once; `{revoke}` ends it",
            token.name,
            token.id,
            scope(token.scope)
        ));
    }
}

fn show_all(context: &Context, tokens: Vec<TokenView>) {
    let mut data = Data::new();
    if context.json {
        return data.json(&List { items: tokens, next_cursor: None });
    }
    if tokens.is_empty() && !context.quiet {
        let create = context.command("token create NAME --scope read");
        output::message(&format!("there are no tokens; `{create}` makes one"));
    }
    let width = tokens.iter().map(|token| token.name.len()).max().unwrap_or_default();
    for token in tokens {
        let tenants: Vec<&str> = token.tenants.iter().map(Tenant::as_str).collect();
        let tenants = if tenants.is_empty() { String::new() } else { format!("  tenants {}", tenants.join(", ")) };
        data.line(format!(
            "{}  {:width$}  {:7}  {}{tenants}",
            token.id,
            token.name,
            scope(token.scope),
            state(token.revoked_at, token.expires_at)
        ));
    }
}

fn show_revoked(context: &Context, token: &TokenView) {
    let mut data = Data::new();
    if context.json {
        return data.json(token);
    }
    data.line(format!("{} {} {}", token.id, token.name, state(token.revoked_at, token.expires_at)));
}

fn state(revoked_at: Option<Timestamp>, expires_at: Option<Timestamp>) -> String {
    match (revoked_at, expires_at) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) => format!("until {at}"),
        (None, None) => "until revoked".to_owned(),
    }
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Operate => "operate",
        Scope::Admin => "admin",
    }
}

/// Tokens live for longer than stages run: days count as well.
fn lifetime(text: &str) -> Result<Millis, String> {
    let hours = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()?.checked_mul(24));
    let length = match hours {
        Some(hours) => format!("{hours}h").parse::<Millis>(),
        None => text.parse::<Millis>(),
    };
    let length = length.map_err(|_| format!("`{text}` is not a time; expected such as 12h or 30d"))?;
    if length == Millis::ZERO { Err("a token must live for a while".to_owned()) } else { Ok(length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_may_be_in_days() {
        assert_eq!(lifetime("30d"), Ok(Millis::from_secs(30 * 24 * 3600)));
        assert_eq!(lifetime("90m"), Ok(Millis::from_secs(90 * 60)));
        for bad in ["", "d", "30", "0d", "0s", "-1d", "99999999999999999999d", "1w"] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
    }
}
