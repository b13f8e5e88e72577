//! A server of a few lines that answers from a table, for what the command line makes of the answers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What was asked of it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// `GET /plans/p?limit=2`, below `/api/v1`.
    pub(crate) what: String,
    pub(crate) token: Option<String>,
    /// `Idempotency-Key`.
    pub(crate) key: Option<String>,
    pub(crate) body: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    content_type: &'static str,
    body: String,
    /// The stream goes on, and nothing comes.
    stays_open: bool,
}

impl Reply {
    pub(crate) fn json(body: impl Into<String>) -> Self {
        Self { status: 200, content_type: "application/json", body: body.into(), stays_open: false }
    }

    pub(crate) fn problem(status: u16, code: &str, detail: &str, errors: &str) -> Self {
        let body = format!(
            r#"{{"type":"urn:milepost:problem:{code}","title":"","status":{status},"detail":"{detail}","code":"{code}","errors":[{errors}]}}"#
        );
        Self { status, content_type: "application/problem+json", body, stays_open: false }
    }

    pub(crate) fn stream(events: &[(&str, String)]) -> Self {
        let body =
            events.iter().zip(1..).map(|((kind, data), id)| format!("event: {kind}\nid: {id}\ndata: {data}\n\n"));
        Self { status: 200, content_type: "text/event-stream", body: body.collect(), stays_open: false }
    }

    pub(crate) fn that_stays_open(self) -> Self {
        Self { stays_open: true, ..self }
    }
}

/// Listens on loopback for as long as the tests run.
pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// What is not in the table is not found.
    pub(crate) fn new(table: impl IntoIterator<Item = (&'static str, Reply)>) -> Self {
        let table: HashMap<String, Reply> = table.into_iter().map(|(what, reply)| (what.to_owned(), reply)).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let keep = asked.clone();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept() {
                let question = read(&stream);
                let plain = question.what.split('?').next().unwrap_or_default();
                let nothing = || Reply::problem(404, "not-found", "there is no such thing", "");
                let reply = table.get(plain).cloned().unwrap_or_else(nothing);
                keep.lock().unwrap().push(question);
                // Who has gone away does not want the answer.
                let _ = stream.write_all(&words(&reply));
                if reply.stays_open {
                    open.push(stream);
                }
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn words(reply: &Reply) -> Vec<u8> {
    let Reply { status, content_type, body, stays_open } = reply;
    let length = if *stays_open { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    format!("HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{length}connection: close\r\n\r\n{body}")
        .into_bytes()
}

fn read(stream: &TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        let found = lines.iter().filter_map(|line| line.split_once(": "));
        found.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let mut body = vec![0; header("content-length").map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let what = lines[0].replace("/api/v1", "").replace(" HTTP/1.1", "");
    let token = header("authorization").and_then(|value| value.strip_prefix("Bearer ").map(str::to_owned));
    Asked { what, token, key: header("idempotency-key"), body: String::from_utf8(body).unwrap() }
}
