//! Thousands of clients: those that watch, those that do not read, and those that take their time to ask.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpSocket;
use tokio::sync::watch;

use crate::served::Served;
use crate::support::{PATIENCE, World};

/// What this process, and the server as well, which inherits it, need besides a file for each client.
const OTHER_FILES: usize = 1_000;

/// By when a connection is closed that does not end its head within 20 seconds, on a machine that is busy besides.
const SLOWEST: Duration = Duration::from_secs(120);

/// The limit of open files is the whole process's, so there is one crowd at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// How many; the variable asks for more or fewer. No more than this machine allows files.
fn clients(variable: &str, usual: usize) -> usize {
    let wanted = std::env::var(variable).ok().and_then(|count| count.parse().ok()).unwrap_or(usual);
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let clients = wanted.min(most.saturating_sub(OTHER_FILES)).max(1);
    limit.current = limit.current.max(Some(most.min(clients + OTHER_FILES) as u64));
    setrlimit(Resource::Nofile, limit).expect("as many files as are allowed");
    clients
}

fn resident_megabytes(served: &Served) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.running.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// What one connection to the stream has shown.
#[derive(Default)]
struct Seen {
    ids: Vec<u64>,
    ended: bool,
}

struct Watcher {
    lines: BufReader<tokio::net::TcpStream>,
    seen: Seen,
}

impl Watcher {
    async fn join(address: &str, after: Option<u64>) -> Self {
        // Small, so that one who does not read is soon noticed.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
        let after = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "GET /api/v1/plans/p/progress/stream HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{after}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { lines: BufReader::with_capacity(4 << 10, stream), seen: Seen::default() }
    }

    /// The next id, or none at the end of the plan or of the connection.
    async fn next(&mut self) -> Option<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            match self.lines.read_line(&mut line).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
            if line.trim_end() == "event: end" {
                self.seen.ended = true;
                return None;
            }
            if let Some(id) = line.strip_prefix("id: ") {
                let id = id.trim_end().parse().unwrap();
                // Progress has the id of the state that it follows.
                if self.seen.ids.last() != Some(&id) {
                    self.seen.ids.push(id);
                    return Some(id);
                }
            }
        }
    }

    async fn rest(mut self) -> Seen {
        while self.next().await.is_some() {}
        self.seen
    }
}

/// Reads to the end of the plan; who was cut off in between comes back with the last id it has.
async fn watch_to_the_end(
    address: String,
    joined: tokio::sync::mpsc::Sender<()>,
    mut reads: watch::Receiver<bool>,
) -> (Vec<u64>, usize) {
    let mut watcher = Watcher::join(&address, None).await;
    watcher.next().await.expect("a snapshot");
    joined.send(()).await.unwrap();
    reads.wait_for(|reads| *reads).await.unwrap();
    let mut seen = watcher.rest().await;
    let (mut ids, mut returns) = (seen.ids, 0);
    while !seen.ended {
        returns += 1;
        assert!(returns < 100, "it is cut off again and again");
        seen = Watcher::join(&address, ids.last().copied()).await.rest().await;
        ids.extend(&seen.ids);
    }
    (ids, returns)
}

fn crowded_plan() -> String {
    let tasks: String = (0..10).map(|task| format!("  - {{ id: t-{task} }}\n")).collect();
    let large = "x".repeat(4 << 10);
    let stages: String = (1..=4)
        .map(|stage| format!("  - {{ name: s{stage}, uses: noop, with: {{ outputs: {{ text: {large} }} }} }}\n"))
        .collect();
    format!(
        "plan: p\nmax_concurrency: 10\nstages:\n  - name: wait\n    run: while [ ! -e go ]; do sleep 0.05; done\n{stages}tasks:\n{tasks}"
    )
}

#[test]
fn a_crowd_of_watchers_misses_nothing_and_those_that_do_not_read_hold_up_nobody() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let clients = clients("MILEPOST_TEST_CLIENTS", 10_000);
    let sleepers = clients / 10;
    let world = World::new();
    let most = (clients + 100).to_string();
    let served = world.serve(&["--allow-commands", "--max-connections", &most]);
    world.file("p.yaml", &crowded_plan());
    world.good(&["submit", "p.yaml", "--server", &served.url]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (now, later) = (watch::channel(true).0, watch::channel(false).0);
        let (joined, mut all_joined) = tokio::sync::mpsc::channel(clients);
        let mut watchers = Vec::new();
        for number in 0..clients {
            let reads = if number < sleepers { later.subscribe() } else { now.subscribe() };
            watchers.push(tokio::spawn(watch_to_the_end(served.address.clone(), joined.clone(), reads)));
            // Not all at once: that is how many the kernel lets wait to be accepted.
            if number % 100 == 99 || number + 1 == clients {
                for _ in 0..=number % 100 {
                    tokio::time::timeout(PATIENCE, all_joined.recv()).await.expect("everybody's snapshot");
                }
            }
        }
        let waiting = resident_megabytes(&served);
        world.file("go", "");
        let begun = Instant::now();
        let asleep: Vec<_> = watchers.drain(..sleepers).collect();
        let mut complete: Option<Vec<u64>> = None;
        let mut returned = 0;
        for watcher in watchers {
            let (ids, returns) = tokio::time::timeout(PATIENCE, watcher).await.expect("the end").unwrap();
            assert!(ids.is_sorted_by(|one, next| one < next), "ids only grow");
            let complete = complete.get_or_insert_with(|| ids.clone());
            // Those that came later have a later snapshot first.
            assert!(complete.ends_with(&ids[1..]), "one has seen {ids:?}, another {complete:?}");
            returned += returns;
        }
        let (took, busy) = (begun.elapsed(), resident_megabytes(&served));
        if std::env::var_os("MILEPOST_TEST_CLIENTS").is_some() {
            // Longer than an answer may go unread.
            tokio::time::sleep(Duration::from_secs(70)).await;
        }
        later.send(true).unwrap();
        let mut cut = 0;
        for watcher in asleep {
            let (ids, returns) = tokio::time::timeout(PATIENCE, watcher).await.expect("the end").unwrap();
            assert!(complete.as_ref().unwrap().ends_with(&ids[1..]), "one that slept has seen {ids:?}");
            cut += usize::from(returns > 0);
        }
        eprintln!(
            "{clients} watchers, {sleepers} of them asleep: {} changes seen by all in {took:.1?}, {returned} came back; {cut} of those \
             asleep were cut off and came back. The server has {waiting} MB while they wait, {busy} MB when they have read",
            complete.unwrap().len()
        );
        assert!(waiting.max(busy) <= 400, "the server has {waiting} MB, then {busy} MB");
    });
    served.stop();
}

#[test]
fn thousands_that_take_their_time_are_closed_in_time_and_others_are_served_meanwhile() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let clients = clients("MILEPOST_TEST_SLOW", 5_000);
    let world = World::new();
    let most = (clients + 100).to_string();
    let served = world.serve(&["--max-connections", &most]);
    let begun = Instant::now();
    let mut slow: Vec<(usize, Instant, TcpStream)> = (0..clients)
        .map(|number| {
            let mut stream = TcpStream::connect(&served.address).unwrap();
            let begins = [
                "",
                "GET /healthz HTTP/1.1\r\nHost: x\r\nX: ",
                "POST /api/v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
            ];
            stream.write_all(begins[number % 3].as_bytes()).unwrap();
            stream.set_nonblocking(true).unwrap();
            (number, Instant::now(), stream)
        })
        .collect();
    // Those in the middle of a body have a minute, and are left to it.
    let bodies = slow.extract_if(.., |(number, ..)| *number % 3 == 2).collect::<Vec<_>>();
    let mut answers = Vec::new();
    while !slow.is_empty() {
        let asked = Instant::now();
        assert_eq!(served.status("/readyz"), 200);
        answers.push(asked.elapsed());
        slow.retain_mut(|(number, since, stream)| {
            // One more byte each time, so that something always comes.
            let _ = if *number % 3 == 1 { stream.write(b"x") } else { Ok(0) };
            let mut byte = [0];
            let is_open = match stream.read(&mut byte) {
                Ok(0) => false,
                Ok(_) => true,
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            };
            assert!(!is_open || since.elapsed() < SLOWEST, "one is still open after {:?}", since.elapsed());
            is_open
        });
        std::thread::sleep(Duration::from_millis(50));
    }
    answers.sort_unstable();
    eprintln!(
        "{clients} slow connections, all that did not end their heads closed after {:.1?}; of {} others half were answered in {:?}, the slowest in {:?}",
        begun.elapsed(),
        answers.len(),
        answers[answers.len() / 2],
        answers[answers.len() - 1]
    );
    assert!(answers[answers.len() / 2] < Duration::from_secs(1), "others wait");
    drop(bodies);
    served.stop();
}
