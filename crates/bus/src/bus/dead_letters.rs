//! Open dead letters of a group on a topic.

use std::sync::Arc;

use promethean_delivery::{Input, LetterRef};
use promethean_model::{GroupName, Offset, TopicName};
use tokio::sync::oneshot;

use super::Bus;
use crate::dead_letters::{LetterChoice, LetterPage, LetterReport, Redrive, RedriveAction, RedriveTo};
use crate::error::BusError;
use crate::groups::{OwnerMessage, WantedOwner, group_on};
use crate::publish::{Payload, Publish, checked_payload};

impl Bus {
    /// Open dead letters of a group on a topic after an offset, at most `limit` and 1,000.
    pub async fn dead_letters(
        &self,
        topic: &TopicName,
        group: &GroupName,
        after: Option<Offset>,
        limit: usize,
    ) -> Result<LetterPage, BusError> {
        group_on(&self.groups, group, topic).await?;
        self.groups.dead_letters.page(topic, group, after, limit).await
    }

    /// The number of open dead letters of a group on a topic.
    pub fn open_letters(&self, topic: &TopicName, group: &GroupName) -> u64 {
        self.groups.dead_letters.count(topic, group)
    }

    /// Delivers dead letters again. Many letters take several commits: if it fails or the server dies between two of them,
    /// the letters before are done and doing it again does the rest.
    pub async fn redrive(
        &self,
        topic: &TopicName,
        group: &GroupName,
        which: LetterChoice,
        to: RedriveTo,
    ) -> Result<LetterReport, BusError> {
        let action = match to {
            RedriveTo::Group => RedriveAction::ToGroup,
            RedriveTo::Topic => RedriveAction::ToTopic,
        };
        self.change_letters(topic, group, which, action, None).await
    }

    /// Publishes the event of one dead letter to its topic with another payload, and closes the letter in the same commit.
    /// The new event has an id of its own, the key and headers of the original, and the original as its cause. The payload
    /// is checked as one that is published. `which` must name one letter.
    pub async fn redrive_edited(
        &self,
        topic: &TopicName,
        group: &GroupName,
        which: LetterChoice,
        payload: impl Into<Payload<'_>>,
    ) -> Result<LetterReport, BusError> {
        let names_one = match &which {
            LetterChoice::Ids(ids) => ids.len() == 1,
            LetterChoice::Offsets(offsets) => offsets.len() == 1,
            LetterChoice::All | LetterChoice::Filter(_) => false,
        };
        if !names_one {
            let given = "for more letters than one".to_owned();
            let fix = "name one letter, by its id or its offset";
            return Err(BusError::BadOption { option: "payload", given, fix });
        }
        let limits = &self.groups.base.options.limits;
        let payload = checked_payload(Publish::new(topic.clone(), payload), limits)?;
        self.change_letters(topic, group, which, RedriveAction::ToTopic, Some(payload)).await
    }

    /// Closes dead letters. Events in the dead-letter topic stay. A letter that is being redriven is left: it is closed
    /// when its event is acked, and open again if the event fails again.
    pub async fn drop_letters(
        &self,
        topic: &TopicName,
        group: &GroupName,
        which: LetterChoice,
    ) -> Result<LetterReport, BusError> {
        self.change_letters(topic, group, which, RedriveAction::Drop, None).await
    }

    async fn change_letters(
        &self,
        topic: &TopicName,
        group: &GroupName,
        which: LetterChoice,
        action: RedriveAction,
        payload: Option<String>,
    ) -> Result<LetterReport, BusError> {
        let groups = &self.groups;
        if groups.base.is_closed() {
            return Err(BusError::Closed);
        }
        if let LetterChoice::Filter(filter) = &which {
            filter.validate()?;
        }
        let (_, row) = group_on(groups, group, topic).await?;
        if action == RedriveAction::ToGroup {
            row.open_to_consumers(group)?;
        }
        let redrive = Redrive {
            dead_letters: Arc::clone(&groups.dead_letters),
            topic: topic.clone(),
            group: group.clone(),
            action,
            payload,
            is_follower: row.follower,
            tell_owner: self.owner_teller(WantedOwner { topic: topic.clone(), group: group.clone(), row }),
            report: LetterReport::default(),
        };
        let (answer, answered) = oneshot::channel();
        // On a task of its own: a caller that goes away must not come between a commit and the message to the owner.
        groups.base.tasks.spawn(async move {
            let report = redrive.run(which, || answer.is_closed()).await;
            // The caller may have stopped waiting.
            let _ = answer.send(report);
        });
        answered.await.unwrap_or(Err(BusError::Closed))
    }

    /// Tells the owner which events to deliver again. An owner that works already is told whatever its options are. An
    /// owner that starts from now on reads the rows itself, so a message that cannot be sent is no failure.
    fn owner_teller(&self, wanted: WantedOwner) -> Box<dyn Fn(Vec<LetterRef>) + Send + Sync> {
        let groups = Arc::clone(&self.groups);
        Box::new(move |redriven| {
            let message = OwnerMessage::Tell(Input::Redrive(redriven));
            let _ = match groups.owners.get(&wanted.topic, &wanted.group) {
                Some(owner) => owner.mailbox.send_now(message),
                None => groups.owners.send(&groups, &wanted, message).map(drop),
            };
        })
    }
}
