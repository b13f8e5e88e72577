//! `{{ … }}` in parameters and the expressions of `if:`. Strict about unknown names and bounded in work.
//!
//! Only expressions, no statements: without loops and assignments, what a template can build is bounded by its length
//! and by the values it is given.

mod language;
mod scan;

use std::io;

use minijinja::value::{Serde, Value as Evaluated, ValueKind};
use serde_json::{Map, Value};

use language::{ENVIRONMENT, FILTERS, TESTS};
use scan::{Part, Token, Tokens};

/// What one rendered value may hold in all.
const MAX_RENDERED: usize = 16 * 1024 * 1024;

/// Why a template or expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    message: String,
}

impl TemplateError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    fn of(expression: &str, error: &minijinja::Error) -> Self {
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        Self::new(format!("{}{detail}, in `{}`", error.kind(), shorten(expression)))
    }
}

/// Whether `text` has anything to render.
pub fn is_template(text: &str) -> bool {
    scan::has_template(text)
}

/// Whether `text` could be rendered, given values that fit.
pub fn check_template(text: &str) -> Result<(), TemplateError> {
    names_in_template(text).map(|_| ())
}

/// Whether `text` could be evaluated, given values that fit.
pub fn check_expression(text: &str) -> Result<(), TemplateError> {
    names_in_expression(text).map(|_| ())
}

/// `value` with every template in it rendered, however deep; keys of objects stay as they are.
///
/// Text that is one expression and nothing else keeps the type of the expression's value. In any other text, values are
/// written as they are if they are text, and as JSON if not.
pub fn render_value(value: &Value, scope: &Value) -> Result<Value, TemplateError> {
    if !holds_template(value) {
        return Ok(value.clone());
    }
    let mut renderer = Renderer { scope: Evaluated::from(Serde(scope)), left: MAX_RENDERED };
    renderer.value(value)
}

/// Whether `expression` is true of `scope`.
pub fn holds(expression: &str, scope: &Value) -> Result<bool, TemplateError> {
    let expression = scan::condition(expression)?;
    evaluate(expression, &Evaluated::from(Serde(scope))).map(|value| value.is_true())
}

/// What a template or expression reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Names at the top: `input` of `input.version`. Sorted.
    pub(crate) top: Vec<String>,
    /// Stages read by name: `push` of `stages.push.outputs` and of `stages['push'].outputs`. In order of appearance.
    pub(crate) stages: Vec<String>,
}

pub(crate) fn names_in_template(text: &str) -> Result<Names, TemplateError> {
    let mut names = Names::default();
    for part in scan::split(text)? {
        if let Part::Expression(expression) = part {
            collect_names(expression, &mut names)?;
        }
    }
    Ok(names)
}

pub(crate) fn names_in_expression(text: &str) -> Result<Names, TemplateError> {
    let mut names = Names::default();
    collect_names(scan::condition(text)?, &mut names)?;
    Ok(names)
}

fn collect_names(expression: &str, names: &mut Names) -> Result<(), TemplateError> {
    let compiled = ENVIRONMENT.compile_expression(expression).map_err(|error| TemplateError::of(expression, &error))?;
    names.top.extend(compiled.undeclared_variables(false));
    names.top.sort();
    names.top.dedup();
    let tokens: Vec<Token<'_>> = Tokens(expression).collect();
    for i in 0..tokens.len() {
        let before = if i == 0 { None } else { tokens.get(i - 1) };
        match (before, &tokens[i..]) {
            (Some(Token::Symbol('|')), [Token::Name(filter), ..]) => known("filter", filter, FILTERS)?,
            (_, [Token::Name("is"), Token::Name("not"), Token::Name(test), ..]) => known("test", test, TESTS)?,
            (_, [Token::Name("is"), Token::Name(test), ..]) if *test != "not" => known("test", test, TESTS)?,
            (Some(Token::Symbol('.')), _) => {}
            (_, [Token::Name("stages"), Token::Symbol('.'), Token::Name(stage), rest @ ..])
            | (_, [Token::Name("stages"), Token::Symbol('['), Token::Text(stage), Token::Symbol(']'), rest @ ..]) => {
                reads_outputs(stage, rest)?;
                names.stages.push((*stage).to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}

fn known(what: &str, name: &str, all: &[&str]) -> Result<(), TemplateError> {
    if all.contains(&name) {
        return Ok(());
    }
    Err(TemplateError::new(format!("unknown {what} `{name}`; known are {}", all.join(", "))))
}

fn reads_outputs(stage: &str, rest: &[Token<'_>]) -> Result<(), TemplateError> {
    match rest {
        [Token::Symbol('.'), Token::Name(name), ..]
        | [Token::Symbol('['), Token::Text(name), Token::Symbol(']'), ..]
            if *name != "outputs" =>
        {
            Err(TemplateError::new(format!(
                "a stage has `outputs` and nothing else: `stages['{stage}'].outputs.{name}`"
            )))
        }
        _ => Ok(()),
    }
}

/// Whether there is anything to render.
pub fn holds_template(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => is_template(text),
        Value::Array(items) => items.iter().any(holds_template),
        Value::Object(entries) => entries.values().any(holds_template),
    }
}

struct Renderer {
    scope: Evaluated,
    /// Bytes that may still be written.
    left: usize,
}

impl Renderer {
    fn value(&mut self, value: &Value) -> Result<Value, TemplateError> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                items.iter().map(|item| self.value(item)).collect::<Result<_, _>>().map(Value::Array)
            }
            Value::Object(entries) => {
                let rendered = entries.iter().map(|(key, value)| Ok((key.clone(), self.value(value)?)));
                rendered.collect::<Result<Map<_, _>, _>>().map(Value::Object)
            }
        }
    }

    fn text(&mut self, text: &str) -> Result<Value, TemplateError> {
        if !is_template(text) {
            return Ok(Value::String(text.to_owned()));
        }
        let parts = scan::split(text)?;
        if let [Part::Expression(expression)] = parts.as_slice() {
            return self.expression(expression);
        }
        let mut rendered = String::new();
        for part in parts {
            match part {
                Part::Text(text) => rendered.push_str(text),
                Part::Expression(expression) => match self.expression(expression)? {
                    Value::String(text) => rendered.push_str(&text),
                    other => rendered.push_str(&other.to_string()),
                },
            }
        }
        Ok(Value::String(rendered))
    }

    fn expression(&mut self, expression: &str) -> Result<Value, TemplateError> {
        let value = evaluate(expression, &self.scope)?;
        let refused = |message: String| TemplateError::new(format!("{message}, in `{}`", shorten(expression)));
        self.left -= size_within(&value, self.left).map_err(refused)?;
        // JSON would quietly make it null.
        if value.kind() == ValueKind::Number && f64::try_from(value.clone()).is_ok_and(|number| !number.is_finite()) {
            return Err(refused(format!("the result is {value}, which is no number")));
        }
        serde_json::to_value(&value).map_err(|error| refused(error.to_string()))
    }
}

fn evaluate(expression: &str, scope: &Evaluated) -> Result<Evaluated, TemplateError> {
    let failed = |error: minijinja::Error| TemplateError::of(expression, &error);
    let value = ENVIRONMENT.compile_expression(expression).map_err(failed)?.eval(scope.clone()).map_err(failed)?;
    if value.is_undefined() {
        return Err(TemplateError::new(format!("there is no such value: `{}`", shorten(expression))));
    }
    Ok(value)
}

/// How many bytes `value` has as JSON, found without writing it; an error if more than `limit`.
fn size_within(value: &Evaluated, limit: usize) -> Result<usize, String> {
    let mut counter = Counter { written: 0, limit };
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => Ok(counter.written),
        Err(error) if error.is_io() => Err(format!("the result is larger than {limit} bytes")),
        Err(error) => Err(error.to_string()),
    }
}

struct Counter {
    written: usize,
    limit: usize,
}

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len();
        if self.written > self.limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 60 { text.to_owned() } else { text.chars().take(57).chain("...".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::{Duration, Instant};

    fn scope() -> Value {
        json!({
            "plan": "deploy", "task": "t-1", "tenant": "tenant-001",
            "input": {"version": "1.2.3", "count": 3, "on": true, "list": [1, 2], "none": null, "big": "x".repeat(100_000)},
            "matrix": {"region": "eu"},
            "stages": {"push": {"outputs": {"id": 7}}, "a-b": {"outputs": {"x": "y"}}},
        })
    }

    fn render(text: &str) -> Result<Value, TemplateError> {
        render_value(&json!(text), &scope())
    }

    #[test]
    fn a_text_that_is_one_expression_keeps_the_type_and_any_other_becomes_text() {
        for (text, expected) in [
            ("{{ input.count }}", json!(3)),
            ("{{ input }}", scope()["input"].clone()),
            ("{{ input.list }}", json!([1, 2])),
            ("{{ input.none }}", json!(null)),
            ("v{{ input.version }}-{{ matrix.region }}", json!("v1.2.3-eu")),
            ("{{ input.count }} ", json!("3 ")),
            ("list {{ input.list }} on {{ input.on }} none {{ input.none }}", json!("list [1,2] on true none null")),
            ("{{ stages['a-b'].outputs.x ~ stages.push.outputs.id }}", json!("y7")),
            ("{{ input.missing | default('d') }}", json!("d")),
            ("{{ 'a' if input.on else 'b' }}", json!("a")),
            ("{{ input.count | times(1024) + 1 }}", json!(3073)),
            ("{{ 'a * b' }}", json!("a * b")),
            ("{{ '<&>' }}", json!("<&>")),
            ("{{ '{{' }} literal }}", json!("{{ literal }}")),
            ("no template", json!("no template")),
        ] {
            assert_eq!(render(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn values_are_rendered_at_any_depth_and_keys_stay() {
        let value = json!({"{{ plan }}": [{"a": "{{ plan }}"}, 1, null]});
        assert_eq!(render_value(&value, &scope()).unwrap(), json!({"{{ plan }}": [{"a": "deploy"}, 1, null]}));
    }

    #[test]
    fn an_unknown_name_is_an_error_and_never_empty_text() {
        for text in
            ["{{ nope }}", "{{ input.nope }}", "x{{ input.nope }}", "{{ input.none.x }}", "{{ stages.x.outputs }}"]
        {
            assert!(render(text).is_err(), "{text}");
        }
        assert!(holds("input.nope", &scope()).is_err());
    }

    #[test]
    fn a_condition_is_judged_by_truth() {
        for (text, expected) in [
            ("input.count > 2", true),
            ("{{ input.on and tenant == 'tenant-001' }}", true),
            ("input.none", false),
            ("input.missing is defined", false),
            ("input.missing is not defined", true),
            ("'eu' in matrix.region", true),
            ("not input.list", false),
        ] {
            assert_eq!(holds(text, &scope()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn hostile_templates_end_quickly_with_an_error() {
        let nested = |open: &str, close: &str| format!("{{{{ {}1{} }}}}", open.repeat(1500), close.repeat(1500));
        let chain = |filter: &str| format!("{{{{ input.big{} }}}}", filter.repeat(30));
        for text in [
            "{{ range(10**9) }}".to_owned(),
            "{% for i in range(10**9) %}x{% endfor %}".to_owned(),
            "{{ 'x' * 10**9 }}".to_owned(),
            "{{ [1] * 10**9 }}".to_owned(),
            "{{ ([1] * 10**9) | sum }}".to_owned(),
            "{{ ([1] * 10**9) | last }}".to_owned(),
            "{{ 2 in [1] * 10**9 }}".to_owned(),
            "{{ ([1] * 10**9) | join('x') }}".to_owned(),
            "{{ 9**9**9**9 }}".to_owned(),
            "{{ input.big | times(10) }}".to_owned(),
            nested("(", ")"),
            nested("[", "]"),
            nested("-(", ")"),
            nested("not ", ""),
            chain("|replace('x','xxxxxxxx')"),
            chain("|tojson"),
            format!("{{{{ {}1 }}}}", "input.big ~ ".repeat(300)),
            format!("{{{{ [{}] }}}}", "input.big, ".repeat(300)),
            "{{ input.big }} ".repeat(300),
            "{{ x.".repeat(100_000),
            "{{ 'x' | center(10**9) }}".to_owned(),
            "{{ 'x' | indent(10**9) }}".to_owned(),
            "{{ '%999999999d' | format(1) }}".to_owned(),
        ] {
            let before = Instant::now();
            let result = render(&text);
            assert!(result.is_err(), "{} gave {:.100}", shorten(&text), format!("{result:?}"));
            assert!(before.elapsed() < Duration::from_secs(2), "{} took {:?}", shorten(&text), before.elapsed());
        }
    }

    #[test]
    fn a_bad_template_is_found_without_values() {
        for good in ["", "x", "{{ a.b.c | default(1) }}", "{{ stages['a-b'].outputs.x is defined }}"] {
            assert_eq!(check_template(good), Ok(()), "{good}");
        }
        for (bad, fragment) in [
            ("{{ a", "without `}}`"),
            ("{{ a + }}", "unexpected end"),
            ("{{ a | nope }}", "unknown filter `nope`"),
            ("{{ a is nope }}", "unknown test `nope`"),
            ("{{ stages.a.status }}", "has `outputs` and nothing else"),
            ("{% if a %}b{% endif %}", "not supported"),
            ("{{ a b }}", "unexpected"),
        ] {
            let message = check_template(bad).unwrap_err().to_string();
            assert!(message.contains(fragment), "{bad}: {message}");
        }
        assert!(check_expression("a ==").is_err());
    }

    #[test]
    fn the_names_a_template_reads_are_found() {
        let names =
            names_in_template("{{ input.x ~ stages.a.outputs.y }}{{ stages['b-c'].outputs }}{{ input.stages.z }}")
                .unwrap();
        assert_eq!(names, Names { top: vec!["input".into(), "stages".into()], stages: vec!["a".into(), "b-c".into()] });
    }

    #[test]
    fn every_listed_word_is_known_to_the_language() {
        for filter in FILTERS {
            let error = ENVIRONMENT.compile_expression(&format!("'1' | {filter}")).and_then(|e| e.eval(()));
            assert!(error.err().is_none_or(|e| e.kind() != minijinja::ErrorKind::UnknownFilter), "{filter}");
        }
        for test in TESTS {
            let error = ENVIRONMENT.compile_expression(&format!("1 is {test}(1)")).and_then(|e| e.eval(()));
            assert!(error.err().is_none_or(|e| e.kind() != minijinja::ErrorKind::UnknownTest), "{test}");
        }
    }
}
