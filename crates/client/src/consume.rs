//! Consuming a subscription: handlers that run for each event, or leases to loop over.

use std::fmt;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::Stream;
use promethean_model::wire::Op;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::client::Client;
use crate::core::{Core, FrameWaiter};
use crate::error::ClientError;
use crate::frames::encode;
use crate::lease::{LeaseGrip, TypedLease};
use crate::member::table::TakenLease;
use crate::shared::ClientShared;
use crate::start_from::StartFrom;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How much longer than asked the answer to a `FETCH` may take.
const FETCH_GRACE: Duration = Duration::from_secs(15);
/// The longest wait that the server grants a `FETCH`.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(60);

tokio::task_local! {
    /// The client whose handler runs in this task.
    static HANDLING: usize;
}

/// Refuses a call that would wait for the handler that makes it.
pub(crate) fn check_not_handling(shared: &Arc<ClientShared>) -> Result<(), ClientError> {
    let is_inside = HANDLING.try_with(|client| *client == Arc::as_ptr(shared) as usize).unwrap_or(false);
    if !is_inside {
        return Ok(());
    }
    let message = "a handler cannot await close(), which waits for handlers; call close() in a task of its own, with \
                   tokio::spawn, or after the handler";
    Err(ClientError::new("bad_use", message))
}

/// Why a handler failed: the reason of the nack. Any error becomes one with `?`.
#[derive(Debug)]
pub struct HandlerError {
    reason: String,
    delay: Option<Duration>,
}

impl HandlerError {
    /// A failure with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), delay: None }
    }

    /// Delivers the event again after this time.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// What a seek did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeekOutcome {
    /// The floor before.
    pub from: u64,
    /// The floor afterwards.
    pub to: u64,
    /// How many finished events are delivered again.
    pub replayed: u64,
    /// How many events are passed over.
    pub skipped: u64,
    /// Whether it was done, and not only asked about.
    pub applied: bool,
}

/// A subscription whose events a handler handles. Dropping it changes nothing: the subscription runs until it or
/// its client is closed.
#[derive(Debug)]
pub struct ConsumerHandle {
    membership: MemberHandle,
}

impl ConsumerHandle {
    pub(crate) fn start<T, H, Fut>(
        client: Client,
        group: Arc<str>,
        member: u64,
        concurrency: usize,
        handler: Arc<H>,
    ) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(TypedLease<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        for _ in 0..concurrency {
            let (shared, group) = (Arc::clone(&client.shared), Arc::clone(&group));
            client.shared.workers.spawn(work(shared, group, member, Arc::clone(&handler)));
        }
        Self { membership: MemberHandle { client, member } }
    }

    pub(crate) async fn ready(&self, timeout: Duration) -> Result<(), ClientError> {
        self.membership.ready(timeout).await
    }
}

/// Handles one event after the other, until the subscription is over.
async fn work<T, H, Fut>(shared: Arc<ClientShared>, group: Arc<str>, member: u64, handler: Arc<H>)
where
    T: DeserializeOwned + Send + 'static,
    H: Fn(TypedLease<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    while let Some(Ok(taken)) = std::future::poll_fn(|cx| shared.poll_take(member, true, cx)).await {
        let TakenLease { event, row, attempt } = taken;
        let handling = async {
            // Reading the payload runs code of the user too.
            let event = event.typed::<T>()?;
            let grip = LeaseGrip::new(Arc::clone(&shared), Arc::clone(&group), member, row, true);
            handler(TypedLease::new(event, attempt, grip)).await
        };
        let handling = HANDLING.scope(Arc::as_ptr(&shared) as usize, handling);
        let panicked = |_| Err(HandlerError::new("the handler panicked"));
        let outcome = AssertUnwindSafe(handling).catch_unwind().await.unwrap_or_else(panicked);
        match outcome {
            Ok(()) => LeaseGrip::handled(&shared, member, row, None),
            Err(HandlerError { reason, delay }) => {
                report(&shared, member, &reason);
                LeaseGrip::handled(&shared, member, row, Some((&reason, delay)));
            }
        }
    }
}

/// Tells the user that a handler failed.
fn report(shared: &ClientShared, member: u64, reason: &str) {
    let message = format!("a handler failed, and its event is given back: {reason}");
    let error = ClientError::new("handler_failed", message);
    shared.change(|core, effects| {
        if let Some(member) = core.members.get(&member) {
            member.report(error, effects);
        }
    });
}

/// The leases of a subscription, as a stream of `Result<Lease<T>, ClientError>`. An error is the last item: it
/// tells why the subscription ended. An event whose payload does not fit `T` is given back and reported, and the
/// stream goes on.
///
/// Dropping it leaves the group at once and gives all events back.
pub struct Leases<T> {
    membership: MemberHandle,
    group: Arc<str>,
    payload: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> Leases<T> {
    pub(crate) fn new(client: Client, group: Arc<str>, member: u64) -> Self {
        Self { membership: MemberHandle { client, member }, group, payload: PhantomData }
    }

    pub(crate) async fn ready(&self, timeout: Duration) -> Result<(), ClientError> {
        self.membership.ready(timeout).await
    }

    /// Waits for the next lease; `None` when the subscription was closed.
    pub async fn next(&mut self) -> Option<Result<TypedLease<T>, ClientError>> {
        std::future::poll_fn(|cx| self.poll_lease(cx)).await
    }

    fn poll_lease(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<TypedLease<T>, ClientError>>> {
        let MemberHandle { client, member } = &self.membership;
        loop {
            match client.shared.poll_take(*member, false, cx) {
                Poll::Ready(Some(Ok(taken))) => {
                    if let Some(lease) = self.typed(taken) {
                        return Poll::Ready(Some(Ok(lease)));
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// The lease with its payload; an event whose payload does not fit is given back.
    fn typed(&self, taken: TakenLease) -> Option<TypedLease<T>> {
        let MemberHandle { client, member } = &self.membership;
        let TakenLease { event, row, attempt } = taken;
        let grip = LeaseGrip::new(Arc::clone(&client.shared), Arc::clone(&self.group), *member, row, false);
        match event.typed() {
            Ok(event) => Some(TypedLease::new(event, attempt, grip)),
            Err(error) => {
                // The report tells the user; the answer to the nack would add nothing.
                drop(grip.nack(error.message(), None));
                client.shared.change(|core, effects| {
                    if let Some(member) = core.members.get(member) {
                        member.report(error, effects);
                    }
                });
                None
            }
        }
    }

    /// Asks for events, in a subscription that pulls. Returns at least one lease, or none after `wait`, which is
    /// 60 s at most. If it is dropped before its end, the events that come are for the next call.
    pub async fn fetch(&mut self, max: usize, wait: Duration) -> Result<Vec<TypedLease<T>>, ClientError> {
        let MemberHandle { client, member } = &self.membership;
        let (shared, id, limit) = (&client.shared, *member, wait.min(FETCH_WAIT_MAX) + FETCH_GRACE);
        let deadline = Instant::now() + limit;
        if tokio::time::timeout_at(deadline, self.fetch_turn()).await.is_err() {
            let message = "the server did not answer an earlier FETCH of this subscription; try again";
            return Err(ClientError::new("timeout", message));
        }
        let waiting = self.take_leases(max);
        if !waiting.is_empty() {
            return Ok(waiting);
        }
        let answer = {
            let mut core = shared.core();
            shared.check_open(&core, Op::Fetch)?;
            let Some(member) = core.members.get_mut(&id) else { return Err(core.over_error()) };
            member.is_fetching = true;
            let mut text = member.frame(Op::Fetch);
            encode::field(&mut text, "max", &max);
            encode::field(&mut text, "wait_ms", &(wait.as_millis() as u64));
            let (sender, answer) = oneshot::channel();
            core.request(text, FrameWaiter::Fetch { member: id, sender });
            answer
        };
        shared.connection.wake();
        shared.answer_in_time(Op::Fetch, answer, limit).await?;
        Ok(self.take_leases(max))
    }

    /// Takes leases that wait. There is no point between taking and returning at which a dropped call loses them.
    fn take_leases(&self, max: usize) -> Vec<TypedLease<T>> {
        let MemberHandle { client, member } = &self.membership;
        let taken: Vec<TakenLease> = {
            let mut core = client.shared.core();
            let table = core.members.get_mut(member).map(|member| &mut member.table);
            table.map(|table| std::iter::from_fn(|| table.take()).take(max).collect()).unwrap_or_default()
        };
        taken.into_iter().filter_map(|taken| self.typed(taken)).collect()
    }

    /// Waits until no `FETCH` is under way: the server takes one at a time, and one that was dropped still runs.
    async fn fetch_turn(&self) {
        let MemberHandle { client, member } = &self.membership;
        std::future::poll_fn(|cx| {
            let mut core = client.shared.core();
            let busy = core
                .members
                .get_mut(member)
                .filter(|member| member.is_fetching && member.is_open() && member.table.queue.is_empty());
            let Some(member) = busy else { return Poll::Ready(()) };
            member.wait_for_leases(cx.waker());
            Poll::Pending
        })
        .await;
    }
}

impl<T: DeserializeOwned + Send + 'static> Stream for Leases<T> {
    type Item = Result<TypedLease<T>, ClientError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_lease(cx)
    }
}

impl<T> Drop for Leases<T> {
    fn drop(&mut self) {
        self.membership.client.shared.abandon_member(self.membership.member);
    }
}

impl<T> fmt::Debug for Leases<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("membership", &self.membership).finish()
    }
}

/// One subscription of a client, by its number.
struct MemberHandle {
    client: Client,
    member: u64,
}

impl fmt::Debug for MemberHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberHandle").field("client", &self.client).field("member", &self.member).finish()
    }
}

/// Leaves the group if the call that subscribes fails or is dropped: no handle of the subscription is left then.
struct UnacceptedMember<'a> {
    shared: &'a ClientShared,
    /// `None` once the server has accepted it.
    member: Option<u64>,
}

impl Drop for UnacceptedMember<'_> {
    fn drop(&mut self) {
        if let Some(member) = self.member {
            self.shared.abandon_member(member);
        }
    }
}

impl MemberHandle {
    async fn ready(&self, timeout: Duration) -> Result<(), ClientError> {
        let shared = &self.client.shared;
        let mut unaccepted = UnacceptedMember { shared, member: Some(self.member) };
        let accepted = async {
            shared.when_open(timeout).await?;
            shared.ready(self.member).await
        };
        let accepted = tokio::time::timeout(timeout, accepted).await.unwrap_or_else(|_| {
            let message = format!("the server did not answer SUBSCRIBE within {} ms", timeout.as_millis());
            Err(ClientError::new("timeout", message))
        });
        if accepted.is_ok() {
            unaccepted.member = None;
        }
        accepted
    }

    async fn ask(
        &self,
        op: Op,
        more: impl FnOnce(&mut String),
    ) -> Result<crate::frames::decode::OkFields, ClientError> {
        let frame = |core: &mut Core| {
            core.flush_acks(self.member);
            let mut text = core.members.get(&self.member)?.frame(op);
            more(&mut text);
            Some(text)
        };
        let answer = self.client.shared.begin(op, frame)?;
        self.client.shared.answer_in_time(op, answer, REQUEST_TIMEOUT).await
    }

    /// Sets whether deliveries are paused; without a connection that is told when there is one.
    async fn set_paused(&self, is_paused: bool) -> Result<(), ClientError> {
        let is_open = self.client.shared.change(|core, effects| {
            let is_open = core.is_open();
            let Some(member) = core.members.get_mut(&self.member) else { return false };
            member.is_paused = is_paused;
            effects.wake_all(&mut member.consumers);
            is_open
        });
        if is_open {
            self.ask(if is_paused { Op::Pause } else { Op::Resume }, |_| {}).await?;
        }
        Ok(())
    }

    async fn seek(&self, to: StartFrom, dry_run: bool) -> Result<SeekOutcome, ClientError> {
        let opts = to.seek_opts(dry_run);
        if !dry_run && let Some(member) = self.client.shared.core().members.get_mut(&self.member) {
            member.table.forget_finished();
        }
        let fields = self.ask(Op::Seek, |text| encode::field(text, "opts", &opts)).await?;
        Ok(SeekOutcome {
            from: fields.from.unwrap_or_default(),
            to: fields.to.unwrap_or_default(),
            replayed: fields.replayed.unwrap_or_default(),
            skipped: fields.skipped.unwrap_or_default(),
            applied: fields.applied.unwrap_or(!dry_run),
        })
    }

    /// How many events this member has that are not finished; acks count until the server has answered them.
    fn in_flight(&self) -> usize {
        let core = self.client.shared.core();
        core.members.get(&self.member).map_or(0, |m| m.table.len() + m.acks.len() + m.unanswered)
    }

    async fn close(&self, timeout: Duration) -> Result<(), ClientError> {
        check_not_handling(&self.client.shared)?;
        let closed = self.client.shared.close_member(self.member, Instant::now() + timeout).await;
        self.client.shared.core().detach_member(self.member);
        closed
    }
}

macro_rules! membership_calls {
    ($(#[$doc:meta])* impl [$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> $type {
            /// Stops deliveries until [`resume`](Self::resume). Handlers that run are not interrupted.
            pub async fn pause(&self) -> Result<(), ClientError> {
                self.membership.set_paused(true).await
            }

            /// Starts deliveries again.
            pub async fn resume(&self) -> Result<(), ClientError> {
                self.membership.set_paused(false).await
            }

            /// Moves the cursor of the group.
            pub async fn seek(&self, to: StartFrom) -> Result<SeekOutcome, ClientError> {
                self.membership.seek(to, false).await
            }

            /// Tells what a seek would do, and changes nothing.
            pub async fn try_seek(&self, to: StartFrom) -> Result<SeekOutcome, ClientError> {
                self.membership.seek(to, true).await
            }

            /// How many events this member has that are not finished; acks count until the server has answered
            /// them.
            pub fn in_flight(&self) -> usize {
                self.membership.in_flight()
            }

            /// Leaves the group: waits until the events that are being handled are settled, and gives all others
            /// back, which does not count as an attempt. After 30 s it leaves anyway and fails with `timeout`.
            pub async fn close(&self) -> Result<(), ClientError> {
                self.membership.close(CLOSE_TIMEOUT).await
            }

            /// As [`close`](Self::close), with another limit than 30 s.
            pub async fn close_within(&self, timeout: Duration) -> Result<(), ClientError> {
                self.membership.close(timeout).await
            }
        }
    };
}

membership_calls!(impl [] ConsumerHandle);
membership_calls!(impl [T] Leases<T>);
