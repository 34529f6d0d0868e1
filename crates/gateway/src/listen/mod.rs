//! Accepting connections.

pub(crate) mod connection_list;
pub(crate) mod origin;
pub(crate) mod rare_warning;
pub(crate) mod slots;
pub(crate) mod tls;
mod traffic;
mod write_timeout;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::Version;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior};
use tower::ServiceExt;
use tracing::{debug, warn};

use self::rare_warning::RareWarning;
use self::slots::{ConnectionSlot, ConnectionSlots, SlotFound};
use self::tls::Tls;
use self::traffic::Traffic;
use self::write_timeout::WriteTimeout;
use crate::app::App;
use crate::gateway::StartError;
use crate::http;
use crate::options::GatewayOptions;

/// Most streams of one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 100;
/// How long to wait after a connection could not be accepted: mostly because no file descriptor is free, and
/// then the next attempt at once would fail too.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Bytes that a client may send on one stream of HTTP/2, and on all streams of a connection, before they are
/// read: so much can wait in memory without being counted.
const H2_STREAM_WINDOW: u32 = 128 << 10;
const H2_CONNECTION_WINDOW: u32 = 512 << 10;
/// How often an HTTP/2 connection is pinged, and how soon it must answer.
const H2_ALIVE: Duration = Duration::from_secs(30);
const H2_ALIVE_WITHIN: Duration = Duration::from_secs(20);
/// How many streams a client may reset before they are handled, and how many may fail, before the connection
/// is cut.
const H2_RESETS_MAX: usize = 20;
const H2_ERRORS_MAX: usize = 1024;
/// The shortest interval between two checks of a connection.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Listens on all addresses; on none if one of them fails.
pub(crate) async fn start(app: &App, addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>, StartError> {
    let mut listeners = Vec::new();
    for &address in addresses {
        let failed = |error| StartError::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        listeners.push((listener.local_addr().map_err(failed)?, listener));
    }
    let tls = app.options.tls.as_ref().map(|files| Tls::start(app, files)).transpose()?;
    let slots = ConnectionSlots::new(app.options.connections_max);
    let router = http::router(app.clone());
    let mut bound = Vec::new();
    for (address, listener) in listeners {
        bound.push(address);
        app.tasks.spawn(accept(app.clone(), listener, tls.clone(), router.clone(), slots.clone()));
    }
    Ok(bound)
}

async fn accept(
    app: App,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    slots: ConnectionSlots,
) {
    let (mut failures, mut refusals) = (RareWarning::default(), RareWarning::default());
    loop {
        let accepted = tokio::select! {
            () = app.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // The client went away while it waited.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                // Out of file descriptors: this passes, so the server goes on.
                if let Some(times) = failures.due() {
                    warn!(%error, times, "cannot accept a connection");
                }
                tokio::time::sleep_until(Instant::now() + ACCEPT_AGAIN).await;
                continue;
            }
        };
        // Above the limit the client sees a closed connection at once, not one that hangs.
        let Some((slot, found)) = slots.place().await else {
            app.metrics.connection_refused();
            if let Some(times) = refusals.due() {
                let connections_max = app.options.connections_max;
                warn!(%peer, times, connections_max, "closed a connection at once; there are too many");
            }
            continue;
        };
        if found == SlotFound::Evicted {
            app.metrics.connection_evicted();
        }
        let (app, tls, router) = (app.clone(), tls.clone(), router.clone());
        app.clone()
            .tasks
            .spawn(async move { greet(&app, (stream, peer.ip()), tls.as_deref(), router, slot).await });
    }
}

/// Does the TLS handshake if TLS is on, then serves the connection.
async fn greet(
    app: &App,
    (stream, peer): (TcpStream, IpAddr),
    tls: Option<&Tls>,
    router: Router,
    slot: Arc<ConnectionSlot>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "cannot set nodelay");
    }
    let Some(tls) = tls else { return serve(app, (stream, peer), router, slot).await };
    let accepted = tokio::select! {
        () = app.stopping.cancelled() => return,
        () = slot.evicted() => return,
        accepted = tls.accept(stream, Duration::from_millis(app.options.head_timeout_ms)) => accepted,
    };
    match accepted {
        Ok(stream) => serve(app, (stream, peer), router, slot).await,
        Err(error) => debug!(%error, "the TLS handshake with a client failed"),
    }
}

async fn serve(
    app: &App,
    (stream, peer): (impl AsyncRead + AsyncWrite + Unpin + Send + 'static, IpAddr),
    router: Router,
    slot: Arc<ConnectionSlot>,
) {
    // A socket is closed before its place is free: `slot` is dropped after all variables of this function.
    let context = http::ConnectionContext::new(app, peer, slot.handle());
    let mut evicted = Box::pin(slot.evicted());
    let asked = Arc::new(AtomicBool::new(false));
    let traffic = Traffic::new();
    let (asks, begun) = (Arc::clone(&asked), traffic.clone());
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        asks.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(context.clone());
        let watched = (request.version() == Version::HTTP_2).then(|| begun.begin());
        let answering = router.clone().oneshot(request);
        async move {
            let response = answering.await?;
            Ok::<_, Infallible>(match watched {
                Some(request) => response.map(|body| request.watch(body)),
                None => response,
            })
        }
    });
    let write_timeout = Duration::from_millis(app.options.write_timeout_ms);
    let builder = builder(&app.options);
    let stream = TokioIo::new(WriteTimeout::new(stream, write_timeout));
    let connection = builder.serve_connection_with_upgrades(stream, service);
    tokio::pin!(connection);
    let (mut stopping, mut leaving) = (false, false);
    let head_timeout = Duration::from_millis(app.options.head_timeout_ms);
    let mut silent = Box::pin(tokio::time::sleep_until(Instant::now() + head_timeout));
    let idle_timeout = Duration::from_millis(app.options.idle_timeout_ms);
    let mut looks = tokio::time::interval((write_timeout.min(idle_timeout) / 4).max(LOOK_MIN));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    debug!(error = %error, "connection ended");
                }
                return;
            }
            () = evicted.as_mut() => return,
            // Nothing else ends a connection that never sends a byte: hyper waits for it to choose HTTP/1 or
            // HTTP/2.
            () = silent.as_mut(), if !silent.is_elapsed() => {
                if !asked.load(Ordering::Relaxed) {
                    debug!("a connection sent no request");
                    return;
                }
            }
            _ = looks.tick(), if asked.load(Ordering::Relaxed) => {
                if traffic.is_stuck(write_timeout) || leaving && traffic.is_idle(idle_timeout + head_timeout) {
                    debug!("a client does not read its answers, or does not close an idle connection");
                    return;
                }
                if !leaving && traffic.is_idle(idle_timeout) {
                    leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
            () = app.stopping.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

fn builder(options: &GatewayOptions) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // A client that closes its sending side, as `nc` does, still gets its answer.
        .half_close(true)
        .header_read_timeout(Duration::from_millis(options.head_timeout_ms))
        .max_buf_size(HEAD_BYTES_MAX.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS_MAX)
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .initial_connection_window_size(H2_CONNECTION_WINDOW)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_pending_accept_reset_streams(H2_RESETS_MAX)
        .max_local_error_reset_streams(H2_ERRORS_MAX)
        .keep_alive_interval(H2_ALIVE)
        .keep_alive_timeout(H2_ALIVE_WITHIN);
    builder
}
