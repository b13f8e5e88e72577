//! What is wrong with a plan file: where, what, and what to do about it. Shown like a compiler's errors.

use std::fmt;

use crate::api::ProblemPart;

/// Errors beyond this many are counted, not kept: nobody reads them, and a bad generator can make a million.
const MOST_KEPT: usize = 20;
/// A line of the source is shown up to this many characters around the caret.
const SNIPPET_WIDTH: usize = 100;

/// Everything found wrong with one plan file, in the order of the file; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanErrors {
    /// The name of the file, as the person gave it.
    pub file: String,
    pub errors: Vec<PlanError>,
    /// How many more there were than are listed.
    pub more: usize,
}

/// One thing wrong with a plan file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// Where in the plan, such as `stages[1].needs[0]`; empty for the file as a whole.
    pub path: String,
    pub message: String,
    /// What was expected, or what to do.
    pub help: Option<String>,
    snippet: Snippet,
}

/// The line of the source, cut to the part around the column.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Snippet {
    text: String,
    caret: usize,
}

impl fmt::Display for PlanErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            error.write(&self.file, f)?;
        }
        match self.more {
            0 => Ok(()),
            1 => f.write_str("\nand 1 more error"),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl std::error::Error for PlanErrors {}

impl PlanErrors {
    /// What somebody else found wrong with a file; shown as if it had been found here.
    pub fn told(file: &str, source: &str, told: impl IntoIterator<Item = ProblemPart>) -> Self {
        let place = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok()).unwrap_or(1);
        let problem = |part: ProblemPart| Problem {
            at: offset(source, place(part.line), place(part.column)),
            path: part.path.unwrap_or_default(),
            message: part.message,
            help: part.help,
        };
        let errors = told.into_iter().map(problem).map(|problem| locate(problem, source)).collect();
        Self { file: file.to_owned(), errors, more: 0 }
    }
}

impl PlanError {
    fn write(&self, file: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        writeln!(f, "{file}:{}:{}: {}", self.line, self.column, self.message)?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", self.snippet.text)?;
        writeln!(f, "{gutter} | {}^", " ".repeat(self.snippet.caret))?;
        if !self.path.is_empty() {
            writeln!(f, "{gutter} = at {}", self.path)?;
        }
        if let Some(help) = &self.help {
            writeln!(f, "{gutter} = {help}")?;
        }
        Ok(())
    }
}

/// An error while its file is still being read: the place is a byte offset, which costs nothing until it is shown.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) at: usize,
    pub(super) path: String,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

impl Problem {
    /// A problem of the file as a whole, or of its text rather than its meaning.
    pub(super) fn in_text(at: usize, message: impl Into<String>) -> Self {
        Self { at, path: String::new(), message: message.into(), help: None }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(super) struct Problems {
    kept: Vec<Problem>,
    more: usize,
}

impl Problems {
    pub(super) fn add(&mut self, at: usize, path: &Path<'_>, message: impl Into<String>) -> Addition<'_> {
        if self.kept.len() == MOST_KEPT {
            self.more += 1;
            return Addition(None);
        }
        self.kept.push(Problem { at, path: path.to_string(), message: message.into(), help: None });
        Addition(self.kept.last_mut())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.kept.len() + self.more
    }

    pub(super) fn into_errors(mut self, file: &str, source: &str) -> PlanErrors {
        self.kept.sort_by_key(|problem| problem.at);
        PlanErrors {
            file: file.to_owned(),
            errors: self.kept.into_iter().map(|problem| locate(problem, source)).collect(),
            more: self.more,
        }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self { kept: vec![problem], more: 0 }
    }
}

/// A problem just added, to which help may be added too; nothing when there were too many to keep it.
pub(super) struct Addition<'a>(Option<&'a mut Problem>);

impl Addition<'_> {
    pub(super) fn help(self, help: impl Into<String>) {
        if let Some(problem) = self.0 {
            problem.help = Some(help.into());
        }
    }

    /// Help that takes some looking for, which is not done for a problem that nobody will see.
    pub(super) fn help_with(self, help: impl FnOnce() -> String) {
        if let Some(problem) = self.0 {
            problem.help = Some(help());
        }
    }
}

/// Of a place in the source, both counted from 1.
fn offset(source: &str, line: usize, column: usize) -> usize {
    let Some(text) = source.split_inclusive('\n').nth(line.saturating_sub(1)) else { return source.len() };
    let start = text.as_ptr() as usize - source.as_ptr() as usize;
    start + text.chars().take(column.saturating_sub(1)).map(char::len_utf8).sum::<usize>()
}

fn locate(problem: Problem, source: &str) -> PlanError {
    let at = source.floor_char_boundary(problem.at);
    // The end of a file that ends in a newline is shown as the end of its last line, which a person can see.
    let at = if at == source.len() { source.trim_end_matches(['\n', '\r']).len() } else { at };
    let before = &source[..at];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = source[start..].lines().next().unwrap_or_default();
    let column = source[start..at].chars().count();
    PlanError {
        line: before.matches('\n').count() + 1,
        column: column + 1,
        path: problem.path,
        message: problem.message,
        help: problem.help,
        snippet: snippet(line, column),
    }
}

fn snippet(line: &str, column: usize) -> Snippet {
    let first = column.saturating_sub(SNIPPET_WIDTH / 2);
    let mut chars = line.chars().skip(first).map(|c| if c.is_control() { ' ' } else { c });
    let mut text = String::new();
    let mut caret = column - first;
    if first > 0 {
        text.push_str("...");
        caret += 3;
    }
    text.extend(chars.by_ref().take(SNIPPET_WIDTH));
    if chars.next().is_some() {
        text.push_str("...");
    }
    Snippet { text, caret }
}

/// Where in the plan a value stands. Links to the path above it, so that walking a file allocates nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(super) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The known word that was probably meant, if any is near enough.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no typos of ours, and comparing them would cost their length squared.
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(word.len()) / 2).clamp(1, 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The known word that was probably meant, or else what there is.
pub(super) fn suggest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone, there_is: &str) -> String {
    match nearest(word, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{there_is} {}", one_of(known.take(20))),
    }
}

/// Levenshtein's: how many characters to add, drop or replace.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// Words in a row for a message: "`a`, `b` or `c`".
pub(super) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_place_its_line_and_what_to_do() {
        let source = "plan: a\nstages:\n  - name: x\n    retires: 3\n";
        let stages = Path::Root.key("stages");
        let stage = stages.index(0);
        let mut problems = Problems::default();
        problems
            .add(source.find("retires").unwrap(), &stage.key("retires"), "unknown key `retires`")
            .help("did you mean `retry`?");
        let shown = problems.into_errors("plan.yaml", source).to_string();
        assert_eq!(
            shown,
            "plan.yaml:4:5: unknown key `retires`\n  |\n4 |     retires: 3\n  |     ^\n  = at stages[0].retires\n  = did you mean `retry`?\n"
        );
    }

    #[test]
    fn an_error_that_was_told_is_shown_at_the_same_place() {
        let source = "plan: é\nstages:\n  - näme: x\n";
        for (line, column, shown) in [(1, 7, "plan: é"), (3, 5, "  - näme: x"), (3, 99, ""), (99, 1, "")] {
            let part = ProblemPart {
                message: "wrong".to_owned(),
                path: Some("stages[0]".to_owned()),
                help: None,
                line: Some(line as u64),
                column: Some(column as u64),
            };
            let told = PlanErrors::told("f", source, [part]);
            let error = &told.errors[0];
            if !shown.is_empty() {
                assert_eq!((error.line, error.column, error.snippet.text.as_str()), (line, column, shown));
            }
            assert_eq!((error.message.as_str(), error.path.as_str()), ("wrong", "stages[0]"));
        }
    }

    #[test]
    fn errors_beyond_twenty_are_counted() {
        let mut problems = Problems::default();
        for i in 0..25 {
            problems.add(0, &Path::Root, format!("problem {i}"));
        }
        let errors = problems.into_errors("f", "");
        assert_eq!((errors.errors.len(), errors.more), (20, 5));
        assert!(errors.to_string().ends_with("\nand 5 more errors"));
    }

    #[test]
    fn columns_count_characters_and_a_long_line_is_cut_around_the_caret() {
        let line = format!("{}é!", "ü".repeat(200));
        let error = locate(Problem::in_text(line.find('!').unwrap(), "x"), &line);
        assert_eq!((error.line, error.column), (1, 202));
        assert_eq!(error.snippet.text.chars().nth(error.snippet.caret), Some('!'));
        assert!(error.snippet.text.chars().count() < 110);
    }

    #[test]
    fn the_nearest_known_word_is_suggested_and_a_far_one_is_not() {
        let known = ["retry", "timeout", "run", "needs"];
        assert_eq!(nearest("retires", known), Some("retry"));
        assert_eq!(nearest("time_out", known), Some("timeout"));
        assert_eq!(nearest("Needs", known), Some("needs"));
        assert_eq!(nearest("script", known), None);
    }
}
