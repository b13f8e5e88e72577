//! What the documents say is true of the real binary.
//!
//! Two kinds of blocks are looked at; all others (```sh, ```text, ...) are only shown.
//!
//! ```yaml    A block with `tasks:` is a whole plan and passes `milepost check`. If its first line is a comment with a
//!            file name (`# flaky.yaml`), the commands further down the page find it under that name.
//! ```console Lines with `$ ` are run, in order, in one directory per page that has the examples in it.
//!            `# exits N` behind a command is its exit code, 0 if it does not say. `cargo run --release --` means the
//!            binary. Lines below a command must come in its output in this order, others may come in between; `…`
//!            stands for anything, and blanks may be of any length. `^C` sends an interrupt and `Killed` a SIGKILL once
//!            the lines above it have come. A command with `&` goes on beside the next ones once its lines have come, and
//!            has to end by the end of the block; `kill %1` asks the first of them to. `127.0.0.1:8080` stands for a port
//!            that is free.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;

use support::{World, wait_for};

#[test]
fn every_whole_plan_in_the_documents_is_a_good_plan() {
    let world = World::new();
    let mut plans = 0;
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.is_whole_plan()) {
            world.file("plan.yaml", &block.text());
            let checked = world.milepost(&["check", "plan.yaml"]);
            assert_eq!(checked.code, 0, "{}:{}\n{}", page.name(), block.line, checked.said());
            plans += 1;
        }
    }
    assert!(plans > 0, "no plan was found at all");
}

#[test]
fn every_command_in_the_documents_does_what_is_shown() {
    let mut commands = 0;
    for page in pages() {
        let world = World::new();
        copy_examples(world.path());
        for block in &page.blocks {
            if let Some(name) = block.file_name() {
                world.file(name, &block.text());
            }
            if block.language == "console" {
                commands += play(&world, &page, block);
            }
        }
    }
    assert!(commands > 0, "no command was found at all");
}

#[test]
fn every_relative_link_leads_to_a_file() {
    for page in pages() {
        for target in page.prose.iter().flat_map(|line| links(line)) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let file = page.path.parent().unwrap().join(path);
            assert!(file.exists(), "{} links to {target}, which is not there", page.name());
        }
    }
}

#[test]
fn every_test_and_source_file_that_the_documents_name_exists() {
    let code = all_code();
    for page in pages() {
        for word in page.prose.iter().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            if word.starts_with("crates/") {
                let found = root().join(word.trim_end_matches('/')).exists();
                assert!(found, "{} names {word}, which is not there", page.name());
            }
            let rule = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            if rule && word.matches('_').count() > 3 {
                assert!(code.contains(word), "{} names the test {word}, which is not there", page.name());
            }
        }
    }
}

#[test]
fn the_page_on_the_command_line_has_every_command_option_and_exit_code() {
    let world = World::new();
    let page = fs::read_to_string(root().join("docs/command-line.md")).unwrap();
    let help = world.good(&["--help"]).stdout;
    let commands = section(&help, "Commands:");
    assert!(commands.contains(&"run"), "{help}");
    for command in commands {
        let named = [format!("`{command}`"), format!("`{command} ")].iter().any(|words| page.contains(words));
        assert!(named, "the command {command} is missing");
        let own = if command == "help" { String::new() } else { world.good(&[command, "--help"]).stdout };
        for option in own.split(|c: char| c.is_whitespace() || "[]`.,()".contains(c)) {
            let is_option = option.len() > 2 && option.starts_with("--");
            assert!(!is_option || page.contains(option), "the option {option} of {command} is missing");
        }
    }
    let codes = section(&help, "Exit codes:");
    assert!(codes.len() > 5, "{help}");
    for code in codes {
        assert!(page.contains(&format!("| {code} |")), "exit code {code} is missing");
    }
}

#[test]
fn the_page_on_events_has_every_type_of_event() {
    let source = fs::read_to_string(root().join("crates/milepost-core/src/task/event.rs")).unwrap();
    let page = fs::read_to_string(root().join("docs/events-and-checkpoints.md")).unwrap();
    let arms = source.lines().filter(|line| line.trim_start().starts_with("Event::"));
    let types: Vec<&str> = arms.filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\",")).collect();
    assert!(types.contains(&"TASK_CREATED"), "the list of events was not found");
    for kind in types {
        assert!(page.contains(&format!("`{kind}`")), "the event {kind} is missing");
    }
}

// --- pages and their blocks ---

struct Page {
    path: PathBuf,
    blocks: Vec<Block>,
    /// Lines outside of blocks.
    prose: Vec<String>,
}

struct Block {
    language: String,
    /// Where it begins, counted from 1.
    line: usize,
    lines: Vec<String>,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        let mut page = Page { path, blocks: Vec::new(), prose: Vec::new() };
        let mut open: Option<Block> = None;
        for (line, number) in text.lines().zip(1..) {
            match (line.strip_prefix("```"), &mut open) {
                (Some(language), None) => {
                    open = Some(Block { language: language.to_owned(), line: number, lines: Vec::new() });
                }
                (Some(_), Some(_)) => page.blocks.extend(open.take()),
                (None, Some(block)) => block.lines.push(line.to_owned()),
                (None, None) => page.prose.push(line.to_owned()),
            }
        }
        assert!(open.is_none(), "{} has a block without an end", page.name());
        page
    }

    fn name(&self) -> String {
        self.path.strip_prefix(root()).unwrap_or(&self.path).display().to_string()
    }
}

impl Block {
    fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    fn is_whole_plan(&self) -> bool {
        self.language == "yaml" && self.lines.iter().any(|line| line.starts_with("tasks:"))
    }

    fn file_name(&self) -> Option<&str> {
        let name = self.lines.first()?.strip_prefix("# ")?;
        (self.is_whole_plan() && name.ends_with(".yaml") && !name.contains([' ', '/'])).then_some(name)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}

fn pages() -> Vec<Page> {
    let mut found = Vec::new();
    for folder in [root().to_owned(), root().join("docs"), root().join("docs/decisions")] {
        found.extend(files_in(&folder).into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "md")));
    }
    found.into_iter().map(Page::read).collect()
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn copy_examples(to: &Path) {
    fs::create_dir(to.join("examples")).unwrap();
    for file in files_in(&root().join("examples")) {
        fs::copy(&file, to.join("examples").join(file.file_name().unwrap())).unwrap();
    }
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

fn all_code() -> String {
    fn gather(folder: &Path, code: &mut String) {
        for path in files_in(folder) {
            if path.is_dir() {
                gather(&path, code);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                code.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut code = String::new();
    gather(&root().join("crates"), &mut code);
    code
}

/// The first words of the entries in a part of the help text; lines that go on further in are no entries.
fn section<'a>(help: &'a str, title: &str) -> Vec<&'a str> {
    let lines = help.lines().skip_while(|line| *line != title).skip(1).take_while(|line| !line.is_empty());
    lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next()).collect()
}

// --- commands ---

/// A command of a console block and what the page shows of it.
struct Shown<'a> {
    text: &'a str,
    exits: i32,
    output: Vec<&'a str>,
}

/// Runs the commands of a block; answers how many there were.
fn play(world: &World, page: &Page, block: &Block) -> usize {
    let commands = shown(block);
    let mut beside: Vec<(Started, i32)> = Vec::new();
    let port = free_port();
    for (number, command) in commands.iter().enumerate() {
        let place = format!("{}:{}, `{}`", page.name(), block.line, command.text);
        if command.text == "kill %1" {
            beside[0].0.signal(Signal::TERM);
            continue;
        }
        let text = command.text.replace("127.0.0.1:8080", &format!("127.0.0.1:{port}"));
        let mut started = Started::new(world, &text, port, world.path().join(format!(".said-{number}")), place);
        started.watch(&command.output);
        if command.text.ends_with('&') {
            beside.push((started, command.exits));
        } else {
            started.must_exit(command.exits);
        }
    }
    for (started, exits) in beside {
        started.must_exit(exits);
    }
    commands.len()
}

fn shown(block: &Block) -> Vec<Shown<'_>> {
    let mut commands: Vec<Shown<'_>> = Vec::new();
    for line in &block.lines {
        if let Some(command) = line.strip_prefix("$ ") {
            let (text, exits) = command.split_once("# exits ").unwrap_or((command, "0"));
            let exits = exits.trim().parse().unwrap_or_else(|_| panic!("no exit code in `{line}`"));
            commands.push(Shown { text: text.trim(), exits, output: Vec::new() });
        } else if let Some(last) = commands.last_mut()
            && !line.trim().is_empty()
        {
            last.output.push(line);
        }
    }
    commands
}

/// Free a moment ago, and nobody else here listens on ports that were not given to them.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

struct Started {
    child: Child,
    port: u16,
    said: PathBuf,
    place: String,
}

impl Started {
    fn new(world: &World, text: &str, port: u16, said: PathBuf, place: String) -> Self {
        let text = text.trim_end_matches('&').replace("cargo run --release --", "milepost");
        // The shell becomes the program, so that signals reach it.
        let exec = if text.starts_with("milepost") { "exec " } else { "" };
        let binary = Path::new(env!("CARGO_BIN_EXE_milepost")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        let output = fs::File::create(&said).unwrap();
        let mut command = Command::new("sh");
        // The settings of whoever runs the tests are left out, as for every test of the binary.
        let like = world.command(&[]);
        command.args(["-c", &format!("{exec}{text}")]).current_dir(world.path()).stdin(std::process::Stdio::null());
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("PATH", path).stdout(output.try_clone().unwrap()).stderr(output);
        Self { child: command.spawn().unwrap(), port, said, place }
    }

    fn output(&self) -> String {
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        said.replace(&format!("127.0.0.1:{}", self.port), "127.0.0.1:8080")
    }

    /// Waits for each line in turn, and does what `^C` and `Killed` stand for in between.
    fn watch(&mut self, lines: &[&str]) {
        let mut wanted: Vec<&str> = Vec::new();
        for line in lines {
            match *line {
                "^C" => self.signal(Signal::INT),
                "Killed" => self.signal(Signal::KILL),
                line => {
                    wanted.push(line);
                    self.must_say(&wanted);
                }
            }
        }
    }

    fn must_say(&mut self, wanted: &[&str]) {
        wait_for(&format!("`{}` of {}", wanted.last().unwrap(), self.place), || {
            // First whether it has ended: then what it said is all there will be.
            let ended = self.child.try_wait().unwrap().is_some();
            let said = self.output();
            let found = appear_in_order(wanted, &said);
            assert!(found || !ended, "{}: no `{}` in\n{said}", self.place, wanted.last().unwrap());
            found.then_some(())
        });
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn must_exit(mut self, code: i32) {
        use std::os::unix::process::ExitStatusExt;
        let status = wait_for(&format!("the end of {}", self.place), || self.child.try_wait().unwrap());
        // As a shell tells it.
        let found = status.code().or(status.signal().map(|signal| 128 + signal));
        assert_eq!(found, Some(code), "{}\n{}", self.place, self.output());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It has usually ended already, which is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn appear_in_order(wanted: &[&str], said: &str) -> bool {
    let mut lines = said.lines();
    wanted.iter().all(|pattern| *pattern == "…" || lines.any(|line| fits(pattern, line)))
}

/// `…` stands for anything, and blanks may be of any length.
fn fits(pattern: &str, line: &str) -> bool {
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, line) = (squeeze(pattern), squeeze(line));
    let mut pieces = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn dots_stand_for_anything_and_all_else_must_be_there() {
    for (pattern, line, expected) in [
        ("plan a COMPLETED", "plan a COMPLETED", true),
        ("plan a COMPLETED", "plan a COMPLETED in 2s", false),
        ("plan a … in …: 6 tasks", "plan a COMPLETED in 2.4s: 6 tasks", true),
        ("… 6 tasks", "plan a: 6 tasks, 3 at once", false),
        ("  a   b", "a b", true),
    ] {
        assert_eq!(fits(pattern, line), expected, "{pattern} and {line}");
    }
}
