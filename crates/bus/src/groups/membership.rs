//! What leases and their subscription share.

use std::sync::{Arc, Mutex, MutexGuard};

use promethean_delivery::{Credit, LeaseRef, MemberNo, SmallMap, Subject};
use promethean_model::{GroupName, IgnorePoison, MemberId, TopicName};
use tokio::sync::{Notify, oneshot};

use super::inbox::Inbox;
use super::lifter::Lifter;
use super::message::{OwnerMessage, OwnerRequest};
use super::{ClaimOwner, Groups};
use crate::error::BusError;

/// What leases and their subscription share.
pub(crate) struct Membership {
    pub(crate) groups: Arc<Groups>,
    pub(crate) group: GroupName,
    pub(crate) subject: Subject,
    pub(crate) member: MemberNo,
    /// Its name, in a partitioned group.
    pub(crate) name: Option<MemberId>,
    pub(crate) inbox: Arc<Inbox>,
    /// Of a member that wants events of the latest schema version.
    pub(crate) lifter: Option<Arc<Lifter>>,
    /// What all its owners share.
    pub(crate) credit: Credit,
    pub(crate) joined: Mutex<JoinedTopics>,
    /// Signals whoever follows topics for it that it has left.
    pub(crate) left: Notify,
}

/// Where a member is. Under one lock, since topics are joined while it pauses or leaves.
#[derive(Debug, Default)]
pub(crate) struct JoinedTopics {
    /// The owners it is a member of.
    pub(crate) owners: SmallMap<TopicName, Arc<ClaimOwner>>,
    /// Whether topics that come are to deliver nothing for now.
    pub(crate) paused: bool,
    /// Whether it has left: nothing more is to be joined.
    pub(crate) left: bool,
}

/// Where an answer comes out, and about how many leases.
pub(crate) type Asked = (Result<oneshot::Receiver<Result<usize, BusError>>, BusError>, usize);

/// The answer to an ack, nack or extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// How many of the leases were over already. Nothing happened to those.
    pub stale: usize,
}

/// Something that stands for a lease.
pub(crate) trait Leased {
    fn owner(&self) -> &Arc<ClaimOwner>;
    fn lease(&self) -> LeaseRef;
    /// When its event was published, epoch ms.
    fn published_ms(&self) -> i64;
}

impl<L: Leased> Leased for &L {
    fn owner(&self) -> &Arc<ClaimOwner> {
        L::owner(self)
    }

    fn lease(&self) -> LeaseRef {
        L::lease(self)
    }

    fn published_ms(&self) -> i64 {
        L::published_ms(self)
    }
}

/// The leases of each owner; those of one owner are neighbours. Owned, so that futures that wait between them can be
/// sent to other threads.
pub(crate) fn by_owner<L: Leased>(leases: &[L]) -> Vec<(Arc<ClaimOwner>, Vec<LeaseRef>)> {
    let chunks = leases.chunk_by(|a, b| Arc::ptr_eq(a.owner(), b.owner()));
    let of = |chunk: &[L]| {
        let owner = Arc::clone(chunk.first()?.owner());
        Some((owner, chunk.iter().map(Leased::lease).collect()))
    };
    chunks.filter_map(of).collect()
}

impl Membership {
    pub(crate) fn key(&self) -> (GroupName, Subject) {
        (self.group.clone(), self.subject.clone())
    }

    pub(crate) fn owners(&self) -> Vec<Arc<ClaimOwner>> {
        self.joined().owners.values().cloned().collect()
    }

    pub(crate) fn joined(&self) -> MutexGuard<'_, JoinedTopics> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.joined.lock().ignore_poison()
    }

    /// Whether an owner's end is no failure of this subscription: its members had left, or it served one topic of a
    /// pattern and that is gone.
    pub(crate) fn unless_over(&self, error: BusError) -> Result<(), BusError> {
        match (&error, &self.subject) {
            (BusError::Closed, _) if !self.groups.base.is_closed() => Ok(()),
            (BusError::TopicDeleted { .. }, Subject::Pattern(_)) => Ok(()),
            _ => Err(error),
        }
    }

    /// An owner's topic is gone.
    pub(crate) fn forget(&self, gone: &Arc<ClaimOwner>) {
        let mut joined = self.joined();
        if joined.owners.get(&gone.topic).is_some_and(|owner| Arc::ptr_eq(owner, gone)) {
            joined.owners.remove(&gone.topic);
        }
        drop(joined);
        self.inbox.forget(gone);
        self.groups.coordinators.detach(&self.key(), gone);
    }

    /// Finishes events, and waits until that is durable.
    pub(crate) async fn ack<L: Leased>(&self, leases: &[L]) -> Result<Settled, BusError> {
        self.observe_latency(leases);
        self.ask_all(leases, OwnerRequest::Ack).await
    }

    pub(crate) async fn ask_all<L: Leased>(
        &self,
        leases: &[L],
        ask: impl Fn(MemberNo, Vec<LeaseRef>) -> OwnerRequest,
    ) -> Result<Settled, BusError> {
        let (mut settled, mut failed) = (Settled { stale: 0 }, Ok(()));
        // Those of one topic are asked for whatever became of another.
        for (owner, leases) in by_owner(leases) {
            let count = leases.len();
            match self.ask(&owner, ask(self.member, leases), count).await {
                Ok(stale) => settled.stale += stale,
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed.map(|()| settled)
    }

    /// Asks now: whatever is sent to the owners later comes after. Never waits to ask, so it is for what there can be
    /// only as much of as there are leases. [`Membership::answers`] waits for the answers.
    pub(crate) fn ask_now<L: Leased>(
        &self,
        leases: &[L],
        ask: impl Fn(MemberNo, Vec<LeaseRef>) -> OwnerRequest,
    ) -> Vec<Asked> {
        let asked = by_owner(leases).into_iter().map(|(owner, leases)| {
            let ((answer, answered), count) = (oneshot::channel(), leases.len());
            let sent = owner.mailbox.send_now(OwnerMessage::Request(ask(self.member, leases), answer));
            (sent.map(|()| answered), count)
        });
        asked.collect()
    }

    /// What became of what was asked with [`Membership::ask_now`].
    pub(crate) async fn answers(self: Arc<Self>, asked: Vec<Asked>) -> Result<Settled, BusError> {
        let (mut settled, mut failed) = (Settled { stale: 0 }, Ok(()));
        for (sent, count) in asked {
            let stale = match sent {
                Ok(answered) => answered.await.unwrap_or(Err(BusError::Closed)),
                Err(error) => Err(error),
            };
            match stale.or_else(|error| self.unless_over(error).map(|()| count)) {
                Ok(stale) => settled.stale += stale,
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed.map(|()| settled)
    }

    pub(crate) fn observe_latency<L: Leased>(&self, leases: &[L]) {
        let now = self.groups.base.clock.wall_ms();
        for lease in leases {
            let took = now.saturating_sub(lease.published_ms());
            lease.owner().metrics.latency_ms.observe(u64::try_from(took).unwrap_or(0));
        }
    }

    /// The number of stale leases; all of them if the owner has ended.
    pub(crate) async fn ask(
        &self,
        owner: &ClaimOwner,
        ask: OwnerRequest,
        count: usize,
    ) -> Result<usize, BusError> {
        let (answer, answered) = oneshot::channel();
        let stale = match owner.mailbox.send(OwnerMessage::Request(ask, answer)).await {
            Ok(()) => answered.await.unwrap_or(Err(BusError::Closed)),
            Err(error) => Err(error),
        };
        match stale {
            Err(error) => self.unless_over(error).map(|()| count),
            stale => stale,
        }
    }
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership")
            .field("group", &self.group)
            .field("subject", &self.subject)
            .field("member", &self.member)
            .finish_non_exhaustive()
    }
}
