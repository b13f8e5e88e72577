//! What protects a server that asks for no token from the web pages its user visits: a browser on the same machine
//! reaches the loopback as well, and takes requests there from any page.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};

use crate::app::Settings;
use crate::problem::{Answer, Problem};

/// Refuses names that are not this machine's own, behind which a page may have put its own address (DNS rebinding),
/// and changes that a page of another origin asks for.
pub(crate) fn check(settings: &Settings, method: &Method, uri: &Uri, headers: &HeaderMap) -> Answer<()> {
    let forbidden = |code, detail: String| Err(Problem::new(StatusCode::FORBIDDEN, code, detail));
    // With HTTP/2 the name comes with the address.
    let host = uri.authority().cloned().or_else(|| header(headers, header::HOST)?.parse::<Authority>().ok());
    let Some(host) = host else {
        return forbidden("unknown-host", "a request needs a Host header".to_owned());
    };
    if !is_own(settings, host.host()) {
        let detail = format!(
            "`{}` is not a name of this server; it is reached as localhost or 127.0.0.1, or under `allowed_hosts`",
            host.host()
        );
        return forbidden("unknown-host", detail);
    }
    let changes_nothing = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    if !changes_nothing && comes_from_elsewhere(headers, &host) {
        let detail = "a web page of another origin may not change anything here".to_owned();
        return forbidden("cross-origin", detail);
    }
    Ok(())
}

fn is_own(settings: &Settings, host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return address.to_canonical().is_loopback() || is_allowed(settings, bare);
    }
    let name = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || is_allowed(settings, &name)
}

fn is_allowed(settings: &Settings, host: &str) -> bool {
    settings.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
}

/// Browsers say where a page is from; programs that are no browser say nothing of it.
fn comes_from_elsewhere(headers: &HeaderMap, host: &Authority) -> bool {
    match header(headers, "sec-fetch-site".parse().expect("a header's name")) {
        Some("same-origin" | "none") => return false,
        Some(_) => return true,
        None => {}
    }
    match header(headers, header::ORIGIN) {
        // `null` among others: a page that hides where it is from.
        Some(origin) => origin.split_once("://").is_none_or(|(_, from)| !from.eq_ignore_ascii_case(host.as_str())),
        None => headers.contains_key(header::ORIGIN),
    }
}

fn header(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: Method, pairs: &[(&'static str, &str)]) -> Result<(), &'static str> {
        let settings = Settings { allowed_hosts: vec!["milepost.internal".to_owned()], ..Settings::default() };
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        check(&settings, &method, &Uri::from_static("/api/v1/plans"), &headers).map_err(|problem| problem.code())
    }

    #[test]
    fn a_server_without_tokens_answers_to_its_own_names_only() {
        for host in
            ["localhost:8080", "127.0.0.1", "127.9.9.9:1", "[::1]:80", "LOCALHOST.", "a.localhost", "milepost.internal"]
        {
            assert_eq!(checked(Method::GET, &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "192.168.0.1", "127.0.0.1.evil.example", "[::2]", "a b"]
        {
            assert_eq!(checked(Method::GET, &[("host", host)]), Err("unknown-host"), "{host}");
        }
        assert_eq!(checked(Method::GET, &[]), Err("unknown-host"));
    }

    #[test]
    fn a_page_of_another_origin_changes_nothing_even_on_the_same_machine() {
        let host = ("host", "localhost:8080");
        for other in [
            ("origin", "http://localhost:3000"),
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("origin", "file://"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(checked(Method::POST, &[host, other]), Err("cross-origin"), "{other:?}");
            assert_eq!(checked(Method::GET, &[host, other]), Ok(()), "{other:?}");
        }
        for own in [("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin"), ("user-agent", "curl")] {
            assert_eq!(checked(Method::POST, &[host, own]), Ok(()), "{own:?}");
        }
    }
}
