//! One member of a group, as its subscription, its leases and its owners share it.

use std::sync::{Arc, Mutex, MutexGuard};

use promethean_delivery::{Credit, FailureNote, LeaseRef, Leaving, MemberNo, SmallMap, Subject};
use promethean_model::{GroupName, IgnorePoison, MemberId, TopicName};
use tokio::sync::{Notify, oneshot};

use super::inbox::Inbox;
use super::lifter::Lifter;
use super::message::{GivenBack, OwnerMessage, OwnerRequest};
use super::{ClaimOwner, Groups};
use crate::error::BusError;

/// One member of a group, as its subscription, its leases and its owners share it.
pub(crate) struct Membership {
    pub(crate) groups: Arc<Groups>,
    pub(crate) group: GroupName,
    pub(crate) subject: Subject,
    pub(crate) member: MemberNo,
    /// The member's name, in a partitioned group.
    pub(crate) name: Option<MemberId>,
    /// The name that the member gave itself, in any group. A later member of this name fences it.
    pub(crate) member_id: Option<MemberId>,
    /// The name that users see for the member.
    pub(crate) shown_as: Option<Arc<str>>,
    pub(crate) inbox: Arc<Inbox>,
    /// Lifts events, for a member that wants them in the latest schema version.
    pub(crate) lifter: Option<Arc<Lifter>>,
    /// The credit that all its owners share.
    pub(crate) credit: Credit,
    pub(crate) joined: Mutex<JoinedTopics>,
    /// Tells the task that joins new topics of its pattern that the member has left.
    pub(crate) left: Notify,
}

/// The topics that a member has joined. One lock for all fields, since topics are joined while the member
/// pauses or leaves.
#[derive(Debug, Default)]
pub(crate) struct JoinedTopics {
    /// The owners that have it as a member.
    pub(crate) owners: SmallMap<TopicName, Arc<ClaimOwner>>,
    /// Whether the member is paused, also on topics that it joins later.
    pub(crate) paused: bool,
    /// Whether the member has left: it joins no more topics.
    pub(crate) left: bool,
}

/// The receiver of an owner's answer, or the error of the send; and the number of leases asked about.
pub(crate) type Asked = (Result<oneshot::Receiver<Result<usize, BusError>>, BusError>, usize);

/// The answer to an ack, nack or extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// How many of the leases were over already. The request changed nothing for these.
    pub stale: usize,
}

/// A value that identifies a lease.
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

/// Groups leases by owner; only neighbours are joined. The result is owned, so that a future that holds it
/// across an `await` is `Send`.
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

    /// Its group, subject and name, if it gave itself a name.
    pub(super) fn name_in_group(&self) -> Option<(GroupName, Subject, MemberId)> {
        Some((self.group.clone(), self.subject.clone(), self.member_id.clone()?))
    }

    /// Ends the membership because another member took its name. What had reached it counts as failed.
    pub(crate) fn fence(&self) {
        let Some((group, subject, member)) = self.name_in_group() else { return };
        self.inbox.end(BusError::MemberFenced { group, subject: subject.to_string(), member });
        self.left.notify_one();
        self.leave_owners(Leaving::Lost);
    }

    /// Leaves all owners, and joins no more.
    pub(crate) fn leave_owners(&self, how: Leaving) {
        let owners = {
            let mut joined = self.joined();
            joined.left = true;
            std::mem::take(&mut joined.owners)
        };
        for owner in owners.into_values() {
            // An error means that the owner has ended; it has no members.
            let _ = owner.mailbox.send_now(OwnerMessage::Leave(self.member, how));
        }
    }

    pub(crate) fn owners(&self) -> Vec<Arc<ClaimOwner>> {
        self.joined().owners.values().cloned().collect()
    }

    pub(crate) fn joined(&self) -> MutexGuard<'_, JoinedTopics> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.joined.lock().ignore_poison()
    }

    /// Returns `Ok` if the owner's error is no failure of this subscription: the owner ended because its
    /// members had left, or its topic is one of a pattern and was deleted.
    pub(crate) fn unless_over(&self, error: BusError) -> Result<(), BusError> {
        match (&error, &self.subject) {
            (BusError::Closed, _) if !self.groups.base.is_closed() => Ok(()),
            (BusError::TopicDeleted { .. }, Subject::Pattern(_)) => Ok(()),
            _ => Err(error),
        }
    }

    /// Removes an owner whose topic is gone.
    pub(crate) fn forget(&self, gone: &Arc<ClaimOwner>) {
        let mut joined = self.joined();
        if joined.owners.get(&gone.topic).is_some_and(|owner| Arc::ptr_eq(owner, gone)) {
            joined.owners.remove(&gone.topic);
        }
        drop(joined);
        self.inbox.forget(gone);
        self.groups.coordinators.detach(&self.key(), gone);
    }

    /// Acks events, and waits until the ack is durable.
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
        // An error of one owner does not stop the requests to the others.
        for (owner, leases) in by_owner(leases) {
            let count = leases.len();
            match self.ask(&owner, ask(self.member, leases), count).await {
                Ok(stale) => settled.stale += stale,
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed.map(|()| settled)
    }

    /// Sends requests at once, so that later messages to the owners come after them. It does not wait for
    /// room in the mailbox, so it is only for requests whose number is bounded by the number of leases.
    /// [`Membership::answers`] waits for the answers.
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

    /// Waits for the answers to [`Membership::ask_now`].
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

    /// How events are given back with a reason. The member's name says who gives them back, else `by` does.
    pub(crate) fn given_back(&self, delay_ms: Option<u64>, reason: &str, by: Option<&str>) -> GivenBack {
        let by = self.member_id.as_ref().map(MemberId::as_str).or(by);
        GivenBack { delay_ms, note: FailureNote::new(reason, by).map(Arc::new) }
    }

    pub(crate) fn observe_latency<L: Leased>(&self, leases: &[L]) {
        let now = self.groups.base.clock.wall_ms();
        for lease in leases {
            let took = now.saturating_sub(lease.published_ms());
            lease.owner().metrics.latency_ms.observe(u64::try_from(took).unwrap_or(0));
        }
    }

    /// Sends a request to one owner. Returns the number of stale leases: all of them if the owner has ended.
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
