//! Consumer groups, and the groups that the server itself works for.

use promethean_delivery::{CoordinatorView, Subject};
use promethean_model::{GroupName, TopicName};

use super::Bus;
use crate::error::BusError;
use crate::groups::{
    Follower, GroupInfo, GroupPage, GroupProgress, GroupQuery, PageMemory, SeekReport, UnfinishedDeletion,
};
use crate::rows::{GroupKey, StartPosition};

impl Bus {
    /// Every group, or the groups of one topic.
    pub async fn groups(&self, topic: Option<&TopicName>) -> Result<Vec<GroupInfo>, BusError> {
        self.groups.list(topic).await
    }

    /// Groups that are wanted, by name and subject: at most `limit`, and fewer where the topics of their patterns take much
    /// looking for. Of a group of a pattern, the first 100 topics.
    pub async fn groups_page(
        &self,
        query: GroupQuery<'_>,
        limit: usize,
        wanted: impl Fn(&GroupKey) -> bool,
    ) -> Result<GroupPage, BusError> {
        self.groups.page(query, limit, wanted).await
    }

    /// Whether there is a group of this name on exactly this subject.
    pub async fn has_group(&self, group: &GroupName, subject: &Subject) -> Result<bool, BusError> {
        self.groups.has(group, subject).await
    }

    /// The group of this name that covers a subject; of a group of a pattern, 100 topics after `after`.
    pub async fn find_group(
        &self,
        group: &GroupName,
        subject: &Subject,
        after: Option<&TopicName>,
    ) -> Result<Option<GroupInfo>, BusError> {
        self.groups.find(group, subject, after).await
    }

    /// The progress of a group on a topic.
    pub async fn group(&self, topic: &TopicName, group: &GroupName) -> Result<GroupProgress, BusError> {
        self.groups.progress(topic, group).await
    }

    /// The memory of the events that are being read for groups.
    pub fn page_memory(&self) -> PageMemory {
        self.groups.pages.memory()
    }

    /// The members of all partitioned groups and their partitions, by group.
    pub fn coordinators(&self) -> Vec<(GroupName, Subject, CoordinatorView)> {
        self.groups.coordinators.views()
    }

    /// The members of a partitioned group and their partitions; `None` while it has no members.
    pub fn coordinator(&self, group: &GroupName, subject: &Subject) -> Option<CoordinatorView> {
        self.groups.coordinators.view(group, subject)
    }

    /// Moves a group to another place of a topic: everything below it is finished, nothing above it is.
    ///
    /// Leases are taken back. Open dead letters of events that are delivered again are closed; those below, and those whose
    /// event the topic no longer has, stay open. A dry run only says what would happen.
    pub async fn seek(
        &self,
        topic: &TopicName,
        group: &GroupName,
        to: StartPosition,
        dry_run: bool,
    ) -> Result<SeekReport, BusError> {
        self.groups.seek(topic, group, to, dry_run).await
    }

    /// Delivers nothing to a group until it is resumed, also over restarts.
    pub async fn pause_group(&self, subject: &Subject, group: &GroupName) -> Result<(), BusError> {
        self.groups.set_paused(subject, group, true).await
    }

    /// Delivers to a paused group again.
    pub async fn resume_group(&self, subject: &Subject, group: &GroupName) -> Result<(), BusError> {
        self.groups.set_paused(subject, group, false).await
    }

    /// Deletes a group without members: options, cursors, attempts, marks of handled events and open dead letters.
    ///
    /// Events in the dead-letter topic stay. Done to the end even if the caller stops waiting; if it fails half-way the group
    /// is gone for its users, and deleting it again removes the rest.
    pub async fn delete_group(&self, subject: &Subject, group: &GroupName) -> Result<(), BusError> {
        self.groups.delete(subject, group).await
    }

    /// Groups whose deletion could not be finished yet, with the reason.
    pub fn unfinished_deletions(&self) -> Vec<UnfinishedDeletion> {
        self.groups.unfinished.list()
    }

    /// Takes a group for the server itself, and creates it if need be.
    ///
    /// `from` is only shown to users: the caller keeps the cursor. Refused if consumers have a group of this name, or if the
    /// group is taken already.
    pub async fn follow(
        &self,
        group: &GroupName,
        topic: &TopicName,
        from: StartPosition,
    ) -> Result<Follower, BusError> {
        self.groups.follow(group, topic, from).await
    }

    /// Lets retention take the events of followers that do not run. Called when all followers that go on are there.
    pub fn release_absent_followers(&self) {
        self.groups.release_absent_followers();
    }
}
