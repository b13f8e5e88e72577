//! A server of a few lines: each connection gets the next reply of a script, and what was asked is kept.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a client sent.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// `GET /api/v1/plans HTTP/1.1`
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// What a connection gets.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Closed without a word, after the request was read.
    HangUp,
    Words(String),
}

impl Reply {
    pub(crate) fn json(status: &str, body: &str) -> Self {
        Self::typed(status, "application/json", body)
    }

    pub(crate) fn problem(status: u16, code: &str, detail: &str) -> Self {
        let body = format!(
            r#"{{"type":"urn:milepost:problem:{code}","title":"","status":{status},"detail":"{detail}","code":"{code}"}}"#
        );
        Self::typed(&format!("{status} Problem"), "application/problem+json", &body)
    }

    pub(crate) fn typed(status: &str, content_type: &str, body: &str) -> Self {
        let length = body.len();
        Self::Words(format!(
            "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\nretry-after: 0\r\nconnection: close\r\n\r\n{body}"
        ))
    }

    /// A stream that breaks off after these events.
    pub(crate) fn stream(events: &str) -> Self {
        Self::Words(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}"))
    }
}

/// Listens on loopback until its script is at its end; after that nobody is there any more.
pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(crate) fn new(script: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let keep = asked.clone();
        std::thread::spawn(move || {
            for reply in script {
                let (stream, _) = listener.accept().unwrap();
                let question = read(&stream);
                keep.lock().unwrap().push(question);
                if let Reply::Words(words) = reply {
                    (&stream).write_all(words.as_bytes()).unwrap();
                }
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
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
    let line = lines.remove(0);
    let pair = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    let headers = lines.iter().filter_map(pair).collect();
    let mut asked = Asked { line, headers, body: String::new() };
    let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    asked.body = String::from_utf8(body).unwrap();
    asked
}

/// A plan as an answer has it.
pub(crate) const PLAN: &str = r#""planId":"p","status":"RUNNING","tasks":{"total":2,"pending":1,"running":1,"paused":0,"completed":0,"failed":0,"cancelled":0,"rollingBack":0,"rolledBack":0,"rollbackFailed":0},"progress":0.0,"maxConcurrency":5,"version":1,"changedBy":null,"createdAt":"2025-11-04T10:00:00Z","startedAt":null,"endedAt":null"#;
