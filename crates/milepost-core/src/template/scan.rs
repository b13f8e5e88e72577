//! Where a text has `{{ … }}`, and what the expression in it is made of. Evaluates nothing.

use super::TemplateError;

/// Longer than any expression a person reads.
const MAX_EXPRESSION: usize = 4096;
/// Each of these may copy what stands left of it, so their number bounds what an expression can build.
const MAX_OPERATIONS: usize = 32;

/// In one text.
const MAX_EXPRESSIONS: usize = 1000;

/// A piece of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    Expression(&'a str),
}

/// The pieces of `text` in order. Text without `{{` is one piece.
pub(super) fn split(text: &str) -> Result<Vec<Part<'_>>, TemplateError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("{{") {
        push_text(&mut parts, &rest[..open])?;
        let inside = &rest[open + 2..];
        let close = end_of_expression(inside)?;
        parts.push(Part::Expression(expression(&inside[..close])?));
        rest = &inside[close + 2..];
        if parts.len() > 2 * MAX_EXPRESSIONS {
            return Err(TemplateError::new(format!("more than {MAX_EXPRESSIONS} expressions in one text")));
        }
    }
    push_text(&mut parts, rest)?;
    Ok(parts)
}

/// Whether rendering `text` can give anything but `text`, or an error.
pub(super) fn has_template(text: &str) -> bool {
    text.contains("{{") || has_statement(text)
}

fn has_statement(text: &str) -> bool {
    text.find("{%").is_some_and(|open| text[open..].contains("%}"))
}

fn push_text<'a>(parts: &mut Vec<Part<'a>>, text: &'a str) -> Result<(), TemplateError> {
    if has_statement(text) {
        return Err(TemplateError::new("`{% … %}` is not supported; only `{{ expression }}` is, with `a if b else c`"));
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(())
}

/// The expression of `if:`, which may stand in braces.
pub(super) fn condition(text: &str) -> Result<&str, TemplateError> {
    let trimmed = text.trim();
    if !trimmed.starts_with("{{") {
        return expression(trimmed);
    }
    match split(trimmed)?.as_slice() {
        [Part::Expression(inner)] => Ok(inner),
        _ => Err(TemplateError::new(
            "expected one expression, such as `input.enabled`, with or without `{{ }}` around all of it",
        )),
    }
}

fn expression(text: &str) -> Result<&str, TemplateError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(TemplateError::new("the expression is empty; expected something like `input.version`"));
    }
    if text.len() > MAX_EXPRESSION {
        return Err(TemplateError::new(format!(
            "the expression has {} bytes; at most {MAX_EXPRESSION} are allowed",
            text.len()
        )));
    }
    // `*` repeats texts and lists as well, up to a hundred million times; the filter multiplies numbers only.
    if Tokens(text).any(|token| token == Token::Symbol('*')) {
        return Err(TemplateError::new(format!("`*` is not supported; write `a | times(b)`, in `{}`", shorten(text))));
    }
    let operations = Tokens(text).filter(|token| matches!(token, Token::Symbol('~' | '+' | '|'))).count();
    if operations > MAX_OPERATIONS {
        return Err(TemplateError::new(format!(
            "the expression has {operations} filters and operators; at most {MAX_OPERATIONS} are allowed"
        )));
    }
    Ok(text)
}

/// Where the `}}` is that belongs to the `{{` before `text`: not in a string, and not the end of a map in the expression.
fn end_of_expression(text: &str) -> Result<usize, TemplateError> {
    let mut depth = 0_usize;
    let mut tokens = Tokens(text);
    loop {
        let at = text.len() - tokens.0.len();
        match tokens.next() {
            Some(Token::Symbol('{')) => depth += 1,
            Some(Token::Symbol('}')) if depth > 0 => depth -= 1,
            Some(Token::Symbol('}')) if tokens.0.starts_with('}') => {
                return Ok(text.len() - tokens.0.len() - 1);
            }
            Some(Token::Unclosed) => {
                return Err(TemplateError::new(format!(
                    "a string in the expression is not closed: `{}`",
                    shorten(&text[at..])
                )));
            }
            Some(_) => {}
            None => return Err(TemplateError::new(format!("`{{{{` without `}}}}`: `{{{{{}`", shorten(text)))),
        }
    }
}

fn shorten(text: &str) -> String {
    let text = text.trim_end();
    if text.chars().count() <= 40 { text.to_owned() } else { text.chars().take(37).chain("...".chars()).collect() }
}

/// As much of an expression's grammar as is needed to find its end and the names in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Name(&'a str),
    /// Without its quotes.
    Text(&'a str),
    Symbol(char),
    Unclosed,
}

#[derive(Debug, Clone)]
pub(super) struct Tokens<'a>(pub(super) &'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.0 = self.0.trim_start();
        let first = self.0.chars().next()?;
        let (token, length) = match first {
            '"' | '\'' => match end_of_string(self.0, first) {
                Some(end) => (Token::Text(&self.0[1..end]), end + 1),
                None => (Token::Unclosed, self.0.len()),
            },
            c if c.is_alphanumeric() || c == '_' => {
                let end = self.0.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.0.len());
                (Token::Name(&self.0[..end]), end)
            }
            symbol => (Token::Symbol(symbol), symbol.len_utf8()),
        };
        self.0 = &self.0[length..];
        Some(token)
    }
}

fn end_of_string(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_ends_at_its_own_braces() {
        for (text, expected) in [
            ("{{ a }}", vec![Part::Expression("a")]),
            (
                "x{{ '}}' ~ \"\\\"}}\" }}y",
                vec![Part::Text("x"), Part::Expression("'}}' ~ \"\\\"}}\""), Part::Text("y")],
            ),
            ("{{ {'a': {'b': 1}}.a }}", vec![Part::Expression("{'a': {'b': 1}}.a")]),
            ("{{a}}{{b}}", vec![Part::Expression("a"), Part::Expression("b")]),
            ("plain } text }}", vec![Part::Text("plain } text }}")]),
            ("{%Y}", vec![Part::Text("{%Y}")]),
            ("{{{'a':1}}}", vec![Part::Expression("{'a':1}")]),
        ] {
            assert_eq!(split(text).unwrap(), expected, "{text}");
        }
        for bad in ["{{", "{{ a", "{{ a }", "{{ 'a }}", "{{ }}", "{% if a %}x{% endif %}"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_condition_may_stand_in_braces() {
        assert_eq!(condition(" a == 'b' ").unwrap(), "a == 'b'");
        assert_eq!(condition("{{ a }}").unwrap(), "a");
        assert!(condition("{{ a }} and {{ b }}").is_err());
        assert!(condition("  ").is_err());
    }
}
