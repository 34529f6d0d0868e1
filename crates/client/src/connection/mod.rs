//! The task of a connection: it opens, shows the token, notices when the server is gone, and opens again.

mod serve;

pub(crate) use self::serve::renew;

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::ConnectionState;
use crate::error::ClientError;
use crate::frames::decode::ServerFrame;
use crate::frames::encode::{self, FrameMark};
use crate::shared::ClientShared;
use crate::socket::{SocketEnd, SocketItem, WsSocket};

/// How long the tokens of a function may be refused before the client gives up. A new token may reach the server
/// some time after the function knows it.
const TOKEN_PATIENCE: Duration = Duration::from_secs(60);
/// A connection that lived this long was a good one: the next wait is short again.
const GOOD_AFTER: Duration = Duration::from_secs(2);
/// Close codes of the server.
const TOKEN_OVER: u16 = 4401;
const TOO_MANY: u16 = 4429;
const MESSAGE_TOO_LONG: u16 = 1009;
const TOO_MANY_WAIT: Duration = Duration::from_secs(3);
/// Publishes are looked at this often while there is no connection.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A connection that failed.
struct LostConnection {
    error: ClientError,
    code: u16,
}

/// Connects, and connects again whenever the connection is lost, until the client is closed.
pub(crate) async fn run(shared: Arc<ClientShared>) {
    let (mut tries, mut refused_since) = (0, None);
    loop {
        shared.set_phase(ConnectionState::Connecting, None);
        let lost = match during(&shared, open(&shared)).await {
            None => return,
            Some(Err(lost)) => lost,
            Some(Ok((socket, token))) => {
                let opened_at = Instant::now();
                refused_since = None;
                let end = serve::serve(&shared, socket, token).await;
                if shared.core().is_over() {
                    return;
                }
                if opened_at.elapsed() > GOOD_AFTER {
                    tries = 0;
                }
                lose(&shared, end)
            }
        };
        tries += 1;
        let LostConnection { error, code } = lost;
        if error.is("bad_token") || error.is("unauthorized") {
            let since: &mut Instant = refused_since.get_or_insert_with(Instant::now);
            if !shared.options.token.is_renewable() || since.elapsed() >= TOKEN_PATIENCE {
                shared.report(error.clone());
                return shared.end(Some(error));
            }
        }
        let wait = wait(&shared, tries, &error, code);
        shared.set_phase(ConnectionState::Connecting, Some(error));
        if during(&shared, tokio::time::sleep_until(Instant::now() + wait)).await.is_none() {
            return;
        }
    }
}

/// How long to wait before the next try.
fn wait(shared: &ClientShared, tries: u32, error: &ClientError, code: u16) -> Duration {
    // A token that is over is replaced at once.
    if code == TOKEN_OVER && tries == 1 {
        return Duration::ZERO;
    }
    let is_too_much = code == TOO_MANY || error.is("rate_limited") || error.is("too_many_connections");
    let least = if is_too_much { error.retry_after().unwrap_or(TOO_MANY_WAIT) } else { Duration::ZERO };
    shared.options.reconnect.after(tries - 1).max(least)
}

/// An open connection ended: nothing is sent from here on, and what waits for answers is told.
fn lose(shared: &ClientShared, end: SocketEnd) -> LostConnection {
    let SocketEnd { code, reason } = end;
    let why = if reason.is_empty() { format!("code {code}") } else { reason };
    let message = format!("the connection to {} ended: {why}", shared.dialer.address);
    let error = ClientError::new("disconnected", message).with_detail("close_code", code);
    shared.set_phase(ConnectionState::Connecting, Some(error.clone()));
    shared.change(|core, effects| core.down(&error, code == MESSAGE_TOO_LONG, effects));
    LostConnection { error, code }
}

/// A connection that was never open.
fn failed(error: ClientError) -> LostConnection {
    LostConnection { error, code: 0 }
}

/// Opens a connection and shows the token.
async fn open(shared: &ClientShared) -> Result<(WsSocket, Option<String>), LostConnection> {
    let token = shared.options.token.read().await.map_err(|error| {
        shared.report(error.clone());
        failed(error)
    })?;
    let timeout = shared.options.open_timeout;
    let opening = async {
        let mut socket = WsSocket::open(&shared.dialer).await.map_err(failed)?;
        match show_token(&mut socket, token.as_deref()).await {
            Ok(Ok(())) => Ok(socket),
            Ok(Err(error)) => Err(failed(error)),
            Err(SocketEnd { code, reason }) => {
                let why =
                    format!("the connection ended before the token was accepted: {reason} (code {code})");
                Err(LostConnection { error: shared.dialer.address.unreachable(why), code })
            }
        }
    };
    let late = || {
        let why = format!("no answer within {} ms", timeout.as_millis());
        Err(failed(shared.dialer.address.unreachable(why)))
    };
    let socket = tokio::time::timeout(timeout, opening).await.unwrap_or_else(|_| late())?;
    shared.http.token.keep(token.clone());
    Ok((socket, token))
}

/// Sends `AUTH` and waits for its answer.
async fn show_token(
    socket: &mut WsSocket,
    token: Option<&str>,
) -> Result<Result<(), ClientError>, SocketEnd> {
    let mut text = encode::auth(token);
    encode::end(&mut text, FrameMark::Request(0));
    let mut text = Some(text);
    std::future::poll_fn(|cx| {
        if let Some(text) = text.take() {
            socket.write(cx, text.into())?;
        }
        if let Poll::Ready(Err(end)) = socket.poll_flush(cx) {
            return Poll::Ready(Err(end));
        }
        loop {
            let item = match socket.poll_read(cx) {
                Poll::Ready(item) => item?,
                Poll::Pending => return Poll::Pending,
            };
            let SocketItem::Text(text) = item else { continue };
            match ServerFrame::read(text.as_str()) {
                Ok(ServerFrame::Ok(_)) => return Poll::Ready(Ok(Ok(()))),
                Ok(ServerFrame::Err(fields)) => return Poll::Ready(Ok(Err(fields.error))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Ok(Err(error))),
            }
        }
    })
    .await
}

/// Does work while publishes that are overdue are given up; `None` if the client is closed meanwhile.
async fn during<T>(shared: &ClientShared, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut timer) = (pin!(work), pin!(tokio::time::sleep_until(Instant::now() + LOOK_EVERY)));
    std::future::poll_fn(|cx| {
        shared.connection.register(cx.waker());
        if shared.core().is_over() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        // Without publishes the timer is not polled, and so it never wakes the task.
        while shared.core().outbox.pending() > 0 && timer.as_mut().poll(cx).is_ready() {
            shared.change(|core, effects| core.tick(Instant::now(), effects));
            timer.as_mut().reset(Instant::now() + LOOK_EVERY);
        }
        Poll::Pending
    })
    .await
}
