//! A web server with files, which counts how often each is asked for.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Counts(Mutex<BTreeMap<String, usize>>);

pub(crate) struct Files {
    address: String,
    counts: Arc<Counts>,
}

impl Files {
    pub(crate) fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts = Arc::new(Counts::default());
        let counting = counts.clone();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = counting.clone();
                std::thread::spawn(move || answer(stream, &counts));
            }
        });
        Self { address, counts }
    }

    pub(crate) fn uri(&self, task: &str) -> String {
        format!("http://{}/{task}", self.address)
    }

    /// How often the file of a task was fetched.
    pub(crate) fn fetched(&self, task: &str) -> usize {
        self.counts.0.lock().unwrap().get(&format!("/{task}")).copied().unwrap_or(0)
    }

    pub(crate) fn fetched_in_all(&self) -> usize {
        self.counts.0.lock().unwrap().values().sum()
    }
}

/// As many requests as the other side sends; a broken connection is its affair.
fn answer(stream: TcpStream, counts: &Counts) {
    let Ok(reading) = stream.try_clone() else { return };
    let (mut reader, mut writer) = (BufReader::new(reading), stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line == "\r\n" => break,
                Ok(_) => head.push(line),
            }
        }
        let mut words = head[0].split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let body = format!("the file of {path}\n");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let body = if method == "GET" {
            *counts.0.lock().unwrap().entry(path.to_owned()).or_default() += 1;
            body
        } else {
            String::new()
        };
        if writer.write_all(format!("{answer}{body}").as_bytes()).is_err() {
            return;
        }
    }
}
