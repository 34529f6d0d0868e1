//! Events appended one by one, each accepted or refused by itself, and handed to the log in one call.

use std::sync::Arc;

use promethean_log::{AppendError, LogBatch, Topic};
use promethean_model::{Durability, TopicName};
use tokio::sync::OwnedSemaphorePermit;

use super::commit::{LogOutcome, new_event, placed, unheard};
use super::error::commit_error;
use super::open_store::OpenStore;
use super::room::RoomWait;
use crate::port::{AppendEvent, Appended, CommitError, Turn};
use crate::state::plan;

/// About the bytes of a record besides key, meta and payload.
const RECORD_BYTES: usize = 64;

type AppendOutcomes = Vec<Result<Appended, CommitError>>;

impl OpenStore {
    pub(super) async fn append_each(
        self: &Arc<Self>,
        events: Vec<AppendEvent>,
        asked: Option<Durability>,
        turn: Option<Turn>,
    ) -> AppendOutcomes {
        let count = events.len();
        if count == 0 {
            return Vec::new();
        }
        let mut room = RoomWait::default();
        let prepared = self.prepare_each(events, asked, &mut room).await;
        let (encoded, refused, durability, permit) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return vec![Err(error); count],
        };
        let submitted = self.submit_each(&encoded, durability, &permit, &mut room).await;
        drop((encoded, permit, turn));
        let accepted = match submitted {
            Ok(outcome) => match outcome.await.map_err(unheard) {
                Ok(result) => result.map_err(commit_error),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let appended = |outcome: Result<promethean_log::PlacedRecord, AppendError>| {
            let there = |place| Appended { placed: placed(&place), durability: Some(durability) };
            outcome.map(there).map_err(commit_error)
        };
        match accepted {
            Ok(receipt) => merge(receipt.outcomes().map(appended), refused, count),
            Err(error) => merge(std::iter::repeat(Err(error)), refused, count),
        }
    }

    /// Hands encoded events to the log, and waits for room if there is none.
    async fn submit_each(
        &self,
        encoded: &LogBatch,
        durability: Durability,
        permit: &Arc<OwnedSemaphorePermit>,
        room: &mut RoomWait,
    ) -> Result<LogOutcome, CommitError> {
        loop {
            let (done, outcome) = self.completion(permit);
            let placed = self.log.try_submit(encoded, durability, done).map_err(commit_error);
            if room.again(self, placed).await?.is_some() {
                return Ok(outcome);
            }
        }
    }

    /// Encodes the events. Returns the refused events by their index.
    async fn prepare_each(
        &self,
        events: Vec<AppendEvent>,
        asked: Option<Durability>,
        room: &mut RoomWait,
    ) -> Result<(LogBatch, Vec<(usize, CommitError)>, Durability, Arc<OwnedSemaphorePermit>), CommitError>
    {
        let durability = self.offered(asked)?;
        let bytes: usize = events.iter().map(|event| RECORD_BYTES + event.bytes()).sum();
        let permit = Arc::new(room.admit(self, bytes).await?);
        let (mut new_topics, mut refused) = (Vec::new(), Vec::new());
        let mut encoded = LogBatch::each();
        encoded.reserve(events.len(), bytes);
        let mut last: Option<Topic> = None;
        for (index, event) in events.iter().enumerate() {
            if let Err(error) = self.push_each(&mut encoded, event, &mut last, &mut new_topics) {
                refused.push((index, error));
            }
        }
        self.push_policies(&new_topics);
        Ok((encoded, refused, durability, permit))
    }

    fn push_each(
        &self,
        encoded: &mut LogBatch,
        event: &AppendEvent,
        last: &mut Option<Topic>,
        new_topics: &mut Vec<TopicName>,
    ) -> Result<(), CommitError> {
        plan::check_event(event)?;
        let topic = match last.take().filter(|topic| *topic.name() == event.topic) {
            Some(topic) => topic,
            None => self.topic_for(&event.topic, new_topics)?,
        };
        let pushed = encoded.push(&topic, new_event(event)).map_err(commit_error);
        *last = Some(topic);
        pushed
    }
}

/// Puts refusals at their indexes between the outcomes of the others.
fn merge(
    mut outcomes: impl Iterator<Item = Result<Appended, CommitError>>,
    refused: Vec<(usize, CommitError)>,
    count: usize,
) -> AppendOutcomes {
    let mut refused = refused.into_iter().peekable();
    let lost = || CommitError::UnknownOutcome { reason: "the log's receipt is too short".to_owned() };
    (0..count)
        .map(|index| match refused.next_if(|(at, _)| *at == index) {
            Some((_, error)) => Err(error),
            None => outcomes.next().unwrap_or_else(|| Err(lost())),
        })
        .collect()
}
