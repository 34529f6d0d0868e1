//! Members of groups: subscribing and consuming.

use anyhow::{Context, Result, ensure};
use promethean_bus::rows::StartPosition;
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Bus, Subscription, SubscriptionItem};
use promethean_model::{GroupName, TopicName};
use promethean_store::port::{CursorReads, Store};
use tokio::task::JoinSet;

/// Subscriptions that are made at the same time, so that they share syncs. Each reads the store on a thread
/// of the blocking pool, and every thread takes memory.
const AT_ONCE: usize = 64;

/// Subscribes the only member of a new group, from the first event on.
pub(super) async fn subscribe(
    bus: &Bus,
    topic: &TopicName,
    group: &GroupName,
    in_flight: usize,
) -> Result<Subscription> {
    join(bus, topic, group, in_flight, StartPosition::Earliest).await
}

async fn join(
    bus: &Bus,
    topic: &TopicName,
    group: &GroupName,
    in_flight: usize,
    from: StartPosition,
) -> Result<Subscription> {
    let mut wanted = Subscribe::new(topic.clone().into(), group.clone());
    wanted.options.from = Some(from);
    wanted.member.max_in_flight = in_flight;
    Ok(bus.subscribe(wanted).await?)
}

/// Subscribes one member for each group; the order of the result is arbitrary.
pub(super) async fn subscribe_all(
    bus: &Bus,
    wanted: impl Iterator<Item = (TopicName, GroupName)>,
    in_flight: usize,
    from: StartPosition,
) -> Result<Vec<Subscription>> {
    let (mut tasks, mut members) = (JoinSet::new(), Vec::new());
    for (topic, group) in wanted {
        let bus = bus.clone();
        tasks.spawn(async move { join(&bus, &topic, &group, in_flight, from).await });
        if tasks.len() >= AT_ONCE
            && let Some(joined) = tasks.join_next().await
        {
            members.push(joined.context("a subscriber panicked")??);
        }
    }
    while let Some(joined) = tasks.join_next().await {
        members.push(joined.context("a subscriber panicked")??);
    }
    Ok(members)
}

/// Consumes and acks `events` events; returns when all acks are durable.
pub(super) async fn consume(mut member: Subscription, events: u64) -> Result<Subscription> {
    let mut left = events;
    while left > 0 {
        let SubscriptionItem::Leases(leases) = member.next(usize::MAX).await? else { continue };
        left = left.checked_sub(leases.len() as u64).context("more events than were published")?;
        if left > 0 {
            member.ack_soon(&leases).await?;
        } else {
            let settled = member.ack(&leases).await?;
            ensure!(settled.stale == 0, "{} acks were stale", settled.stale);
        }
    }
    Ok(member)
}

/// Consumes with all members, each in its own task.
pub(super) async fn consume_all(members: Vec<Subscription>, events: u64) -> Result<Vec<Subscription>> {
    let mut tasks: JoinSet<_> = members.into_iter().map(|member| consume(member, events)).collect();
    let mut done = Vec::with_capacity(tasks.len());
    while let Some(member) = tasks.join_next().await {
        done.push(member.context("a member panicked")??);
    }
    Ok(done)
}

/// Checks that the durable cursor of a group is at the end of the topic.
pub(super) async fn ensure_finished(store: &dyn Store, group: &GroupName, topic: &TopicName) -> Result<()> {
    let cursor = CursorReads::cursor(store, group, topic).await?.context("the cursor is missing")?;
    let end = store.durable_end(topic);
    ensure!(cursor.floor == end, "the floor is {}, the end {end}", cursor.floor);
    Ok(())
}
