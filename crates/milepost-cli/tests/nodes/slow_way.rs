//! A way to a server on which everything takes its time, in both directions, once it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const HOST: &str = "127.0.0.1:";

pub(crate) struct SlowWay {
    pub(crate) url: String,
    by_ms: Arc<AtomicU64>,
}

impl SlowWay {
    /// A way to this server, which lasts as long as the tests.
    pub(crate) fn to(url: &str) -> Self {
        let (before, after) = url.split_once(HOST).expect("the server is on this machine");
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (server, rest) = after.split_at(end);
        let server = format!("{HOST}{server}");
        let listener = TcpListener::bind(format!("{HOST}0")).unwrap();
        let url = format!("{before}{}{rest}", listener.local_addr().unwrap());
        let by_ms = Arc::new(AtomicU64::new(0));
        let delay = by_ms.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                delayed(client.try_clone().unwrap(), server.try_clone().unwrap(), delay.clone());
                delayed(server, client, delay.clone());
            }
        });
        Self { url, by_ms }
    }

    /// From now on each byte arrives so much later, in each direction.
    pub(crate) fn slow_down(&self, by: Duration) {
        self.by_ms.store(by.as_millis() as u64, Ordering::Relaxed);
    }
}

fn delayed(mut from: TcpStream, mut to: TcpStream, by_ms: Arc<AtomicU64>) {
    let (sender, arrivals) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let by = Duration::from_millis(by_ms.load(Ordering::Relaxed));
            if sender.send((Instant::now() + by, bytes[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (at, bytes) in arrivals {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
