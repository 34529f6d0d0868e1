//! Publishing and subscribing on a bus inside this process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Bus, BusOptions, Subscription, SubscriptionItem};
use promethean_model::{Clock, SystemClock, TopicName};
use promethean_store::embedded::{self, EmbeddedStore};
use promethean_store::memory::{self, MemoryStore};
use promethean_store::port::Store;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::{BenchStore, GROUP, IN_FLIGHT, PubsubArgs, Stamps, sample};
use crate::scratch::Scratch;
use crate::timing::{Samples, now};

pub(super) fn publish(args: &PubsubArgs) -> Result<Duration> {
    let (topic, stamps) = (args.topic.parse()?, Arc::new(Stamps::new()));
    with_bus(args, async |bus| {
        let start = now();
        publish_all(bus, &topic, args, &stamps).await?;
        Ok(start.elapsed())
    })
}

pub(super) fn subscribe(args: &PubsubArgs) -> Result<Samples> {
    let (topic, stamps): (TopicName, _) = (args.topic.parse()?, Arc::new(Stamps::new()));
    with_bus(args, async |bus| {
        let mut wanted = Subscribe::new(topic.clone().into(), GROUP.parse()?);
        wanted.options.from = Some(StartPosition::Earliest);
        wanted.member.max_in_flight = IN_FLIGHT;
        let member = bus.subscribe(wanted).await?;
        let (published, received) =
            tokio::join!(publish_all(bus, &topic, args, &stamps), receive(member, args.n, &stamps));
        published?;
        received
    })
}

/// Runs work with a bus on the store that the flags name.
fn with_bus<T>(args: &PubsubArgs, work: impl AsyncFnOnce(&Bus) -> Result<T>) -> Result<T> {
    let runtime = Builder::new_multi_thread().enable_time().build().context("start a runtime")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let scratch = match args.store {
        BenchStore::Memory => None,
        BenchStore::Embedded => Some(Scratch::new(args.data.as_deref())?),
    };
    runtime.block_on(async {
        let store: Arc<dyn Store> = match &scratch {
            None => Arc::new(MemoryStore::new(Arc::clone(&clock), memory::MemoryOptions::default())),
            Some(scratch) => {
                let options = embedded::EmbeddedOptions::default();
                Arc::new(EmbeddedStore::open(scratch.kept(), Arc::clone(&clock), options).await?.0)
            }
        };
        let bus = Bus::open(Arc::clone(&store), clock, BusOptions::default()).await?;
        let done = work(&bus).await;
        bus.close().await;
        store.close().await;
        done
    })
}

/// Publishes all events with `window` tasks, each of which waits for its events one by one.
async fn publish_all(bus: &Bus, topic: &TopicName, args: &PubsubArgs, stamps: &Arc<Stamps>) -> Result<()> {
    let (events, window) = (args.n, args.window);
    let mut tasks = JoinSet::new();
    for first in 0..window {
        let (bus, topic, stamps) = (bus.clone(), topic.clone(), Arc::clone(stamps));
        tasks.spawn(async move {
            for number in (u64::from(first)..events).step_by(window as usize) {
                bus.publish(Publish::new(topic.clone(), stamps.payload(number))).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a publisher panicked")??;
    }
    Ok(())
}

async fn receive(mut member: Subscription, events: u64, stamps: &Stamps) -> Result<Samples> {
    let mut samples = Samples::default();
    while (samples.len() as u64) < events {
        let SubscriptionItem::Leases(leases) = member.next(usize::MAX).await? else { continue };
        for lease in &leases {
            sample(stamps, &mut samples, lease.event.payload());
        }
        member.ack_soon(&leases).await?;
    }
    Ok(samples)
}
