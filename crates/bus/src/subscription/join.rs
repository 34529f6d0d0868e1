//! A member joins the owners of its topics.

use std::sync::{Arc, Mutex, Weak};

use promethean_delivery::{Allowance, Credit, Joining, Leaving, Liveness, MemberLimits, Pattern, Subject};
use promethean_model::{MemberId, TopicName};
use promethean_store::port::{Batch, RowOp, Table};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, oneshot};

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

/// Epochs put aside at once, so that they grow over restarts without a commit for each rebalance.
const EPOCHS_RESERVED: u64 = 1000;
/// Rebalances between two joins that are surely enough: each member that joined can leave once.
const EPOCHS_SPARE: u64 = 500;

impl Bus {
    /// Becomes a member of a group, which is created if need be.
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
    let Inside { entered, row, pass } = groups.base.run_to_end(entering).await?;
    let name = name_of(&request.member, &row)?;
    let terms = Arc::new(MemberTerms::new(groups, &request.member, row));
    let link = Arc::new(Membership {
        credit: terms.allowance.credit.clone(),
        groups: Arc::clone(groups),
        group: request.group.clone(),
        subject: request.subject.clone(),
        member: groups.base.next_member(),
        name,
        inbox: Arc::new(Inbox::new(request.member.backlog.clone())),
        lifter: request.member.normalize.then(Lifter::new),
        joined: Mutex::default(),
        left: tokio::sync::Notify::new(),
    });
    if let Some(backlog) = &request.member.backlog {
        backlog.attach(&link);
    }
    // From here on dropping it leaves whatever was joined.
    let mut subscription = Subscription {
        link: Arc::clone(&link),
        leaving: Leaving::Released,
        entered: Mutex::new(Some(entered)),
    };
    match &request.subject {
        Subject::Topic(topic) => terms.join(&link, topic).await?,
        Subject::Pattern(pattern) => join_pattern(groups, &link, &terms, pattern).await?,
    }
    // A deletion of the topic finds its owner from here on.
    drop(pass);
    if let (Some(partitions), Some(name)) = (terms.row.options.partitions, &link.name) {
        let epoch = reserve_epochs(groups, &link).await?;
        let joining = Joining {
            member: name.clone(),
            session: link.member,
            liveness: request.member.liveness,
            meta: request.member.meta.clone(),
        };
        let member = PartitionMember { joining, inbox: Arc::clone(&link.inbox), partitions, epoch };
        groups.coordinators.join(&link.key(), member, groups.base.now())?;
        for owner in link.owners() {
            groups.coordinators.attach(&link.key(), &owner);
        }
        if request.member.liveness == Liveness::Heartbeat {
            groups.coordinators.keep_ticking(groups);
        }
    }
    subscription.leaving = Leaving::Lost;
    Ok(subscription)
}

/// What a member is called, in a partitioned group.
fn name_of(member: &MemberOptions, row: &GroupRow) -> Result<Option<MemberId>, BusError> {
    match (row.options.partitions, &member.member_id) {
        (None, _) if member.liveness == Liveness::Heartbeat => Err(BusError::BadOption {
            option: "liveness",
            given: "heartbeat".to_owned(),
            fix: "only members of a partitioned group have heartbeats; leave it out",
        }),
        (None, _) => Ok(None),
        (Some(_), Some(name)) => Ok(Some(name.clone())),
        (Some(_), None) => Err(BusError::BadOption {
            option: "memberId",
            given: "missing".to_owned(),
            fix: "members of a partitioned group need a name each",
        }),
    }
}

/// Who has entered a group and has yet to join its owners.
struct Inside {
    entered: GroupEntry,
    row: GroupRow,
    /// Into the one topic there is; a pattern's are entered one by one.
    pass: Option<TopicEntry>,
}

/// Finds or makes the group and counts as one of its members, so that nobody deletes it or its topic in between.
async fn enter(groups: Arc<Groups>, request: Subscribe) -> Result<Inside, BusError> {
    let _lock = groups.locks.lock(&request.group).await;
    let entered = GroupEntry::new(&groups, (request.group.clone(), request.subject.clone()));
    // Whoever has a pass never waits for a group's lock: a deletion holds that while it waits for passes.
    let pass = match &request.subject {
        Subject::Topic(topic) => Some(TopicEntry::new(&groups.topics, topic)?),
        Subject::Pattern(_) => None,
    };
    let row = find_or_create(&groups, &request).await?;
    Ok(Inside { entered, row, pass })
}

/// What a member brings to each of its topics.
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

    async fn join(&self, link: &Arc<Membership>, topic: &TopicName) -> Result<(), BusError> {
        let groups = &link.groups;
        let wanted = WantedOwner { topic: topic.clone(), group: link.group.clone(), row: self.row.clone() };
        let (answer, answered) = oneshot::channel();
        {
            // Under the lock: a pause or a leave comes before this and is seen here, or after and reaches the owner.
            let mut joined = link.joined();
            if joined.left {
                return Err(BusError::Closed);
            }
            let joiner = NewMember {
                member: link.member,
                limits: MemberLimits { paused: joined.paused, ..self.limits.clone() },
                allowance: self.allowance.clone(),
                inbox: Arc::clone(&link.inbox),
                shared: matches!(link.subject, Subject::Pattern(_)).then(|| Arc::downgrade(link)),
            };
            let owner = groups.owners.send(groups, &wanted, OwnerMessage::Join(joiner, answer))?;
            joined.owners.insert(topic.clone(), owner);
        }
        answered.await.unwrap_or(Err(BusError::Closed))
    }
}

/// Joins the topics that match, and a task joins those that come to be. Births are listened to before the topics are
/// listed, so none falls between.
async fn join_pattern(
    groups: &Arc<Groups>,
    link: &Arc<Membership>,
    terms: &Arc<MemberTerms>,
    pattern: &Pattern,
) -> Result<(), BusError> {
    let births = groups.topics.births.subscribe();
    join_all(groups, link, terms, pattern).await?;
    let watch = PatternWatch {
        link: Arc::downgrade(link),
        terms: Arc::clone(terms),
        pattern: pattern.clone(),
        groups: Arc::clone(groups),
    };
    groups.base.tasks.spawn(watch.run(births));
    Ok(())
}

async fn join_all(
    groups: &Arc<Groups>,
    link: &Arc<Membership>,
    terms: &MemberTerms,
    pattern: &Pattern,
) -> Result<(), BusError> {
    for topic in groups.topics.matching(pattern).await? {
        join_one(link, terms, &topic).await?;
    }
    Ok(())
}

/// Joins one topic of a pattern. One that is being deleted is no topic of it: should it be born again, that is told.
async fn join_one(link: &Arc<Membership>, terms: &MemberTerms, topic: &TopicName) -> Result<(), BusError> {
    if link.joined().owners.get(topic).is_some() {
        return Ok(());
    }
    match join_now(link, terms, topic).await {
        Err(BusError::TopicDeleted { .. }) => {
            link.joined().owners.remove(topic);
            Ok(())
        }
        joined => joined,
    }
}

async fn join_now(link: &Arc<Membership>, terms: &MemberTerms, topic: &TopicName) -> Result<(), BusError> {
    let _pass = {
        // Whoever deletes the group holds the lock too, and finds this member or all of its cursors.
        let _lock = link.groups.locks.lock(&link.group).await;
        if link.joined().left {
            return Err(BusError::Closed);
        }
        let pass = TopicEntry::new(&link.groups.topics, topic)?;
        cursor_for_newborn(&link.groups, &link.group, topic).await?;
        pass
    };
    terms.join(link, topic).await?;
    if link.name.is_some()
        && let Some(owner) = link.owners().into_iter().find(|owner| owner.topic == *topic)
    {
        link.groups.coordinators.attach(&link.key(), &owner);
    }
    Ok(())
}

/// Joins topics as they are born, while the subscription lives.
struct PatternWatch {
    link: Weak<Membership>,
    terms: Arc<MemberTerms>,
    pattern: Pattern,
    groups: Arc<Groups>,
}

impl PatternWatch {
    async fn run(self, mut births: broadcast::Receiver<TopicName>) {
        loop {
            let born = {
                let Some(link) = self.link.upgrade() else { return };
                let mut shutdown = self.groups.base.shutdown.subscribe();
                tokio::select! {
                    () = link.left.notified() => return,
                    _ = shutdown.wait_for(|closing| *closing) => {
                        // Without topics there is no owner that would say so.
                        link.inbox.end(BusError::Closed);
                        return;
                    }
                    born = births.recv() => born,
                }
            };
            let Some(link) = self.link.upgrade() else { return };
            let joined = match born {
                Ok(topic) if self.pattern.matches(&topic) => join_one(&link, &self.terms, &topic).await,
                Ok(_) => Ok(()),
                Err(RecvError::Lagged(_)) => join_all(&self.groups, &link, &self.terms, &self.pattern).await,
                Err(RecvError::Closed) => return,
            };
            if let Err(error) = joined {
                // It would miss events without knowing: better that it starts anew.
                link.inbox.end(error);
                return;
            }
        }
    }
}

/// The last epoch that may have been used before; those after it are put aside durably.
async fn reserve_epochs(groups: &Groups, link: &Membership) -> Result<u64, BusError> {
    let _lock = groups.locks.lock(&link.group).await;
    let used = groups.coordinators.epoch(&link.key());
    let last = require_group(groups, &link.group, &link.subject).await?;
    let needed = used.map_or(last.epoch, |used| used + EPOCHS_SPARE);
    if used.is_none() || needed > last.epoch {
        let row = GroupRow { epoch: last.epoch.max(needed) + EPOCHS_RESERVED, ..last.clone() };
        let key = GroupKey::encode(&link.group, &link.subject);
        let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: false };
        groups.base.store.commit(Batch::new().with(op)).await?;
    }
    Ok(last.epoch)
}
