//! The file as a tree in which every value knows its place. Reads YAML, and JSON as the YAML that it is; bounded in
//! size, depth and what aliases may copy. Knows nothing about plans.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Number, Value};
use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, options};

use super::errors::Problem;

/// Deeper than any plan; and a stored plan must be readable by parsers that stop at 128.
const MAX_DEPTH: usize = 64;
/// About the tree of a file of 64 MiB; a file that is nothing but `[1,1,1,...` would take far more memory.
const MAX_NODES: usize = 10_000_000;
/// What all aliases of a file may copy together: a stage list shared by thousands of tasks, but no bomb.
const MAX_COPIED_NODES: usize = 500_000;
const MAX_COPIED_BYTES: usize = 32 * 1024 * 1024;

/// A value and where it stands: byte offsets into the text, the end excluded.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: u32,
    pub(super) end: u32,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: Box<str>,
    pub(super) at: u32,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn at(&self) -> usize {
        self.at as usize
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// What it is, for "expected …, found …".
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "nothing".to_owned(),
            Kind::Bool(value) => format!("the boolean `{value}`"),
            Kind::Number(value) => format!("the number `{value}`"),
            Kind::Text(text) if text.chars().count() > 40 => "text".to_owned(),
            Kind::Text(text) => format!("the text {text:?}"),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
        }
    }

    pub(super) fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(value) => Value::Number(value.clone()),
            Kind::Text(text) => Value::String(text.to_string()),
            Kind::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Kind::Map(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_value()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }
}

/// The bytes of a file as text, if they can be a plan at all.
pub(super) fn decode(source: &[u8], max_bytes: usize) -> Result<&str, Problem> {
    if source.len() > max_bytes {
        let message = format!("the file has {} bytes; at most {max_bytes} are allowed", source.len());
        return Err(Problem::in_text(0, message)
            .help("split it into several plans, or use `matrix` for tasks that differ in a value"));
    }
    let text = std::str::from_utf8(source).map_err(|error| {
        let at = error.valid_up_to();
        let help = match source {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it looks like UTF-16; save it as UTF-8",
            _ => "save the file as UTF-8",
        };
        Problem::in_text(at, format!("not UTF-8 text: byte 0x{:02x} at offset {at}", source[at])).help(help)
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let control = text.bytes().position(|b| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r'));
    match control {
        Some(at) => {
            Err(Problem::in_text(at, format!("control character 0x{:02x} at offset {at}", text.as_bytes()[at]))
                .help("a plan file is text; remove the character, or check that this is the right file"))
        }
        None => Ok(text),
    }
}

/// The one document of `text`; a file without any content is null.
pub(super) fn read(text: &str) -> Result<Node, Problem> {
    let mut parser = Parser::new_from_str_with_options(text, parser_options());
    let mut tree = Tree { text, stack: Vec::new(), anchors: HashMap::new(), nodes: 0, copied: Weight::default() };
    let mut document = None;
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| scan_problem(text, &error))?;
        if let Event::DocumentStart(..) = event
            && document.is_some()
        {
            return Err(Problem::in_text(offset(&span), "a second document starts here; a plan file holds one plan")
                .help("put each plan into a file of its own"));
        }
        if let Some(root) = tree.take(event, &span)? {
            document = Some(root);
        }
    }
    Ok(document.unwrap_or(Node { at: 0, end: 0, kind: Kind::Null }))
}

fn parser_options() -> Options {
    options! {
        emit_comments: false,
        disallow_directives: true,
        // JSON has no limit on the length of a key.
        simple_key_max_lookahead: 64 * 1024,
        flow_nesting_limit: MAX_DEPTH + 1,
        block_nesting_limit: MAX_DEPTH + 1,
    }
}

fn scan_problem(text: &str, error: &ScanError) -> Problem {
    let at = text.char_indices().nth(error.marker().index()).map_or(text.len(), |(at, _)| at);
    let message = error.info();
    if message.contains("nesting") || message.contains("recursion") {
        return too_deep(at);
    }
    let problem = Problem::in_text(at, format!("not valid YAML: {message}"));
    match text.as_bytes().get(at) {
        Some(b'\t') => problem.help("indent with spaces; YAML does not allow tabs there"),
        _ if message.contains("tab") => problem.help("indent with spaces; YAML does not allow tabs there"),
        Some(b'@' | b'`' | b'%') => problem.help("text that starts with this character needs quotes"),
        _ if message.contains("mapping values are not allowed") => {
            problem.help("text with `: ` in it needs quotes; or the line is indented further than its neighbours")
        }
        _ if message.contains("quoted scalar") => problem.help("is a quote missing at the end of a text?"),
        _ if message.contains("unknown anchor") => problem.help("define it earlier in the file with `&name`"),
        _ => problem,
    }
}

fn too_deep(at: usize) -> Problem {
    Problem::in_text(at, format!("nested too deeply; at most {MAX_DEPTH} levels are allowed"))
}

fn offset(span: &Span) -> usize {
    span.start.byte_offset().unwrap_or_default()
}

/// The tree while its events come in.
struct Tree<'t> {
    text: &'t str,
    stack: Vec<Frame>,
    /// Whole nodes only: an alias inside its own anchor finds nothing here.
    anchors: HashMap<usize, Node>,
    nodes: usize,
    copied: Weight,
}

struct Frame {
    at: usize,
    anchor: usize,
    open: Open,
}

enum Open {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, key: Option<Key>, merged: Vec<Node> },
}

struct Key {
    text: Box<str>,
    at: usize,
    merge: bool,
}

impl Tree<'_> {
    /// The document's root, when this event completes it.
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<Option<Node>, Problem> {
        if let Some(tag) = event.tag() {
            let at = span.tag_start.and_then(|mark| mark.byte_offset()).unwrap_or_else(|| offset(span));
            return Err(Problem::in_text(
                at,
                format!("YAML tags such as `{}` have no meaning in a plan", tag.original()),
            )
            .help("remove the tag; write text in quotes"));
        }
        match event {
            Event::Scalar(text, style, anchor, _) => self.scalar(&text, style, anchor, span),
            Event::SequenceStart(_, anchor, _) => self.open(Open::List(Vec::new()), anchor, span),
            Event::MappingStart(_, anchor, _) => {
                self.open(Open::Map { entries: Vec::new(), key: None, merged: Vec::new() }, anchor, span)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Alias(anchor) => self.alias(anchor, span),
            _ => Ok(None),
        }
    }

    fn open(&mut self, open: Open, anchor: usize, span: &Span) -> Result<Option<Node>, Problem> {
        let at = offset(span);
        if let Some(Frame { open: Open::Map { key: None, .. }, .. }) = self.stack.last() {
            return Err(not_a_key(at));
        }
        if self.stack.len() == MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.count(at)?;
        self.stack.push(Frame { at, anchor, open });
        Ok(None)
    }

    fn close(&mut self, span: &Span) -> Result<Option<Node>, Problem> {
        let Some(Frame { at, anchor, open }) = self.stack.pop() else { return Ok(None) };
        let kind = match open {
            Open::List(items) => Kind::List(items),
            Open::Map { mut entries, merged, .. } => {
                self.refuse_duplicates(&entries)?;
                merged.into_iter().try_for_each(|node| merge(&mut entries, node))?;
                Kind::Map(entries)
            }
        };
        self.place(node(kind, at, end(span)), anchor)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, anchor: usize, span: &Span) -> Result<Option<Node>, Problem> {
        let at = offset(span);
        self.count(at)?;
        if let Some(Frame { open: Open::Map { key: key @ None, .. }, .. }) = self.stack.last_mut() {
            let plain = style == ScalarStyle::Plain;
            if plain && matches!(text, "" | "~") {
                return Err(not_a_key(at));
            }
            *key = Some(Key { text: text.into(), at, merge: plain && text == "<<" });
            return Ok(None);
        }
        let kind = if style == ScalarStyle::Plain { plain(text, at)? } else { Kind::Text(text.into()) };
        // A value that was left out has no place of its own; its key's is where a person looks.
        let at = match (&kind, self.stack.last()) {
            (Kind::Null, Some(Frame { open: Open::Map { key: Some(key), .. }, .. })) if end(span) == at => key.at,
            _ => at,
        };
        self.place(node(kind, at, end(span)), anchor)
    }

    fn alias(&mut self, anchor: usize, span: &Span) -> Result<Option<Node>, Problem> {
        let at = offset(span);
        if let Some(Frame { open: Open::Map { key: None, .. }, .. }) = self.stack.last() {
            return Err(not_a_key(at));
        }
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(Problem::in_text(at, "this alias stands inside the value that it refers to"));
        };
        let (weight, height) = weigh(node);
        if self.stack.len() + height > MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.copied.add(weight, at)?;
        let copy = node.clone();
        self.place(copy, 0)
    }

    /// Puts a whole value where it belongs: into the list or under the key that waits for it.
    fn place(&mut self, node: Node, anchor: usize) -> Result<Option<Node>, Problem> {
        if anchor != 0 {
            self.copied.add(weigh(&node).0, node.at())?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.stack.last_mut() {
            None => return Ok(Some(node)),
            Some(Frame { open: Open::List(items), .. }) => items.push(node),
            Some(Frame { open: Open::Map { entries, key, merged }, .. }) => match key.take() {
                Some(key) if key.merge => merged.push(node),
                Some(key) => entries.push(Entry { key: key.text, at: narrow(key.at), value: node }),
                None => return Err(not_a_key(node.at())),
            },
        }
        Ok(None)
    }

    fn count(&mut self, at: usize) -> Result<(), Problem> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Problem::in_text(at, format!("more than {MAX_NODES} values in one file"))
                .help("split it into several plans, or use `matrix` for tasks that differ in a value"));
        }
        Ok(())
    }

    fn refuse_duplicates(&self, entries: &[Entry]) -> Result<(), Problem> {
        let mut seen = HashSet::new();
        let again = match entries {
            // Most maps are small; comparing is cheaper than hashing.
            small if small.len() <= 8 => {
                (1..small.len()).find(|i| small[..*i].iter().any(|other| other.key == small[*i].key))
            }
            large => large.iter().position(|entry| !seen.insert(&*entry.key)),
        };
        let Some(again) = again.map(|i| &entries[i]) else { return Ok(()) };
        let first = entries.iter().find(|entry| entry.key == again.key).map_or(0, |entry| entry.at as usize);
        let line = self.text[..first].matches('\n').count() + 1;
        Err(Problem::in_text(again.at as usize, format!("duplicate key `{}`", again.key))
            .help(format!("it is already given at line {line}; keep one of the two")))
    }
}

/// YAML's `<<`: the keys of another map, where this one has none of the same name.
fn merge(entries: &mut Vec<Entry>, node: Node) -> Result<(), Problem> {
    match node.kind {
        Kind::Map(others) => {
            let own: HashSet<Box<str>> = entries.iter().map(|entry| entry.key.clone()).collect();
            entries.extend(others.into_iter().filter(|other| !own.contains(&other.key)));
            Ok(())
        }
        Kind::List(maps) if maps.iter().all(|map| matches!(map.kind, Kind::Map(_))) => {
            maps.into_iter().try_for_each(|map| merge(entries, map))
        }
        _ => Err(Problem::in_text(node.at(), "`<<` takes a map, or a list of maps").help("such as `<<: *name`")),
    }
}

/// What copying a value costs.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    nodes: usize,
    bytes: usize,
}

impl Weight {
    fn add(&mut self, more: Weight, at: usize) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(more.nodes);
        self.bytes = self.bytes.saturating_add(more.bytes);
        if self.nodes > MAX_COPIED_NODES || self.bytes > MAX_COPIED_BYTES {
            return Err(Problem::in_text(at, "the aliases of this file grow it too much")
                .help("use fewer aliases; stages shared by all tasks belong into the plan's `stages:`"));
        }
        Ok(())
    }
}

/// The weight of a value, and how many levels of lists and maps it has.
fn weigh(node: &Node) -> (Weight, usize) {
    let mut weight = Weight { nodes: 1, bytes: 0 };
    let mut levels = 0;
    let children: &mut dyn Iterator<Item = &Node> = match &node.kind {
        Kind::Null | Kind::Bool(_) | Kind::Number(_) => return (weight, 0),
        Kind::Text(text) => return (Weight { bytes: text.len(), ..weight }, 0),
        Kind::List(items) => &mut items.iter(),
        Kind::Map(entries) => {
            weight.bytes = entries.iter().map(|entry| entry.key.len()).sum();
            &mut entries.iter().map(|entry| &entry.value)
        }
    };
    for child in children {
        let (more, below) = weigh(child);
        weight.nodes += more.nodes;
        weight.bytes += more.bytes;
        levels = levels.max(below);
    }
    (weight, levels + 1)
}

/// A value without quotes, by YAML 1.2's core schema: `yes`, `on` and the like are text.
fn plain(text: &str, at: usize) -> Result<Kind, Problem> {
    let lossy = || Problem::in_text(at, format!("`{text}` is no number that JSON can hold")).help("write it in quotes");
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Kind::Null),
        "true" | "True" | "TRUE" => return Ok(Kind::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Kind::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let based = match text.get(..2) {
        Some("0x") => Some((16, &text[2..])),
        Some("0o") => Some((8, &text[2..])),
        _ => None,
    };
    if let Some((radix, digits)) = based
        && !digits.is_empty()
        && digits.chars().all(|c| c.is_digit(radix))
    {
        return u64::from_str_radix(digits, radix).map(|n| Kind::Number(n.into())).map_err(|_| lossy());
    }
    match unsigned {
        ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" => Err(lossy()),
        _ if !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit()) => {
            let number = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
            number.map(Kind::Number).map_err(|_| lossy())
        }
        _ if is_decimal(unsigned) => {
            let number = text.parse::<f64>().ok().and_then(Number::from_f64);
            number.map(Kind::Number).ok_or_else(lossy)
        }
        _ => Ok(Kind::Text(text.into())),
    }
}

fn is_decimal(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}

fn not_a_key(at: usize) -> Problem {
    Problem::in_text(at, "a key must be text")
        .help("in flow style, `{ key: value }`; text with `{{` in it needs quotes")
}

fn node(kind: Kind, at: usize, end: usize) -> Node {
    Node { at: narrow(at), end: narrow(end), kind }
}

fn end(span: &Span) -> usize {
    span.end.byte_offset().unwrap_or_else(|| offset(span))
}

/// Only a file of more than 4 GiB has places beyond this, and then only its messages suffer.
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        read(text).unwrap().to_value()
    }

    fn problem(text: &str) -> String {
        read(text).unwrap_err().message
    }

    #[test]
    fn plain_values_follow_the_core_schema_and_quoted_ones_are_text() {
        assert_eq!(
            value(
                "[~, null, true, yes, on, 12, -3, +4, 0x1F, 0o17, 007, 1.5, 1e3, .5, 1., '1', \"true\", 1:30, 2025-11-01, 1_000, 1.2.3, e5]"
            ),
            json!([
                null,
                null,
                true,
                "yes",
                "on",
                12,
                -3,
                4,
                31,
                15,
                7,
                1.5,
                1000.0,
                0.5,
                1.0,
                "1",
                "true",
                "1:30",
                "2025-11-01",
                "1_000",
                "1.2.3",
                "e5"
            ])
        );
        for lossy in [".nan", "-.inf", "1e999", "123456789012345678901234567890", "0xFFFFFFFFFFFFFFFFF"] {
            assert!(problem(&format!("a: {lossy}")).contains("no number that JSON can hold"), "{lossy}");
        }
    }

    #[test]
    fn json_is_read_with_tabs_escapes_and_long_keys() {
        let long = "k".repeat(5000);
        let text = format!("{{\n\t\"a\": \"\\ud83d\\ude00\\/\\n\",\n\t\"b\":[1,\t2.50,-1],\"{long}\": null}}");
        assert_eq!(value(&text), serde_json::from_str::<Value>(&text).unwrap());
    }

    #[test]
    fn aliases_and_merges_copy_what_they_refer_to() {
        let text = "a: &a {x: 1, y: 2}\nb: *a\nc:\n  y: 3\n  <<: *a\n";
        assert_eq!(value(text), json!({"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 2}, "c": {"y": 3, "x": 1}}));
        assert!(problem("a: &a [*a]").contains("inside the value"));
        assert!(problem("a: *nowhere").contains("anchor"));
        assert!(problem("a: {<<: 1}").contains("takes a map"));
    }

    #[test]
    fn an_alias_bomb_is_refused_quickly() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..30 {
            let aliases = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
        }
        assert!(problem(&bomb).contains("aliases"));
        let mut fat = format!("a: &a {}\nb: [", "x".repeat(100_000));
        fat.push_str(&"*a, ".repeat(10_000));
        fat.push(']');
        assert!(problem(&fat).contains("aliases"));
        // Depth through aliases counts like any other.
        let mut tall = String::from("a0: &a0 [x]\n");
        for i in 1..200 {
            tall.push_str(&format!("a{i}: &a{i} [*a{}]\n", i - 1));
        }
        assert!(problem(&tall).contains("nested too deeply"));
    }

    #[test]
    fn depth_is_bounded_in_every_style() {
        for text in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000)] {
            assert!(problem(&text).contains("nested too deeply"), "{}", problem(&text));
        }
        assert!(read(&format!("{}1{}", "[".repeat(64), "]".repeat(64))).is_ok());
    }

    #[test]
    fn every_value_knows_its_place() {
        let text = "a: 1\nb:\n  - x\n  - 'yé'\n";
        let Kind::Map(entries) = read(text).unwrap().kind else { panic!("a map") };
        let Kind::List(items) = &entries[1].value.kind else { panic!("a list") };
        assert_eq!(&text[items[1].at as usize..items[1].end as usize], "'yé'");
        assert_eq!(entries[1].at, 5);
    }
}
