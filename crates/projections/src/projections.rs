//! The handle that users hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use promethean_bus::Bus;
use promethean_model::{Clock, CollectionName, GroupName, IgnorePoison, TopicName};
use promethean_store::port::Store;
use serde::Serialize;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::compactor::{Compactor, CompactorStatus};
use crate::definition::Declared;
use crate::error::ProjectionError;
use crate::retention_alarm::{Alarm, Held};
use crate::runner::start::{Reach, Ready, prepare};
use crate::runner::{Command, Parts};
use crate::status::ProjectorStatus;
use crate::time_travel::Reducer;

/// Projectors at work and the collections they keep. Cheap to clone.
#[derive(Clone)]
pub struct Projections {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) parts: Arc<Parts>,
    /// Collections whose changes are events.
    histories: BTreeSet<CollectionName>,
    pub(crate) default_collection: Option<CollectionName>,
    projectors: BTreeMap<GroupName, Reach>,
    compactors: Vec<CompactorReach>,
    pub(crate) reducers: BTreeMap<TopicName, Reducer>,
    held: watch::Receiver<Held>,
    stopping: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

/// How others see a compactor.
struct CompactorReach {
    topic: TopicName,
    snapshots: TopicName,
    status: watch::Receiver<CompactorStatus>,
}

/// A compactor, and how it is.
#[derive(Debug, Clone, Serialize)]
pub struct CompactorView {
    /// The topic it follows.
    pub topic: TopicName,
    /// Where it writes.
    pub snapshots: TopicName,
    /// How it is.
    #[serde(flatten)]
    pub status: CompactorStatus,
}

impl Inner {
    /// Where the snapshots of a topic are, if anybody writes them.
    pub(crate) fn snapshots_of(&self, topic: &TopicName) -> Option<TopicName> {
        self.compactors.iter().find(|reach| reach.topic == *topic).map(|reach| reach.snapshots.clone())
    }
}

impl Projections {
    /// Starts what is declared over a bus and the store that it is over, both of which stay the caller's to close, after
    /// this. If one projector cannot be started none is; one that has a reason to wait for a person says so in its
    /// status.
    pub async fn open(
        bus: Bus,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        declared: Declared,
    ) -> Result<Self, ProjectionError> {
        declared.validate()?;
        let Declared { collections, projectors, compactors, reducers, default_collection } = declared;
        let parts = Arc::new(Parts { bus, store, clock });
        let stopping = watch::channel(false).0;
        let (mut reaches, mut ready) = (BTreeMap::new(), Vec::new());
        for projector in projectors {
            let name = projector.name.clone();
            let (one, reach) = prepare(&parts, projector, &collections, stopping.subscribe()).await?;
            reaches.insert(name, reach);
            ready.push(one);
        }
        let (mut snapshots, mut compacting) = (Vec::new(), Vec::new());
        for options in compactors {
            let topic = options.topic.clone();
            let compactor =
                Compactor::open(&parts.bus, Arc::clone(&parts.store), Arc::clone(&parts.clock), options)
                    .await?;
            snapshots.push(CompactorReach {
                topic,
                snapshots: compactor.snapshots().clone(),
                status: compactor.status(),
            });
            compacting.push(compactor);
        }
        parts.bus.release_absent_followers();
        let mut tasks = JoinSet::new();
        let (held, held_now) = watch::channel(Held::new());
        let reads = |one: &Ready| (one.runner.projector.name.clone(), one.runner.projector.topic.clone());
        let alarm = Alarm {
            parts: Arc::clone(&parts),
            projectors: ready.iter().map(reads).collect(),
            compactors: compacting.iter().map(Compactor::reads).collect(),
            held,
        };
        tasks.spawn(alarm.run(stopping.subscribe()));
        for compactor in compacting {
            tasks.spawn(compactor.run(stopping.subscribe()));
        }
        for Ready { runner, halted } in ready {
            tasks.spawn(runner.run(halted));
        }
        let inner = Inner {
            parts,
            histories: collections.into_iter().filter(|one| one.history).map(|one| one.name).collect(),
            default_collection,
            projectors: reaches,
            compactors: snapshots,
            reducers,
            held: held_now,
            stopping,
            tasks: Mutex::new(tasks),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// How every projector is, by name.
    pub fn projectors(&self) -> Vec<ProjectorStatus> {
        self.inner.projectors.values().map(|reach| reach.shown.get()).collect()
    }

    /// How one is.
    pub fn projector(&self, name: &GroupName) -> Result<ProjectorStatus, ProjectionError> {
        Ok(self.reach(name)?.shown.get())
    }

    /// How every compactor is.
    pub fn compactors(&self) -> Vec<CompactorView> {
        let view = |reach: &CompactorReach| CompactorView {
            topic: reach.topic.clone(),
            snapshots: reach.snapshots.clone(),
            status: reach.status.borrow().clone(),
        };
        self.inner.compactors.iter().map(view).collect()
    }

    /// Topics whose retention waits for a projector or a compactor, and how many events it would have taken.
    pub fn held(&self) -> BTreeMap<TopicName, u64> {
        self.inner.held.borrow().clone()
    }

    /// The topic of a collection's changes.
    pub fn feed_of(&self, collection: &CollectionName) -> Result<TopicName, ProjectionError> {
        let feed = self.inner.histories.get(collection).and_then(|name| name.changed_topic().ok());
        feed.ok_or_else(|| ProjectionError::NoHistory { collection: collection.clone() })
    }

    /// Who writes a collection.
    pub fn writer_of(&self, collection: &CollectionName) -> Option<GroupName> {
        let writes = |reach: &Reach| reach.shown.get().collections.contains(collection);
        self.inner.projectors.iter().find(|(_, reach)| writes(reach)).map(|(name, _)| name.clone())
    }

    /// Begins to make a projector's state anew beside the one that is served, which it replaces when it is done. Refused
    /// if the beginning of the topic is gone, unless that is accepted.
    pub async fn rebuild(&self, name: &GroupName, accept_loss: bool) -> Result<(), ProjectionError> {
        let (begun, answer) = oneshot::channel();
        self.tell(name, Command::Rebuild { accept_loss, begun }).await?;
        answer.await.unwrap_or(Err(ProjectionError::Closed))
    }

    /// Lets a projector that is halted go on, at the event that it halted at. Refused if only a rebuild helps.
    pub async fn resume(&self, name: &GroupName) -> Result<(), ProjectionError> {
        let (done, answer) = oneshot::channel();
        self.tell(name, Command::Resume { done }).await?;
        answer.await.unwrap_or(Err(ProjectionError::Closed))
    }

    async fn tell(&self, name: &GroupName, command: Command) -> Result<(), ProjectionError> {
        self.reach(name)?.commands.send(command).await.map_err(|_| ProjectionError::Closed)
    }

    fn reach(&self, name: &GroupName) -> Result<&Reach, ProjectionError> {
        let unknown = || ProjectionError::UnknownProjector { name: name.clone() };
        self.inner.projectors.get(name).ok_or_else(unknown)
    }

    /// Ends every projector after the page it is at, and waits for them.
    pub async fn close(&self) {
        self.inner.stopping.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.inner.tasks.lock().ignore_poison());
        while tasks.join_next().await.is_some() {}
    }
}

impl std::fmt::Debug for Projections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Projections").field("projectors", &self.projectors()).finish_non_exhaustive()
    }
}
