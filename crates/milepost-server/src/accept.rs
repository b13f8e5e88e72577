//! Connections: as many as there is room for, none that keeps us waiting, and each let go in good order.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::app::App;
use crate::patience::Impatient;
use crate::tls::Tls;

/// A request's head must fit into this.
const MOST_HEAD_BYTES: usize = 32 * 1024;
const MOST_HEADERS: usize = 100;
/// Requests at once on one HTTP/2 connection.
const MOST_STREAMS: u32 = 128;
/// An HTTP/2 connection whose other end is gone is noticed by this.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// How many of those beyond the limit are told so at once; the rest is closed without a word.
const TURNED_AWAY_AT_ONCE: usize = 64;
const TURNED_AWAY_WITHIN: Duration = Duration::from_secs(1);

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

pub(crate) struct Listening {
    pub(crate) listener: TcpListener,
    pub(crate) router: Router,
    pub(crate) tls: Option<Tls>,
    pub(crate) app: App,
    pub(crate) stop: CancellationToken,
}

/// Until it is stopped; then until the last request has its answer.
pub(crate) async fn run(listening: Listening) {
    let Listening { listener, router, tls, app, stop } = listening;
    let room = Arc::new(Semaphore::new(app.settings().max_connections));
    let door = Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE));
    let http = Arc::new(http(&app));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: some connection ends in a moment.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(place) = room.clone().try_acquire_owned() else {
            if let Ok(place) = door.clone().try_acquire_owned()
                && tls.is_none()
            {
                connections.spawn(async move {
                    turn_away(stream).await;
                    drop(place);
                });
            }
            continue;
        };
        let connection =
            Connection { peer, router: router.clone(), http: http.clone(), app: app.clone(), stop: stop.clone() };
        let tls = tls.clone();
        connections.spawn(async move {
            connection.serve_any(stream, tls).await;
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

type Http = Builder<TokioExecutor>;

fn http(app: &App) -> Http {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(app.settings().head_timeout)
        .max_buf_size(MOST_HEAD_BYTES)
        .max_headers(MOST_HEADERS);
    http.http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(MOST_HEAD_BYTES).unwrap_or(u32::MAX))
        .max_concurrent_streams(MOST_STREAMS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    http
}

struct Connection {
    peer: SocketAddr,
    router: Router,
    http: Arc<Http>,
    app: App,
    stop: CancellationToken,
}

impl Connection {
    async fn serve_any(self, stream: TcpStream, tls: Option<Tls>) {
        // Answers are written whole; waiting for more to send would only delay them.
        let _ = stream.set_nodelay(true);
        let stream = Impatient::new(stream, self.app.settings().write_timeout);
        let Some(tls) = tls else { return self.serve(stream).await };
        let handshake = tokio::time::timeout(self.app.settings().head_timeout, tls.acceptor().accept(stream));
        match handshake.await {
            Ok(Ok(stream)) => self.serve(stream).await,
            Ok(Err(error)) => tracing::debug!(peer = %self.peer, %error, "no TLS connection was made"),
            Err(_) => tracing::debug!(peer = %self.peer, "the TLS handshake took too long"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let (peer, router) = (Peer(self.peer), self.router);
        // The timeout on heads begins with the first bytes that tell which HTTP this is; until then, this one counts.
        let spoke = Arc::new(AtomicBool::new(false));
        let spoken = spoke.clone();
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            spoken.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(peer);
            router.clone().oneshot(request.map(Body::new))
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let mut patience = pin!(tokio::time::sleep(self.app.settings().head_timeout));
        let (mut waiting, mut leaving) = (true, false);
        loop {
            tokio::select! {
                ended = &mut connection => {
                    if let Err(error) = ended {
                        tracing::debug!(peer = %self.peer, error, "a connection ended early");
                    }
                    return;
                }
                () = &mut patience, if waiting => {
                    waiting = false;
                    if !spoke.load(Ordering::Relaxed) {
                        tracing::debug!(peer = %self.peer, "no request came in time");
                        return;
                    }
                }
                () = self.stop.cancelled(), if !leaving => {
                    leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// There is no room: says so, and waits for the other end to have read it.
async fn turn_away(mut stream: TcpStream) {
    const BODY: &str = r#"{"type":"urn:milepost:problem:too-many-connections","title":"Service Unavailable","status":503,"detail":"there are too many connections; try again in a moment","code":"too-many-connections"}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    let exchange = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // To close with something unread would make the other end forget what we said.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(TURNED_AWAY_WITHIN, exchange).await;
}
