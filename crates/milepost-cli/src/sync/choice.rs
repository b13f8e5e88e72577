//! Which tables are meant, by patterns.

use milepost_tables::TableName;

#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Choice {
    /// Only tables like this: `orders`, `order*`, `sales.*`; may be given more than once
    #[arg(long = "tables", value_name = "GLOB")]
    tables: Vec<String>,
    /// No tables like this; may be given more than once
    #[arg(long = "exclude", value_name = "GLOB")]
    exclude: Vec<String>,
}

impl Choice {
    pub(crate) fn takes(&self, name: &TableName) -> bool {
        let meant = |pattern: &String| is_meant(pattern, name);
        (self.tables.is_empty() || self.tables.iter().any(meant)) && !self.exclude.iter().any(meant)
    }

    /// Patterns that no table is like, which may be slips.
    pub(crate) fn idle<'a>(&'a self, names: &'a [TableName]) -> impl Iterator<Item = &'a str> {
        let patterns = self.tables.iter().chain(&self.exclude);
        patterns.filter(|pattern| !names.iter().any(|name| is_meant(pattern, name))).map(String::as_str)
    }
}

/// By its own name, or with its schema before it.
fn is_meant(pattern: &str, name: &TableName) -> bool {
    let with_schema = || name.schema.as_ref().is_some_and(|schema| fits(pattern, &format!("{schema}.{}", name.name)));
    fits(pattern, &name.name) || with_schema()
}

/// `*` is any text and `?` any one character. Works back to the last `*` only, so that no pattern takes long.
fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            Some(_) | None => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, t) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(tables: &[&str], exclude: &[&str]) -> Choice {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Choice { tables: owned(tables), exclude: owned(exclude) }
    }

    #[test]
    fn a_pattern_fits_the_whole_name_and_nothing_else() {
        for (pattern, text, expected) in [
            ("orders", "orders", true),
            ("orders", "orders_old", false),
            ("order*", "orders", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("?rders", "orders", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("*ab", "aab", true),
            ("t?", "t订", true),
            ("[a]", "a", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_table_is_meant_by_its_name_or_with_its_schema_unless_it_is_excluded() {
        let orders: TableName = "sales.orders".parse().unwrap();
        let log = TableName::new("log");
        assert!(choice(&[], &[]).takes(&orders));
        assert!(choice(&["orders"], &[]).takes(&orders) && choice(&["sales.*"], &[]).takes(&orders));
        assert!(!choice(&["sales.*"], &[]).takes(&log));
        assert!(!choice(&["*"], &["ord*"]).takes(&orders));
        let choice = choice(&["sales.*", "slaes.*"], &["tmp_*"]);
        assert_eq!(choice.idle(&[orders, log]).collect::<Vec<_>>(), ["slaes.*", "tmp_*"]);
    }
}
