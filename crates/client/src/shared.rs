//! What the handles, the tasks and the connection of a client share.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use promethean_model::wire::Op;
use promethean_model::{Clock, EventId, IdMint, IgnorePoison, SystemClock};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::core::{ConnectionState, Core, FrameWaiter};
use crate::dial::Dialer;
use crate::effects::LockEffects;
use crate::error::ClientError;
use crate::frames::decode::OkFields;
use crate::http::HttpClient;
use crate::member::table::TakenLease;
use crate::member::{MemberState, OnError};
use crate::token::TokenSource;

/// The options of a client that its parts look at.
#[derive(Clone)]
pub(crate) struct ConnectionOptions {
    pub(crate) token: TokenSource,
    pub(crate) open_timeout: Duration,
    pub(crate) ping_every: Duration,
    pub(crate) ping_timeout: Duration,
    pub(crate) reconnect: Backoff,
    pub(crate) publish_timeout: Duration,
    pub(crate) on_error: OnError,
}

/// One client.
pub(crate) struct ClientShared {
    core: Mutex<Core>,
    /// Wakes the task of the connection.
    pub(crate) connection: AtomicWaker,
    pub(crate) dialer: Dialer,
    pub(crate) http: Arc<HttpClient>,
    pub(crate) options: ConnectionOptions,
    /// The task of the connection.
    pub(crate) tasks: TaskTracker,
    /// The tasks that run handlers.
    pub(crate) workers: TaskTracker,
    pub(crate) state: watch::Sender<ConnectionState>,
    pub(crate) clock: SystemClock,
    mint: IdMint,
}

impl ClientShared {
    pub(crate) fn new(core: Core, dialer: Dialer, options: ConnectionOptions) -> Result<Self, ClientError> {
        let mint =
            IdMint::new().map_err(|cause| ClientError::new("internal", cause.to_string()).because(cause))?;
        Ok(Self {
            core: Mutex::new(core),
            connection: AtomicWaker::new(),
            http: Arc::new(HttpClient::new(dialer.clone(), options.token.clone())),
            dialer,
            options,
            tasks: TaskTracker::new(),
            workers: TaskTracker::new(),
            state: watch::Sender::new(ConnectionState::Idle),
            clock: SystemClock::new(),
            mint,
        })
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().ignore_poison()
    }

    /// Changes the state, and then does what follows from it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Core, &mut LockEffects) -> R) -> R {
        let mut effects = LockEffects::default();
        let result = change(&mut self.core(), &mut effects);
        effects.run();
        result
    }

    /// Mints an id.
    pub(crate) fn mint(&self) -> EventId {
        self.mint.mint(u64::try_from(self.clock.wall_ms()).unwrap_or(0))
    }

    /// Tells the user about a failure that no call reports.
    pub(crate) fn report(&self, error: ClientError) {
        self.change(|core, effects| core.report(error, effects));
    }

    pub(crate) fn set_phase(&self, phase: ConnectionState, failure: Option<ClientError>) {
        self.change(|core, _| {
            if core.is_over() {
                return;
            }
            core.phase = phase;
            if failure.is_some() {
                core.failure = failure;
            }
        });
        self.show_phase();
    }

    /// The connection is open.
    pub(crate) fn set_open(&self) {
        self.core().up();
        self.show_phase();
    }

    /// Shows the phase to those who watch it. Another thread may change it meanwhile; the last phase wins.
    fn show_phase(&self) {
        loop {
            let phase = self.core().phase;
            self.state.send_replace(phase);
            if self.core().phase == phase {
                return;
            }
        }
    }

    /// Ends the client for good.
    pub(crate) fn end(&self, failure: Option<ClientError>) {
        self.change(|core, effects| {
            if core.is_over() {
                return;
            }
            core.phase = ConnectionState::Closed;
            (core.is_leaving, core.is_closing) = (true, true);
            core.failure = failure.clone();
            let closed =
                || ClientError::new("client_closed", "the client was closed before the server answered");
            let (is_failure, error) = (failure.is_some(), failure.unwrap_or_else(closed));
            core.end(&error, is_failure, effects);
        });
        self.show_phase();
        self.tasks.close();
        self.workers.close();
        self.connection.wake();
    }

    /// Waits until the connection is open. Fails if the client gave up, or if a cause is found that waiting does
    /// not cure.
    pub(crate) async fn when_open(&self, timeout: Duration) -> Result<(), ClientError> {
        let mut state = self.state.subscribe();
        let wait = async {
            loop {
                {
                    let core = self.core();
                    match core.phase {
                        ConnectionState::Open => return Ok(()),
                        ConnectionState::Closed => return Err(core.over_error()),
                        ConnectionState::Idle | ConnectionState::Connecting => {}
                    }
                    if let Some(failure) = core.failure.as_ref().filter(|failure| !failure.is_retryable()) {
                        return Err(failure.clone());
                    }
                }
                // The sender lives as long as this client.
                if state.changed().await.is_err() {
                    return Err(self.core().over_error());
                }
            }
        };
        tokio::time::timeout(timeout, wait).await.unwrap_or_else(|_| {
            let failure = self.core().failure.clone();
            let late =
                || self.dialer.address.unreachable(format!("no answer within {} ms", timeout.as_millis()));
            Err(failure.unwrap_or_else(late))
        })
    }

    /// Sends a frame; its answer comes to the receiver.
    pub(crate) fn begin(
        &self,
        op: Op,
        text: impl FnOnce(&mut Core) -> Option<String>,
    ) -> Result<oneshot::Receiver<Result<OkFields, ClientError>>, ClientError> {
        let answer = {
            let mut core = self.core();
            self.check_open(&core, op)?;
            let Some(text) = text(&mut core) else { return Err(gone(op)) };
            let (sender, answer) = oneshot::channel();
            core.request(text, FrameWaiter::Caller(sender));
            answer
        };
        self.connection.wake();
        Ok(answer)
    }

    pub(crate) fn check_open(&self, core: &Core, op: Op) -> Result<(), ClientError> {
        match core.phase {
            ConnectionState::Open => Ok(()),
            ConnectionState::Closed => Err(core.over_error()),
            ConnectionState::Idle | ConnectionState::Connecting => {
                let message = format!(
                    "{} needs a connection, and there is none now; wait for `connect()` and try again",
                    op.name()
                );
                Err(ClientError::new("disconnected", message).with_side_effects(false))
            }
        }
    }

    pub(crate) async fn answer_in_time<T>(
        &self,
        op: Op,
        answer: oneshot::Receiver<Result<T, ClientError>>,
        timeout: Duration,
    ) -> Result<T, ClientError> {
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(self.core().over_error()),
            Err(_) => {
                let message = format!(
                    "the server did not answer {} within {} ms; try again",
                    op.name(),
                    timeout.as_millis()
                );
                Err(ClientError::new("timeout", message))
            }
        }
    }

    /// Takes the next lease of a subscription; `None` when it is over. `is_handler`: a handler takes it, which
    /// runs until it is reported as handled.
    pub(crate) fn poll_take(
        &self,
        id: u64,
        is_handler: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<TakenLease, ClientError>>> {
        let mut core = self.core();
        let Some(member) = core.members.get_mut(&id) else { return Poll::Ready(None) };
        if !member.is_open() {
            // The call that subscribes a handler reports its failure.
            let failure = if is_handler { None } else { member.failure.take() };
            return Poll::Ready(failure.map(Err));
        }
        if !(is_handler && member.is_paused)
            && let Some(lease) = member.table.take()
        {
            member.running += usize::from(is_handler);
            return Poll::Ready(Some(Ok(lease)));
        }
        member.wait_for_leases(cx.waker());
        Poll::Pending
    }

    /// Waits until the server has accepted a subscription.
    pub(crate) async fn ready(&self, id: u64) -> Result<(), ClientError> {
        std::future::poll_fn(|cx| {
            let mut core = self.core();
            let over = core.over_error();
            let Some(member) = core.members.get_mut(&id) else { return Poll::Ready(Err(over)) };
            match (member.state, &member.failure) {
                (MemberState::Starting, _) => {
                    core.watch_member(id, cx.waker());
                    Poll::Pending
                }
                (MemberState::Ended, Some(failure)) => Poll::Ready(Err(failure.clone())),
                (MemberState::Ended, None) => Poll::Ready(Err(over)),
                _ => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// Leaves a group: waits until the events that are being handled are settled, and gives all others back.
    pub(crate) async fn close_member(&self, id: u64, deadline: Instant) -> Result<(), ClientError> {
        let name = self.change(|core, effects| {
            let member = core.members.get_mut(&id).filter(|member| member.state != MemberState::Ended)?;
            member.state = MemberState::Closing;
            member.wake_all(effects);
            let name = format!("`{}` in `{}`", member.options.topic, member.options.group);
            core.plan_acks(id);
            Some(name)
        });
        let Some(name) = name else { return Ok(()) };
        self.connection.wake();
        let idle = std::future::poll_fn(|cx| {
            let mut core = self.core();
            let is_done = core.is_over() || core.members.get(&id).is_none_or(|member| member.is_idle());
            if is_done {
                return Poll::Ready(());
            }
            core.watch_member(id, cx.waker());
            Poll::Pending
        });
        let in_time = tokio::time::timeout_at(deadline, idle).await;
        self.leave(id).await;
        in_time.map_err(|_| {
            let message = format!("handlers of {name} still ran; their events are given back");
            ClientError::new("timeout", message)
        })
    }

    /// Gives all events of a subscription back, and ends it.
    async fn leave(&self, id: u64) {
        let frame = |core: &mut Core| {
            core.flush_acks(id);
            core.members.get(&id).map(|member| member.frame(Op::Unsubscribe))
        };
        let left = match self.begin(Op::Unsubscribe, frame) {
            Ok(answer) => self.answer_in_time(Op::Unsubscribe, answer, LEAVE_TIMEOUT).await,
            Err(error) => Err(error),
        };
        if let Err(error) = left
            && !["disconnected", "not_subscribed", "client_closed"].contains(&error.code())
        {
            self.report(error);
        }
        self.change(|core, effects| core.end_member(id, None, effects));
    }

    /// Leaves a group at once, without waiting.
    pub(crate) fn abandon_member(&self, id: u64) {
        self.change(|core, effects| {
            let is_open = core.is_open();
            let frame = core.members.get(&id).filter(|member| member.state != MemberState::Ended && is_open);
            if let Some(text) = frame.map(|member| member.frame(Op::Unsubscribe)) {
                core.flush_acks(id);
                core.request(text, FrameWaiter::Ignored);
            }
            core.detach_member(id);
            core.end_member(id, None, effects);
        });
        self.connection.wake();
    }

    pub(crate) fn on_error(&self) -> OnError {
        Arc::clone(&self.options.on_error)
    }
}

/// How long the answer to a goodbye may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

fn gone(op: Op) -> ClientError {
    ClientError::new("not_subscribed", format!("{}: the subscription is over; subscribe again", op.name()))
}
