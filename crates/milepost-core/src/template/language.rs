//! The words an expression may use. Only those are here whose cost is bounded by the size of what they are given.

use std::sync::LazyLock;

use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, filters, tests};

/// Instructions for one expression: far more than one of 4 KiB has.
const FUEL: u64 = 10_000;
/// What a filter may make out of a few bytes.
const MAX_TEXT: usize = 1024 * 1024;
const MAX_PIECES: usize = 10_000;

pub(super) const FILTERS: &[&str] = &[
    "abs",
    "bool",
    "capitalize",
    "default",
    "first",
    "float",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lower",
    "max",
    "min",
    "replace",
    "reverse",
    "round",
    "sort",
    "split",
    "string",
    "sum",
    "times",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
];

pub(super) const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "even",
    "false",
    "float",
    "ge",
    "gt",
    "in",
    "integer",
    "le",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
];

pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    // Empty: no functions, so no `range`; no loader, so no includes; no filter that is not listed here.
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    add_filters(&mut environment);
    add_tests(&mut environment);
    environment
});

fn add_filters(environment: &mut Environment<'_>) {
    environment.add_filter("abs", filters::abs);
    environment.add_filter("bool", filters::bool);
    environment.add_filter("capitalize", filters::capitalize);
    environment.add_filter("default", filters::default);
    environment.add_filter("first", filters::first);
    environment.add_filter("float", filters::float);
    environment.add_filter("int", filters::int);
    environment.add_filter("items", filters::items);
    environment.add_filter("join", join);
    environment.add_filter("last", filters::last);
    environment.add_filter("length", filters::length);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("max", filters::max);
    environment.add_filter("min", filters::min);
    environment.add_filter("replace", replace);
    environment.add_filter("reverse", filters::reverse);
    environment.add_filter("round", filters::round);
    environment.add_filter("sort", filters::sort);
    environment.add_filter("split", split);
    environment.add_filter("string", filters::string);
    environment.add_filter("sum", filters::sum);
    environment.add_filter("times", times);
    environment.add_filter("title", filters::title);
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", filters::trim);
    environment.add_filter("unique", filters::unique);
    environment.add_filter("upper", filters::upper);
}

fn add_tests(environment: &mut Environment<'_>) {
    environment.add_test("boolean", tests::is_boolean);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("divisibleby", tests::is_divisibleby);
    environment.add_test("endingwith", tests::is_endingwith);
    environment.add_test("eq", tests::is_eq);
    environment.add_test("even", tests::is_even);
    environment.add_test("false", tests::is_false);
    environment.add_test("float", tests::is_float);
    environment.add_test("ge", tests::is_ge);
    environment.add_test("gt", tests::is_gt);
    environment.add_test("in", tests::is_in);
    environment.add_test("integer", tests::is_integer);
    environment.add_test("le", tests::is_le);
    environment.add_test("lt", tests::is_lt);
    environment.add_test("mapping", tests::is_mapping);
    environment.add_test("ne", tests::is_ne);
    environment.add_test("none", tests::is_none);
    environment.add_test("number", tests::is_number);
    environment.add_test("odd", tests::is_odd);
    environment.add_test("sequence", tests::is_sequence);
    environment.add_test("startingwith", tests::is_startingwith);
    environment.add_test("string", tests::is_string);
    environment.add_test("true", tests::is_true);
    environment.add_test("undefined", tests::is_undefined);
}

fn join(values: &Value, separator: Option<&str>) -> Result<String, Error> {
    let mut joined = String::new();
    for (i, value) in values.try_iter()?.enumerate() {
        if i > 0 {
            joined.push_str(separator.unwrap_or_default());
        }
        match value.as_str() {
            Some(text) => joined.push_str(text),
            None => joined.push_str(&value.to_string()),
        }
        bounded(joined.len())?;
    }
    Ok(joined)
}

fn replace(text: &str, from: &str, to: &str) -> Result<String, Error> {
    if from.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "cannot replace the empty text"));
    }
    let length = text.len().saturating_add(text.matches(from).count().saturating_mul(to.len()));
    // What only gets shorter was in memory before.
    if to.len() > from.len() {
        bounded(length)?;
    }
    Ok(text.replace(from, to))
}

fn split(text: &str, separator: Option<&str>) -> Result<Vec<String>, Error> {
    let pieces: Vec<String> = match separator {
        None => text.split_whitespace().take(MAX_PIECES + 1).map(str::to_owned).collect(),
        Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "cannot split at the empty text")),
        Some(separator) => text.split(separator).take(MAX_PIECES + 1).map(str::to_owned).collect(),
    };
    if pieces.len() > MAX_PIECES {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("more than {MAX_PIECES} pieces")));
    }
    Ok(pieces)
}

fn times(left: &Value, right: &Value) -> Result<Value, Error> {
    let overflow = || Error::new(ErrorKind::InvalidOperation, format!("{left} times {right} is too large"));
    if let (Ok(left), Ok(right)) = (i64::try_from(left.clone()), i64::try_from(right.clone())) {
        return left.checked_mul(right).map(Value::from).ok_or_else(overflow);
    }
    let number = |value: &Value| match value.is_number() {
        true => f64::try_from(value.clone()),
        false => Err(Error::new(ErrorKind::InvalidOperation, format!("expected a number, found a {}", value.kind()))),
    };
    Ok(Value::from(number(left)? * number(right)?))
}

fn tojson(value: &Value) -> Result<String, Error> {
    super::size_within(value, MAX_TEXT).map_err(|message| Error::new(ErrorKind::InvalidOperation, message))?;
    serde_json::to_string(value).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

fn bounded(length: usize) -> Result<(), Error> {
    if length > MAX_TEXT {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("the text would be longer than {MAX_TEXT} bytes")));
    }
    Ok(())
}
