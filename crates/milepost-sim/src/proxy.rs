//! A process's way to a real server: what goes through it is slowed, stopped and lost as the weather says.
//!
//! A question is what a client sends at once. It gets lost, or its answer does, by the end of its connection, which is
//! how a client learns of it; it may also arrive after that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::life::Life;
use crate::shared::Shared;

/// By when a question arrives at the latest whose connection has ended.
const LATE_BY_MS: u64 = 2_500;
const DONE_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) shared: Arc<Shared>,
    pub(crate) life: Arc<Life>,
    pub(crate) node: usize,
    /// `host:port`
    pub(crate) server: Arc<str>,
}

/// What becomes of a question.
enum Fate {
    Arrives { answer_lost: bool },
    IsLost,
    IsLate(Duration),
}

/// How a connection ended.
enum End {
    Closed,
    /// With a question that is still on its way.
    Before(Vec<u8>, Duration),
}

impl Proxy {
    /// Listens as long as its process lives; answers the port.
    pub(crate) async fn open(self) -> std::io::Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let life = self.life.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = life.died() => {}
                () = self.take_connections(listener) => {}
            }
        });
        Ok(port)
    }

    async fn take_connections(self, listener: TcpListener) {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(self.clone().pass(client));
        }
    }

    async fn pass(self, client: TcpStream) {
        if !self.lets_through().await {
            return;
        }
        let Ok(server) = TcpStream::connect(&*self.server).await else { return };
        let (Ok(()), Ok(())) = (client.set_nodelay(true), server.set_nodelay(true)) else { return };
        let (from_client, to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let loses = AtomicBool::new(false);
        let end = tokio::select! {
            biased;
            () = self.life.died() => End::Closed,
            end = self.ask(from_client, &mut to_server, &loses) => end,
            () = self.answer(&mut from_server, to_client, &loses) => End::Closed,
        };
        if let End::Before(question, late) = end {
            tokio::time::sleep(late).await;
            let _ = to_server.write_all(&question).await;
            // The server has done it by the time it has something to say.
            let _ = tokio::time::timeout(DONE_WITHIN, from_server.read(&mut [0; 1])).await;
        }
    }

    async fn ask(&self, mut client: OwnedReadHalf, server: &mut OwnedWriteHalf, loses: &AtomicBool) -> End {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = client.read(&mut bytes).await {
            if !self.lets_through().await {
                return End::Closed;
            }
            match self.fate() {
                Fate::IsLost => return End::Closed,
                Fate::IsLate(late) => return End::Before(bytes[..count].to_vec(), late),
                Fate::Arrives { answer_lost } => {
                    loses.fetch_or(answer_lost, Ordering::Relaxed);
                    if server.write_all(&bytes[..count]).await.is_err() {
                        return End::Closed;
                    }
                }
            }
        }
        End::Closed
    }

    async fn answer(&self, server: &mut OwnedReadHalf, mut client: OwnedWriteHalf, loses: &AtomicBool) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = server.read(&mut bytes).await {
            let through = self.lets_through().await && !loses.load(Ordering::Relaxed);
            if !through || client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }

    /// Waits as long as it takes to get through; false when it does not, and the connection ends.
    async fn lets_through(&self) -> bool {
        let (length, closed) = {
            let weather = &mut self.shared.state().weather;
            let latency = Duration::from_millis(weather.dice.below(weather.network.latency_ms + 1));
            (latency + weather.slowness() / 2, weather.closed_until(Some(self.node)).is_some())
        };
        if closed && self.shared.state().weather.dice.chance(500) {
            return false;
        }
        if !length.is_zero() {
            tokio::time::sleep(length).await;
        }
        loop {
            self.life.thawed().await;
            let closed = self.shared.state().weather.closed_until(Some(self.node));
            let Some(until) = closed else { return true };
            tokio::time::sleep_until(until).await;
        }
    }

    fn fate(&self) -> Fate {
        let weather = &mut self.shared.state().weather;
        let (network, dice) = (weather.network, &mut weather.dice);
        if dice.chance(network.lost) {
            Fate::IsLost
        } else if dice.chance(network.late) {
            Fate::IsLate(Duration::from_millis(dice.below(LATE_BY_MS)))
        } else {
            Fate::Arrives { answer_lost: dice.chance(network.answer_lost) }
        }
    }
}
