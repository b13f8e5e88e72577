//! What `with:` asks for. Before a plan is accepted only what holds no template can be judged; the rest when it runs.

use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use reqwest::{Method, Url};
use serde_json::Value;

use crate::parameters::{holds_template, is_template, only_keys};

pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    /// As the plan gave them.
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Body>,
    /// None: any 2xx.
    pub(super) expect: Option<Vec<u16>>,
}

pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Unless the plan names another.
    pub(super) content_type: &'static str,
}

const KEYS: [&str; 5] = ["method", "url", "headers", "body", "expect"];

pub(super) fn parse(with: &Value) -> Result<Request, String> {
    only_keys("http", with, &KEYS)?;
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(&with["headers"])? {
        let (name, value) = header(name, value)?;
        headers.insert(name, value);
    }
    Ok(Request {
        method: method(&with["method"])?,
        url: url(&with["url"])?,
        headers,
        body: body(&with["body"]),
        expect: expect(&with["expect"])?,
    })
}

/// The URL, when it is known already.
pub(super) fn check(with: &Value) -> Result<Option<Url>, String> {
    only_keys("http", with, &KEYS)?;
    if !is_template(&with["method"]) {
        method(&with["method"])?;
    }
    if !is_template(&with["headers"]) {
        for (name, value) in pairs(&with["headers"])? {
            let value = if is_template(value) { &Value::Null } else { value };
            header(name, value)?;
        }
    }
    if !holds_template(&with["expect"]) {
        expect(&with["expect"])?;
    }
    if is_template(&with["url"]) { Ok(None) } else { url(&with["url"]).map(Some) }
}

fn method(value: &Value) -> Result<Method, String> {
    let text = match value {
        Value::Null => return Ok(Method::GET),
        Value::String(text) => text.to_ascii_uppercase(),
        _ => return Err("`method` must be text, such as GET or POST".to_owned()),
    };
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if method != Method::CONNECT => Ok(method),
        Ok(_) | Err(_) => Err(format!("{text:?} is not a method that `http` can send")),
    }
}

/// Errors never quote the URL: it may carry secrets.
fn url(value: &Value) -> Result<Url, String> {
    let text = match value {
        Value::String(text) => text,
        Value::Null => return Err("`http` needs a `url`".to_owned()),
        _ => return Err("`url` must be text".to_owned()),
    };
    let url = Url::parse(text).map_err(|error| format!("`url` is not a URL: {error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(format!("`url` must begin with http:// or https://, not {other}:")),
    }
}

fn pairs(value: &Value) -> Result<impl Iterator<Item = (&String, &Value)>, String> {
    match value {
        Value::Null => Ok(None.into_iter().flatten()),
        Value::Object(headers) => Ok(Some(headers).into_iter().flatten()),
        _ => Err("`headers` must be an object of names and values".to_owned()),
    }
}

/// Errors never quote the value: it may be a secret.
fn header(name: &str, value: &Value) -> Result<(HeaderName, HeaderValue), String> {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) => return Err(format!("the header {name:?} must be text")),
    };
    let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not the name of a header"))?;
    if known == CONTENT_LENGTH || known == TRANSFER_ENCODING {
        return Err(format!("the header {name:?} follows from the body and cannot be set"));
    }
    let mut value =
        HeaderValue::try_from(text).map_err(|_| format!("the value of the header {name:?} cannot be sent"))?;
    value.set_sensitive(true);
    Ok((known, value))
}

fn body(value: &Value) -> Option<Body> {
    match value {
        Value::Null => None,
        Value::String(text) => {
            Some(Body { bytes: text.clone().into_bytes(), content_type: "text/plain; charset=utf-8" })
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some(Body { bytes: value.to_string().into_bytes(), content_type: "application/json" })
        }
    }
}

fn expect(value: &Value) -> Result<Option<Vec<u16>>, String> {
    let Some(expect) = only_keys("expect", value, &["status"])? else { return Ok(None) };
    match expect.get("status") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) if items.is_empty() => Err("`expect.status` is empty".to_owned()),
        Some(Value::Array(items)) => items.iter().map(status).collect::<Result<_, _>>().map(Some),
        Some(single) => Ok(Some(vec![status(single)?])),
    }
}

/// A template renders to text, so a number in text is one as well.
fn status(value: &Value) -> Result<u16, String> {
    let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
    match number.and_then(|number| u16::try_from(number).ok()) {
        Some(status @ 200..=599) => Ok(status),
        _ => Err(format!("`expect.status` holds {value}; expected a status from 200 to 599")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_holds_no_template_is_checked_before_the_plan_is_accepted() {
        for good in [
            json!({"url": "http://127.0.0.1:9000/health/{{ tenant }}", "method": "GET", "expect": {"status": 200}}),
            json!({"url": "https://example.org/", "expect": {"status": [200, "204", 404]}}),
            json!({"url": "{{ input.url }}", "method": "{{ input.method }}", "headers": {"X": "{{ a }}\n"}, "body": [1]}),
            json!({"url": "http://a/", "expect": {"status": "{{ input.status }}"}, "headers": {"X-Number": 1}}),
        ] {
            assert!(check(&good).is_ok(), "{good}: {:?}", check(&good).err());
        }
        for bad in [
            json!(null),
            json!({}),
            json!({"url": "/relative"}),
            json!({"url": "ftp://host/"}),
            json!({"url": "http://"}),
            json!({"url": 5}),
            json!({"uri": "http://a/"}),
            json!({"url": "http://a/", "method": "NO SUCH"}),
            json!({"url": "http://a/", "method": "CONNECT"}),
            json!({"url": "http://a/", "headers": {"bad name": "x"}}),
            json!({"url": "http://a/", "headers": {"X": "line\nbreak"}}),
            json!({"url": "http://a/", "headers": {"Content-Length": "5"}}),
            json!({"url": "http://a/", "headers": []}),
            json!({"url": "http://a/", "expect": {"status": 99}}),
            json!({"url": "http://a/", "expect": {"status": []}}),
            json!({"url": "http://a/", "expect": {"code": 200}}),
            json!({"url": "http://a/", "expect": 200}),
        ] {
            assert!(check(&bad).is_err(), "{bad}");
            assert!(parse(&bad).is_err(), "{bad}");
        }
    }
}
