//! Connections of the HTTP port: HTTP/1 for people and Prometheus, HTTP/2 for gRPC, on the same socket; with the certificates
//! of the Redis port for TLS, if it is on (`http-tls`). A TLS client says by ALPN which HTTP it speaks.
//!
//! Who may ask is in [`super::access`]: the users of the Redis port.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use runtime::Shared;
use session::SessionRuns;
use session::listener;
use settings::HttpTls;
use tls::{Loaded, TlsAcceptor, TlsStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tonic::body::Body;

use super::rows::{self, Rows};
use super::{LAST_CALLS, access, metrics};

/// Calls at a time on one connection.
const CALLS: u32 = 256;
/// Of all headers of a call.
const HEADER_BYTES: u32 = 16 * 1024;
const HEADER_TIME: Duration = Duration::from_secs(10);
/// How HTTP/2 begins.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// For a client to say which of the two it speaks: the library waits for that without limit, and there is room for so many clients only.
const FIRST_WORD_TIME: Duration = Duration::from_secs(5);
/// A client from whom nothing is heard is asked whether it is there.
const ASK_AFTER: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Serves until told to stop.
pub async fn run(
    shared: Arc<Shared>,
    runs: Arc<SessionRuns>,
    listeners: Vec<TcpListener>,
    mut stopped: watch::Receiver<bool>,
) {
    let site = Arc::new(Site {
        rows: Rows::new(&shared, runs),
        shared,
    });
    let graceful = Arc::new(GracefulShutdown::new());
    // More connections wait to be accepted.
    let connections = site.shared.settings.current().descriptors.http;
    let room = Arc::new(Semaphore::new(connections));
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let accepted = accept(listener, site.clone(), graceful.clone(), room.clone());
            tokio::spawn(accepted)
        })
        .collect();
    let _ = stopped.wait_for(|is_asked| *is_asked).await;
    for task in accepting {
        task.abort();
        let _ = task.await;
    }
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(LAST_CALLS, graceful.shutdown()).await;
    }
}

async fn accept(
    listener: TcpListener,
    site: Arc<Site>,
    graceful: Arc<GracefulShutdown>,
    room: Arc<Semaphore>,
) {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(64 * 1024);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS)
        .max_header_list_size(HEADER_BYTES)
        .adaptive_window(true)
        .keep_alive_interval(ASK_AFTER)
        .keep_alive_timeout(ANSWER_WITHIN);
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // Out of descriptors, most likely.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        prepare(&site.shared, &stream);
        let mode = site.shared.settings.current().tls.http;
        let tls = site.shared.tls.current();
        let site = site.clone();
        let service = service_fn(move |request| {
            let site = site.clone();
            async move { Ok::<_, Infallible>(site.answer(request, peer).await) }
        });
        // Who has said nothing yet is no reason to wait when the node stops.
        let (server, graceful) = (server.clone(), Arc::downgrade(&graceful));
        tokio::spawn(async move {
            let begun = tokio::time::timeout(FIRST_WORD_TIME, begin(stream, mode, tls)).await;
            if let Ok(Some(begun)) = begun
                && let Some(watcher) = graceful.upgrade().map(|it| it.watcher())
            {
                // What a client breaks off is its own affair.
                let _ = match begun {
                    Begun::Plain(stream) => {
                        let served = server.serve_connection(TokioIo::new(stream), service);
                        watcher.watch(served.into_owned()).await
                    }
                    Begun::Tls(stream) => {
                        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                        let server = match is_http2 {
                            true => server.http2_only(),
                            false => server.http1_only(),
                        };
                        let served = server.serve_connection(TokioIo::new(*stream), service);
                        watcher.watch(served.into_owned()).await
                    }
                };
            }
            drop(permit);
        });
    }
}

/// A connection whose client has begun to speak.
enum Begun {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// How TLS begins: a record of the handshake.
const HANDSHAKE: u8 = 0x16;

/// None: it speaks what it may not, or nothing.
async fn begin(stream: TcpStream, mode: HttpTls, tls: Option<Arc<Loaded>>) -> Option<Begun> {
    let mut first = [0];
    let is_tls = match mode {
        HttpTls::Plain => false,
        HttpTls::Only => true,
        HttpTls::Both => stream.peek(&mut first).await.ok()? == 1 && first == [HANDSHAKE],
    };
    if is_tls {
        let stream = TlsAcceptor::from(tls?.http.clone()).accept(stream).await;
        return Some(Begun::Tls(Box::new(stream.ok()?)));
    }
    has_begun(&stream).await.then_some(Begun::Plain(stream))
}

/// Waits until a client has said enough to tell which HTTP it speaks; false if it says nothing.
async fn has_begun(stream: &TcpStream) -> bool {
    let mut first = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut first).await.unwrap_or(0);
        let said = first.get(..count).unwrap_or_default();
        match count {
            0 => return false,
            _ if count == PREFACE.len() || !PREFACE.starts_with(said) => return true,
            // More of it comes; what is there would be seen again at once.
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

fn prepare(shared: &Shared, stream: &TcpStream) {
    let keepalive_seconds = shared.settings.current().tcp_keepalive_seconds;
    listener::prepare(stream, keepalive_seconds);
}

/// What the pages and the service know.
struct Site {
    shared: Arc<Shared>,
    rows: Rows,
}

impl Site {
    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
        if rows::is_ours(request.uri().path()) {
            return match access::user_of(&self.shared, request.headers(), peer) {
                Ok(user) => self.rows.call(request, user).await,
                Err(denied) => denied.into_status().into_http(),
            };
        }
        let path = request.uri().path();
        let command = if path == "/metrics" { "info" } else { "ping" };
        let asked = match self.is_open_page(path) {
            true => access::is_reachable(&self.shared, peer),
            false => access::user_of(&self.shared, request.headers(), peer)
                .and_then(|user| access::may_run(&self.shared, &user, &[command])),
        };
        if let Err(denied) = asked {
            return denied.into_page();
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return page(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n");
        }
        match request.uri().path() {
            "/metrics" => {
                let mut response = page(StatusCode::OK, metrics::text(&self.shared));
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            "/healthz" => self.health(),
            "/" => page(
                StatusCode::OK,
                "neokv\n\n/metrics  numbers for Prometheus\n/healthz  whether this node is well\ngRPC      neokv.table.v1.Table\n",
            ),
            _ => page(
                StatusCode::NOT_FOUND,
                "not found; there are /metrics and /healthz\n",
            ),
        }
    }

    fn health(&self) -> Response<Body> {
        let shared = &self.shared;
        if shared.shutdown.is_asked() {
            return page(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        }
        if shared.saving.loading.load(Ordering::Relaxed) {
            return page(StatusCode::SERVICE_UNAVAILABLE, "loading\n");
        }
        match shared.durable.as_ref().and_then(|it| it.refusal()) {
            Some(refusal) => page(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{}\n", refusal.text()),
            ),
            None => page(StatusCode::OK, "ok\n"),
        }
    }

    /// Whether a page is shown to anybody: it is one of the two that may be opened, and the setting says so.
    fn is_open_page(&self, path: &str) -> bool {
        matches!(path, "/metrics" | "/healthz") && self.shared.settings.current().http_open_pages
    }
}

pub(crate) fn page(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(text.into())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
