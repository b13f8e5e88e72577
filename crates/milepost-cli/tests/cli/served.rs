//! `milepost serve` as a process of its own, and what it answers to requests as plain as a socket makes them.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Finished, PATIENCE, Running, World, wait_for};

/// A server that listens, and where; killed if the test leaves it behind.
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) address: String,
    pub(crate) url: String,
}

impl World {
    pub(crate) fn serve(&self, args: &[&str]) -> Served {
        self.serve_at("127.0.0.1:0", args)
    }

    pub(crate) fn serve_at(&self, address: &str, args: &[&str]) -> Served {
        let running = self.start(&[&["serve", "--listen", address], args].concat());
        let address = wait_for("the server to listen", || {
            let said = running.stderr();
            let rest = said.split_once("listening on http://")?.1;
            Some(rest.split_once(' ')?.0.to_owned())
        });
        Served { running, url: format!("http://{address}"), address }
    }
}

impl Served {
    /// The status and the body of an answer.
    pub(crate) fn ask(&self, method: &str, path: &str, token: Option<&str>) -> (u16, String) {
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        self.send(&format!("{method} {path}"), &token, "")
    }

    pub(crate) fn status(&self, path: &str) -> u16 {
        self.ask("GET", path, None).0
    }

    /// What is at a path of the API, which must be there.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, text) = self.send(&format!("GET /api/v1{path}"), "", "");
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// What a path of the API answers to this, which it must take.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, kind: &str, body: &str) -> Value {
        let (status, text) = self.send(&format!("POST /api/v1{path}"), &format!("Content-Type: {kind}\r\n"), body);
        assert!(matches!(status, 200 | 201), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn kill(self) {
        self.running.signal(Signal::KILL);
        self.running.end();
    }

    /// Asks it to leave, and waits until it has.
    pub(crate) fn stop(self) -> Finished {
        self.running.signal(Signal::TERM);
        self.running.end().must_exit(0)
    }

    fn send(&self, what: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head = format!(
            "{what} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}",
            self.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }
}
