//! The handle on all projectors, compactors and collections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use promethean_bus::Bus;
use promethean_model::{Clock, CollectionName, GroupName, IgnorePoison, TopicName};
use promethean_store::port::Store;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::compactor::{Compactor, CompactorHandle};
use crate::definition::Declared;
use crate::error::ProjectionError;
use crate::retention_alarm::{HeldEvents, RetentionAlarm};
use crate::runner::RunnerCommand;
use crate::runner::start::{PreparedRunner, RunnerHandle, prepare};
use crate::status::{CompactorView, ProjectorStatus};
use crate::time_travel::Reducer;

/// Projectors at work and the collections they keep. Cheap to clone.
#[derive(Clone)]
pub struct Projections {
    pub(crate) inner: Arc<ProjectionsInner>,
}

/// What all projectors and compactors share.
pub(crate) struct ProjectionContext {
    pub(crate) bus: Bus,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Topics that no projector may publish to, beside the ones whose names say so.
    pub(crate) reserved: BTreeSet<TopicName>,
}

pub(crate) struct ProjectionsInner {
    pub(crate) context: Arc<ProjectionContext>,
    /// Collections that keep their history.
    histories: BTreeSet<CollectionName>,
    pub(crate) default_collection: Option<CollectionName>,
    runners: BTreeMap<GroupName, RunnerHandle>,
    compactors: Vec<CompactorHandle>,
    pub(crate) reducers: BTreeMap<TopicName, Reducer>,
    held: watch::Receiver<HeldEvents>,
    stopping: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

impl ProjectionsInner {
    /// The topic of the snapshots of a topic, if a compactor writes them.
    pub(crate) fn snapshots_of(&self, topic: &TopicName) -> Option<&TopicName> {
        self.compactors.iter().find(|compactor| compactor.topic == *topic).map(|found| &found.snapshots)
    }
}

impl Projections {
    /// Starts everything that is declared, over a bus and the store of that bus. The caller closes both,
    /// after this.
    ///
    /// If one projector cannot be started, none is. A projector that has to wait for a person is started, and
    /// its status says why it is halted.
    pub async fn open(
        bus: Bus,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        declared: Declared,
    ) -> Result<Self, ProjectionError> {
        declared.validate()?;
        let Declared { collections, projectors, compactors, reducers, default_collection, reserved } =
            declared;
        let context = Arc::new(ProjectionContext { bus, store, clock, reserved });
        let stopping = watch::channel(false).0;
        let (mut runners, mut prepared) = (BTreeMap::new(), Vec::new());
        for projector in projectors {
            let name = projector.name.clone();
            let (runner, handle) = prepare(&context, projector, &collections, stopping.subscribe()).await?;
            runners.insert(name, handle);
            prepared.push(runner);
        }
        let mut opened = Vec::new();
        for options in compactors {
            let (store, clock) = (Arc::clone(&context.store), Arc::clone(&context.clock));
            let compactor = Compactor::open(&context.bus, store, clock, options).await?;
            compactor.check_snapshots().await?;
            opened.push(compactor);
        }
        let compactors: Vec<CompactorHandle> = opened.iter().map(Compactor::handle).collect();
        context.bus.release_absent_followers();
        let mut tasks = JoinSet::new();
        let (held, held_now) = watch::channel(HeldEvents::new());
        let reads = |one: &PreparedRunner| {
            let projector = &one.runner.projector;
            (projector.name.clone(), projector.topic.clone())
        };
        let alarm = RetentionAlarm {
            context: Arc::clone(&context),
            projectors: prepared.iter().map(reads).collect(),
            compactors: compactors.clone(),
            held,
        };
        tasks.spawn(alarm.run(stopping.subscribe()));
        for compactor in opened {
            tasks.spawn(compactor.run(stopping.subscribe()));
        }
        for PreparedRunner { runner, halted } in prepared {
            tasks.spawn(runner.run(halted));
        }
        let inner = ProjectionsInner {
            context,
            histories: collections.into_iter().filter(|one| one.history).map(|one| one.name).collect(),
            default_collection,
            runners,
            compactors,
            reducers,
            held: held_now,
            stopping,
            tasks: Mutex::new(tasks),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The status of every projector, by name.
    pub fn projectors(&self) -> Vec<ProjectorStatus> {
        self.inner.runners.values().map(|runner| self.measured(runner)).collect()
    }

    /// The status of a projector with the lag as it is now: a projector that waits does not hear of new events.
    fn measured(&self, runner: &RunnerHandle) -> ProjectorStatus {
        let mut status = runner.status.get();
        status.measure(self.inner.context.store.durable_end(&status.topic));
        status
    }

    /// The status of one projector.
    pub fn projector(&self, name: &GroupName) -> Result<ProjectorStatus, ProjectionError> {
        Ok(self.measured(self.runner(name)?))
    }

    /// The number of projectors whose last rebuild left out events that failed, as long as the projector has
    /// open dead letters.
    pub fn incomplete_rebuilds(&self) -> usize {
        let bus = &self.inner.context.bus;
        let left_out = |status: &ProjectorStatus| status.rebuild.as_ref().is_some_and(|it| it.skipped > 0);
        let is_incomplete =
            |status: &ProjectorStatus| left_out(status) && bus.open_letters(&status.topic, &status.name) > 0;
        self.projectors().iter().filter(|status| is_incomplete(status)).count()
    }

    /// Every compactor with its status.
    pub fn compactors(&self) -> Vec<CompactorView> {
        self.inner.compactors.iter().map(CompactorHandle::view).collect()
    }

    /// The number of compactors whose last round failed.
    pub fn failing_compactors(&self) -> usize {
        self.inner.compactors.iter().filter(|compactor| compactor.is_failing()).count()
    }

    /// The topics whose retention waits for a projector or a compactor, and how many events it would have
    /// taken.
    pub fn held(&self) -> BTreeMap<TopicName, u64> {
        self.inner.held.borrow().clone()
    }

    /// The topic of a collection's changes.
    pub fn feed_of(&self, collection: &CollectionName) -> Result<TopicName, ProjectionError> {
        let feed = self.inner.histories.get(collection).and_then(|name| name.changed_topic().ok());
        feed.ok_or_else(|| ProjectionError::NoHistory { collection: collection.clone() })
    }

    /// The projector that writes a collection.
    pub fn writer_of(&self, collection: &CollectionName) -> Option<GroupName> {
        let writes = |runner: &RunnerHandle| runner.status.get().collections.contains(collection);
        self.inner.runners.iter().find(|(_, runner)| writes(runner)).map(|(name, _)| name.clone())
    }

    /// Begins a rebuild of a projector. Its state is made anew beside the served one, and replaces it when it
    /// is done. Refused if the beginning of the topic is gone, unless `accept_loss`.
    pub async fn rebuild(&self, name: &GroupName, accept_loss: bool) -> Result<(), ProjectionError> {
        let (begun, answer) = oneshot::channel();
        self.send(name, RunnerCommand::Rebuild { accept_loss, begun }).await?;
        answer.await.unwrap_or(Err(ProjectionError::Closed))
    }

    /// Lets a halted projector go on, at the event that it halted at. Refused if only a rebuild helps.
    pub async fn resume(&self, name: &GroupName) -> Result<(), ProjectionError> {
        let (done, answer) = oneshot::channel();
        self.send(name, RunnerCommand::Resume { done }).await?;
        answer.await.unwrap_or(Err(ProjectionError::Closed))
    }

    async fn send(&self, name: &GroupName, command: RunnerCommand) -> Result<(), ProjectionError> {
        self.runner(name)?.commands.send(command).await.map_err(|_| ProjectionError::Closed)
    }

    fn runner(&self, name: &GroupName) -> Result<&RunnerHandle, ProjectionError> {
        let unknown = || ProjectionError::UnknownProjector { name: name.clone() };
        self.inner.runners.get(name).ok_or_else(unknown)
    }

    /// Ends every projector after its current page, and every compactor, and waits for them.
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
