//! Subscribing: a member enters its group and joins the owners of its topics.

use std::sync::{Arc, Mutex, Weak};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use promethean_delivery::{Allowance, Credit, Joining, Leaving, Liveness, MemberLimits, Pattern, Subject};
use promethean_model::TopicName;
use promethean_store::port::{Batch, RowOp, Table};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, oneshot};
use tracing::debug;

use super::Subscription;
use super::create::{cursor_for_newborn, find_or_create};
use super::request::{MemberOptions, Subscribe};
use crate::bus::Bus;
use crate::error::BusError;
use crate::groups::{
    GroupEntry, Groups, Inbox, Lifter, Membership, NewMember, OwnerMessage, PartitionMember, WantedOwner,
    require_group,
};
use crate::limits::MemberRate;
use crate::rows::{GroupKey, GroupRow};
use crate::topics::TopicEntry;

/// How many epochs one commit reserves. So epochs grow over restarts without a commit for each rebalance.
const EPOCHS_RESERVED: u64 = 1000;
/// More epochs than rebalances can happen between two joins: each member that joined can leave once.
const EPOCHS_SPARE: u64 = 500;

impl Bus {
    /// Becomes a member of a group. Creates the group if it does not exist.
    pub async fn subscribe(&self, request: Subscribe) -> Result<Subscription, BusError> {
        subscribe(&self.groups, request).await
    }
}

async fn subscribe(groups: &Arc<Groups>, request: Subscribe) -> Result<Subscription, BusError> {
    if groups.base.is_closed() {
        return Err(BusError::Closed);
    }
    request.validate()?;
    let entering = enter(Arc::clone(groups), request.clone());
    let entered = groups.base.run_to_end(entering).await?;
    // Counted for itself, so that it is known after the attempt which others came.
    let witness =
        entered.is_new.then(|| GroupEntry::new(groups, (request.group.clone(), request.subject.clone())));
    let joined = join(groups, &request, entered).await;
    let is_alone = witness.is_some_and(|witness| witness.ever() == 2);
    if let (Err(error), true) = (&joined, is_alone) {
        // The group was made for this subscriber. If others have used it, they keep it.
        let undone = groups.delete(&request.subject, &request.group).await;
        debug!(group = %request.group, %error, ?undone, "a new group was left again");
    }
    joined
}

/// Joins the owners of the topics.
async fn join(
    groups: &Arc<Groups>,
    request: &Subscribe,
    entered: EnteredGroup,
) -> Result<Subscription, BusError> {
    let EnteredGroup { entered, row, topic_entry, is_new: _ } = entered;
    let name = request.member.name_in(row.options.partitions)?;
    let terms = Arc::new(MemberTerms::new(groups, &request.member, row));
    let membership = Arc::new(Membership {
        credit: terms.allowance.credit.clone(),
        groups: Arc::clone(groups),
        group: request.group.clone(),
        subject: request.subject.clone(),
        member: groups.base.next_member(),
        name,
        shown_as: request.member.shown_name(),
        member_id: request.member.member_id.clone(),
        inbox: Arc::new(Inbox::new(request.member.backlog.clone())),
        lifter: request.member.normalize.then(Lifter::new),
        joined: Mutex::default(),
        left: tokio::sync::Notify::new(),
    });
    if let Some(backlog) = &request.member.backlog {
        backlog.attach(&membership);
    }
    // From here on, dropping the subscription leaves all owners that were joined.
    let mut subscription = Subscription {
        membership: Arc::clone(&membership),
        leaving: Leaving::Released,
        entered: Mutex::new(Some(entered)),
    };
    let pattern_join = match &request.subject {
        Subject::Topic(topic) => {
            terms.join(&membership, topic).await?;
            None
        }
        Subject::Pattern(pattern) => Some(join_pattern(groups, &membership, &terms, pattern).await?),
    };
    // The owner runs now, so a deletion of the topic finds it.
    drop(topic_entry);
    if let (Some(partitions), Some(name)) = (terms.row.options.partitions, &membership.name) {
        let epoch = reserve_epochs(groups, &membership).await?;
        // Two members of one name take it in the order in which they take each other's partitions.
        let _lock = groups.locks.lock(&request.group).await;
        let joining = Joining {
            member: name.clone(),
            session: membership.member,
            liveness: request.member.liveness,
            meta: request.member.meta.clone(),
        };
        let member = PartitionMember { joining, inbox: Arc::clone(&membership.inbox), partitions, epoch };
        groups.coordinators.join(&membership.key(), member, groups.base.now())?;
        for owner in membership.owners() {
            groups.coordinators.attach(&membership.key(), &owner);
        }
        if request.member.liveness == Liveness::Heartbeat {
            groups.coordinators.keep_ticking(groups);
        }
        take_name(groups, &membership);
    } else {
        take_name(groups, &membership);
    }
    if let Some(join) = pattern_join {
        join.go_on();
    }
    subscription.leaving = Leaving::Lost;
    Ok(subscription)
}

/// Takes the name that the member gave itself from a member that has it.
fn take_name(groups: &Groups, membership: &Arc<Membership>) {
    if let Some(before) = groups.names.take(membership) {
        before.fence();
    }
}

/// The state of a member that has entered its group and has not joined its owners yet.
struct EnteredGroup {
    entered: GroupEntry,
    row: GroupRow,
    /// Whether the group was created for this member.
    is_new: bool,
    /// The entry into the topic, if the subject is one topic. The topics of a pattern are entered one by one.
    topic_entry: Option<TopicEntry>,
}

/// Finds or creates the group and counts the caller as one of its members, so that neither the group nor its
/// topic is deleted before the member has joined.
async fn enter(groups: Arc<Groups>, request: Subscribe) -> Result<EnteredGroup, BusError> {
    let _lock = groups.locks.lock(&request.group).await;
    let entered = GroupEntry::new(&groups, (request.group.clone(), request.subject.clone()));
    // The group's lock is taken before the topic is entered, never after: a deletion holds the lock while it
    // waits until no entries are left.
    let topic_entry = match &request.subject {
        Subject::Topic(topic) => Some(TopicEntry::new(&groups.topics, topic)?),
        Subject::Pattern(_) => None,
    };
    let (row, is_new) = find_or_create(&groups, &request).await?;
    Ok(EnteredGroup { entered, row, is_new, topic_entry })
}

/// The options and limits that a member has on each of its topics.
struct MemberTerms {
    row: GroupRow,
    limits: MemberLimits,
    allowance: Allowance,
}

impl MemberTerms {
    fn new(groups: &Groups, options: &MemberOptions, row: GroupRow) -> Self {
        let limits = MemberLimits {
            batch_size: options.batch_size,
            ack_timeout_ms: options.ack_timeout_ms,
            auto_ack: !options.manual_ack,
            paused: false,
        };
        let rate = options.rate.map(|rate| Arc::new(MemberRate::new(rate, groups.base.now())) as _);
        let credit = if options.pull { Credit::pulled } else { Credit::new };
        let credit = match &options.backlog {
            Some(backlog) => credit(options.max_in_flight).unless_full(Arc::clone(&backlog.fill)),
            None => credit(options.max_in_flight),
        };
        let allowance = Allowance { credit, rate };
        Self { row, limits, allowance }
    }

    async fn join(&self, membership: &Arc<Membership>, topic: &TopicName) -> Result<(), BusError> {
        let groups = &membership.groups;
        let wanted =
            WantedOwner { topic: topic.clone(), group: membership.group.clone(), row: self.row.clone() };
        let (answer, answered) = oneshot::channel();
        {
            // Under the lock: a pause or a leave either comes before this and is seen here, or comes after it
            // and reaches the owner.
            let mut joined = membership.joined();
            if joined.left {
                return Err(BusError::Closed);
            }
            let new_member = NewMember {
                member: membership.member,
                limits: MemberLimits { paused: joined.paused, ..self.limits.clone() },
                allowance: self.allowance.clone(),
                name: membership.shown_as.clone(),
                inbox: Arc::clone(&membership.inbox),
                shared: matches!(membership.subject, Subject::Pattern(_)).then(|| Arc::downgrade(membership)),
            };
            let owner = groups.owners.send(groups, &wanted, OwnerMessage::Join(new_member, answer))?;
            joined.owners.insert(topic.clone(), owner);
        }
        answered.await.unwrap_or(Err(BusError::Closed))
    }
}

/// Topics of a pattern that are joined before the subscriber is answered. Others are joined afterwards, so that a pattern
/// with very many topics is answered soon.
const JOINED_AT_ONCE: usize = 1_000;
/// Topics joined at a time. Each takes a commit, and commits at the same time share a sync.
const JOINS_AT_A_TIME: usize = 64;

/// Joins the topics that match, and starts a task that joins matching topics when they are created. It
/// subscribes to births before it lists the topics, so that it misses none.
async fn join_pattern(
    groups: &Arc<Groups>,
    membership: &Arc<Membership>,
    terms: &Arc<MemberTerms>,
    pattern: &Pattern,
) -> Result<PatternJoin, BusError> {
    let births = groups.topics.births.subscribe();
    let mut topics = groups.topics.matching(pattern).await?;
    let later = topics.split_off(topics.len().min(JOINED_AT_ONCE));
    join_all(membership, terms, topics).await?;
    let watch = PatternWatch {
        membership: Arc::downgrade(membership),
        terms: Arc::clone(terms),
        pattern: pattern.clone(),
        groups: Arc::clone(groups),
    };
    Ok(PatternJoin { watch, later, births })
}

/// A pattern whose first topics are joined.
struct PatternJoin {
    watch: PatternWatch,
    /// Topics that are still to be joined.
    later: Vec<TopicName>,
    births: broadcast::Receiver<TopicName>,
}

impl PatternJoin {
    /// Joins the other topics, and then topics that are created, in a task.
    fn go_on(self) {
        let Self { watch, later, births } = self;
        let tasks = Arc::clone(&watch.groups);
        tasks.base.tasks.spawn(watch.run(later, births));
    }
}

async fn join_all(
    membership: &Arc<Membership>,
    terms: &MemberTerms,
    topics: Vec<TopicName>,
) -> Result<(), BusError> {
    let joins = stream::iter(topics).map(Ok);
    let join = |topic: TopicName| async move { join_one(membership, terms, &topic).await };
    joins.try_for_each_concurrent(JOINS_AT_A_TIME, join).await
}

/// Joins one topic of a pattern. A topic that is being deleted is skipped: if it is created again, its birth
/// is announced.
async fn join_one(
    membership: &Arc<Membership>,
    terms: &MemberTerms,
    topic: &TopicName,
) -> Result<(), BusError> {
    if membership.joined().owners.get(topic).is_some() {
        return Ok(());
    }
    match join_now(membership, terms, topic).await {
        Err(BusError::TopicDeleted { .. }) => {
            membership.joined().owners.remove(topic);
            Ok(())
        }
        joined => joined,
    }
}

async fn join_now(
    membership: &Arc<Membership>,
    terms: &MemberTerms,
    topic: &TopicName,
) -> Result<(), BusError> {
    let _topic_entry = {
        // A deletion of the group holds this lock too, so it finds this member, or it finds all cursors that
        // the member made.
        let _lock = membership.groups.locks.lock(&membership.group).await;
        if membership.joined().left {
            return Err(BusError::Closed);
        }
        let topic_entry = TopicEntry::new(&membership.groups.topics, topic)?;
        cursor_for_newborn(&membership.groups, &membership.group, topic).await?;
        topic_entry
    };
    terms.join(membership, topic).await?;
    if membership.name.is_some()
        && let Some(owner) = membership.owners().into_iter().find(|owner| owner.topic == *topic)
    {
        membership.groups.coordinators.attach(&membership.key(), &owner);
    }
    Ok(())
}

/// The task that joins new topics of a pattern while the subscription lives.
struct PatternWatch {
    membership: Weak<Membership>,
    terms: Arc<MemberTerms>,
    pattern: Pattern,
    groups: Arc<Groups>,
}

impl PatternWatch {
    async fn run(self, later: Vec<TopicName>, mut births: broadcast::Receiver<TopicName>) {
        if !later.is_empty()
            && let Some(membership) = self.membership.upgrade()
            && let Err(error) = join_all(&membership, &self.terms, later).await
        {
            membership.inbox.end(error);
            return;
        }
        loop {
            let born = {
                let Some(membership) = self.membership.upgrade() else { return };
                let mut shutdown = self.groups.base.shutdown.subscribe();
                tokio::select! {
                    () = membership.left.notified() => return,
                    _ = shutdown.wait_for(|closing| *closing) => {
                        // Without topics there is no owner that would end the inbox.
                        membership.inbox.end(BusError::Closed);
                        return;
                    }
                    born = births.recv() => born,
                }
            };
            let Some(membership) = self.membership.upgrade() else { return };
            let joined = match born {
                Ok(topic) if self.pattern.matches(&topic) => join_one(&membership, &self.terms, &topic).await,
                Ok(_) => Ok(()),
                Err(RecvError::Lagged(_)) => match self.groups.topics.matching(&self.pattern).await {
                    Ok(topics) => join_all(&membership, &self.terms, topics).await,
                    Err(error) => Err(error),
                },
                Err(RecvError::Closed) => return,
            };
            if let Err(error) = joined {
                // The member would miss events without knowing it, so its subscription ends and it must
                // subscribe again.
                membership.inbox.end(error);
                return;
            }
        }
    }
}

/// Reserves epochs durably. Returns the last epoch that may have been used before.
async fn reserve_epochs(groups: &Groups, membership: &Membership) -> Result<u64, BusError> {
    let _lock = groups.locks.lock(&membership.group).await;
    let used = groups.coordinators.epoch(&membership.key());
    let last = require_group(groups, &membership.group, &membership.subject).await?;
    let needed = used.map_or(last.epoch, |used| used + EPOCHS_SPARE);
    if used.is_none() || needed > last.epoch {
        let row = GroupRow { epoch: last.epoch.max(needed) + EPOCHS_RESERVED, ..last.clone() };
        let key = GroupKey::encode(&membership.group, &membership.subject);
        let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: false };
        groups.base.store.commit(Batch::new().with(op)).await?;
    }
    Ok(last.epoch)
}
