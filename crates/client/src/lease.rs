//! One delivery of one event.

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use promethean_model::EventId;
use promethean_model::wire::Op;
use tokio::time::Instant;

use crate::answers::AnswerSlot;
use crate::core::Core;
use crate::effects::LockEffects;
use crate::error::{ClientError, lease_lost};
use crate::event::TypedEvent;
use crate::exactly_once::produced_id;
use crate::frames::encode;
use crate::member::AckItem;
use crate::member::table::RowId;
use crate::shared::ClientShared;

/// One delivery of one event to this member until a deadline. The client keeps the lease while the event waits
/// here or is handled, unless automatic extension is off.
///
/// Settle each lease of a loop with [`ack`](TypedLease::ack) or [`nack`](TypedLease::nack); a lease that is
/// dropped is given back. A lease of a handler is settled when the handler returns.
#[derive(Debug)]
pub struct TypedLease<T> {
    event: TypedEvent<T>,
    attempt: u32,
    grip: LeaseGrip,
}

impl<T> TypedLease<T> {
    pub(crate) fn new(event: TypedEvent<T>, attempt: u32, grip: LeaseGrip) -> Self {
        Self { event, attempt, grip }
    }

    /// The event.
    pub fn event(&self) -> &TypedEvent<T> {
        &self.event
    }

    /// The number of this delivery; 1 is the first.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The group that the event was delivered to.
    pub fn group(&self) -> &str {
        &self.grip.group
    }

    /// Whether this member still has the event, as far as the client knows.
    pub fn is_held(&self) -> bool {
        self.grip.is_held()
    }

    /// Waits until the lease is lost or settled: after that another member may have the event.
    pub async fn lost(&self) {
        std::future::poll_fn(|cx| self.grip.poll_lost(cx)).await;
    }

    /// Finishes the event for the group. The ack is sent at once. Await the result to know that it is durable; it
    /// fails with `lease_lost` if the lease was over, because the event is then delivered again.
    pub fn ack(self) -> SettleAnswer {
        self.grip.ack()
    }

    /// Gives the event back, to be delivered again after a delay that grows with the attempts, or after `delay`.
    /// The reason is shown with the dead letter, if the event becomes one.
    pub fn nack(self, reason: &str, delay: Option<Duration>) -> SettleAnswer {
        self.grip.nack(reason, delay)
    }

    /// Extends the lease: it lasts `by` from now, at least a second.
    pub async fn extend(&self, by: Duration) -> Result<(), ClientError> {
        self.grip.extend(by).await
    }

    /// The id of the `n`th event that this group publishes because of this event. It is the same at every
    /// delivery, so publishing again adds nothing.
    pub fn produced_id(&self, n: u32) -> EventId {
        produced_id(&self.grip.group, self.event.topic.as_str(), &self.event.id, n)
    }
}

impl<T> Deref for TypedLease<T> {
    type Target = TypedEvent<T>;

    fn deref(&self) -> &TypedEvent<T> {
        &self.event
    }
}

/// The hold on a lease.
pub(crate) struct LeaseGrip {
    shared: Option<Arc<ClientShared>>,
    group: Arc<str>,
    member: u64,
    row: RowId,
    /// Whether a handler has it: then the lease is settled when the handler returns.
    is_handled: bool,
}

impl LeaseGrip {
    pub(crate) fn new(
        shared: Arc<ClientShared>,
        group: Arc<str>,
        member: u64,
        row: RowId,
        is_handled: bool,
    ) -> Self {
        Self { shared: Some(shared), group, member, row, is_handled }
    }

    fn is_held(&self) -> bool {
        let Some(shared) = &self.shared else { return false };
        let core = shared.core();
        let row = core.members.get(&self.member).and_then(|member| member.table.row(self.row));
        row.is_some_and(|row| row.is_held)
    }

    fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(shared) = &self.shared else { return Poll::Ready(()) };
        let mut core = shared.core();
        let row = core.members.get_mut(&self.member).and_then(|member| member.table.row_mut(self.row));
        match row.filter(|row| row.is_held) {
            None => Poll::Ready(()),
            Some(row) => {
                row.lost_waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn ack(mut self) -> SettleAnswer {
        let Some(shared) = self.shared.take() else { return SettleAnswer::lost() };
        let now = Instant::now();
        let slot = shared.change(|core, effects| {
            let member = core.members.get(&self.member)?;
            // The server acks: there is nothing to do.
            if !member.options.rules.is_manual {
                return Some(None);
            }
            let until = member.table.row(self.row)?.until;
            let (key, is_held) = core.release(self.member, self.row, effects)?;
            if !is_held {
                return None;
            }
            let slot = core.settled.open();
            let item = AckItem { key, slot: Some(slot) };
            // A lease that ends while its ack is on the way is not named in the answer, so one that seems over
            // goes alone.
            if until < now {
                core.settle(self.member, vec![item], Op::Ack, |_| {});
            } else if let Some(member) = core.members.get_mut(&self.member) {
                member.acks.push(item);
                core.plan_acks(self.member);
            }
            Some(Some(slot))
        });
        SettleAnswer::new(shared, slot)
    }

    pub(crate) fn nack(mut self, reason: &str, delay: Option<Duration>) -> SettleAnswer {
        let Some(shared) = self.shared.take() else { return SettleAnswer::lost() };
        let slot = shared.change(|core, effects| {
            let slot = core.settled.open();
            if nack_row(core, (self.member, self.row), reason, delay, Some(slot), effects) {
                return Some(Some(slot));
            }
            core.settled.close(slot);
            None
        });
        SettleAnswer::new(shared, slot)
    }

    async fn extend(&self, by: Duration) -> Result<(), ClientError> {
        let Some(shared) = &self.shared else { return Err(lease_lost()) };
        let slot = shared.change(|core, _| {
            let row = core.members.get(&self.member)?.table.row(self.row)?;
            if !row.is_held {
                return None;
            }
            let slot = core.settled.open();
            core.extend(self.member, vec![self.row], by, Some(slot), Instant::now());
            Some(Some(slot))
        });
        SettleAnswer::new(Arc::clone(shared), slot).await
    }

    /// The handler of the event has returned.
    pub(crate) fn handled(
        shared: &ClientShared,
        id: u64,
        row: RowId,
        failure: Option<(&str, Option<Duration>)>,
    ) {
        shared.change(|core, effects| {
            if let Some(member) = core.members.get_mut(&id) {
                member.running -= 1;
                effects.wake_all(&mut member.watchers);
            }
            match failure {
                // An event whose lease is lost comes again without this.
                Some((reason, delay)) => drop(nack_row(core, (id, row), reason, delay, None, effects)),
                None => {
                    let released = core.release(id, row, effects);
                    let Some((key, is_held)) = released else { return };
                    let Some(member) = core.members.get_mut(&id) else { return };
                    if is_held {
                        member.acks.push(AckItem { key, slot: None });
                        core.plan_acks(id);
                    } else {
                        member.table.remember(key, Instant::now());
                    }
                }
            }
        });
        shared.connection.wake();
    }
}

/// Gives an event back; false if the lease was over.
fn nack_row(
    core: &mut Core,
    (id, row): (u64, RowId),
    reason: &str,
    delay: Option<Duration>,
    slot: Option<AnswerSlot>,
    effects: &mut LockEffects,
) -> bool {
    let Some((key, true)) = core.release(id, row, effects) else { return false };
    core.settle(id, vec![AckItem { key, slot }], Op::Nack, |text| {
        if let Some(delay) = delay {
            encode::field(text, "delay_ms", &(delay.as_millis() as u64));
        }
        encode::field(text, "reason", reason);
    });
    true
}

impl Drop for LeaseGrip {
    fn drop(&mut self) {
        if self.is_handled {
            return;
        }
        if let Some(shared) = self.shared.take() {
            shared.change(|core, effects| {
                nack_row(core, (self.member, self.row), "the lease was dropped", None, None, effects)
            });
            shared.connection.wake();
        }
    }
}

impl fmt::Debug for LeaseGrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseGrip").field("member", &self.member).field("row", &self.row).finish()
    }
}

/// The answer to an ack, nack or extension. What it asks for is done even if it is dropped.
#[must_use = "only the answer says that the ack is durable; use `let _ =` if that does not matter"]
pub struct SettleAnswer {
    state: SettledState,
}

enum SettledState {
    Lost,
    Done,
    Waiting(Arc<ClientShared>, AnswerSlot),
}

impl SettleAnswer {
    fn lost() -> Self {
        Self { state: SettledState::Lost }
    }

    /// `slot` is `None` if the lease was over, and `Some(None)` if there is nothing to wait for.
    fn new(shared: Arc<ClientShared>, slot: Option<Option<AnswerSlot>>) -> Self {
        shared.connection.wake();
        let state = match slot {
            None => SettledState::Lost,
            Some(None) => SettledState::Done,
            Some(Some(slot)) => SettledState::Waiting(shared, slot),
        };
        Self { state }
    }
}

impl Future for SettleAnswer {
    type Output = Result<(), ClientError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.state {
            SettledState::Lost => Poll::Ready(Err(lease_lost())),
            SettledState::Done => Poll::Ready(Ok(())),
            SettledState::Waiting(shared, slot) => {
                let mut core = shared.core();
                let answer = core.settled.poll(*slot, cx.waker());
                answer.map(|answer| answer.unwrap_or_else(|| Err(core.over_error())))
            }
        }
    }
}

impl Drop for SettleAnswer {
    fn drop(&mut self) {
        if let SettledState::Waiting(shared, slot) = &self.state {
            shared.core().settled.close(*slot);
        }
    }
}

impl fmt::Debug for SettleAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            SettledState::Lost => "SettleAnswer(lost)",
            SettledState::Done => "SettleAnswer(done)",
            SettledState::Waiting(..) => "SettleAnswer(waiting)",
        })
    }
}
