//! Lookups: events by id, key and time, without a scan of the topic.

use std::ops::{ControlFlow, Range};

use promethean_model::EventId;

use crate::batch::{id_hash, key_hash};
use crate::core::LogCore;
use crate::error::LogReadError;
use crate::index::{EntryKind, IndexRunError};
use crate::read::{FilePlace, ReadLimit};
use crate::record::Record;
use crate::runs::run_error;
use crate::samples::start_at;
use crate::topic::Topic;

/// Where a damaged run that a lookup finds is replaced. That reads every segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunRebuild {
    /// On the caller's thread, which then gets its answer.
    Here,
    /// On a thread of the log, because the caller must not wait.
    Later,
}

impl LogCore {
    pub(crate) fn find_id(&self, topic: &Topic, id: EventId) -> Result<Option<Record>, LogReadError> {
        let (earliest, end) = (topic.state().earliest, topic.end());
        let mut candidates = Vec::new();
        self.with_index(RunRebuild::Here, |core| {
            candidates.clear();
            core.index.candidates(EntryKind::Id, topic.id(), id_hash(id), id.unix_ms(), &mut candidates)
        })?;
        for (offset, pos) in candidates {
            if offset < earliest || offset >= end {
                continue;
            }
            if let Some(record) = self.record_at(topic, offset, pos)?
                && record.view().id == id
            {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    pub(crate) fn latest_by_key(&self, topic: &Topic, key: &[u8]) -> Result<Option<Record>, LogReadError> {
        self.newest_of_key(topic, key, key_hash(key), topic.end(), RunRebuild::Here)
    }

    /// Finds the offset of the key's latest event below `end`, durable or not.
    pub(crate) fn latest_offset_of_key(
        &self,
        topic: &Topic,
        key: &[u8],
        hash: u64,
        end: u64,
    ) -> Result<Option<u64>, LogReadError> {
        let newest = self.newest_of_key(topic, key, hash, end, RunRebuild::Later)?;
        Ok(newest.map(|record| record.view().offset))
    }

    fn newest_of_key(
        &self,
        topic: &Topic,
        key: &[u8],
        hash: u64,
        end: u64,
        rebuild: RunRebuild,
    ) -> Result<Option<Record>, LogReadError> {
        self.with_index(rebuild, |core| core.search_newest(topic, key, hash, end))?
    }

    /// Finds the key's latest record below `end`. Does not rebuild a damaged index, so it can be called while
    /// `merging` is locked.
    pub(crate) fn search_newest(
        &self,
        topic: &Topic,
        key: &[u8],
        hash: u64,
        end: u64,
    ) -> Result<Result<Option<Record>, LogReadError>, IndexRunError> {
        let earliest = topic.state().earliest;
        let mut found = Ok(None);
        self.index.newest_first(EntryKind::Key, topic.id(), hash, &mut |offset, pos| {
            if offset >= end {
                return ControlFlow::Continue(());
            }
            if offset < earliest {
                return ControlFlow::Break(());
            }
            match self.record_at(topic, offset, pos) {
                Ok(Some(record)) if record.view().key == Some(key) => found = Ok(Some(record)),
                Ok(_) => return ControlFlow::Continue(()),
                Err(error) => found = Err(error),
            }
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Finds the key's events with offsets in `range`: the newest `limit` of them, oldest first.
    pub(crate) fn key_history(
        &self,
        topic: &Topic,
        key: &[u8],
        range: Range<u64>,
        limit: usize,
    ) -> Result<Vec<Record>, LogReadError> {
        let lowest = range.start.max(topic.state().earliest);
        let Some(highest) = range.end.min(topic.end()).checked_sub(1) else { return Ok(Vec::new()) };
        let mut history = self.with_index(RunRebuild::Here, |core| {
            let mut found = Ok(Vec::new());
            core.index.newest_upto(
                EntryKind::Key,
                topic.id(),
                key_hash(key),
                highest,
                &mut |offset, pos| {
                    let Ok(records) = &mut found else { return ControlFlow::Break(()) };
                    if offset < lowest || records.len() >= limit {
                        return ControlFlow::Break(());
                    }
                    match core.record_at(topic, offset, pos) {
                        Ok(Some(record)) if record.view().key == Some(key) => records.push(record),
                        Ok(_) => {}
                        Err(error) => found = Err(error),
                    }
                    ControlFlow::Continue(())
                },
            )?;
            Ok(found)
        })??;
        history.reverse();
        Ok(history)
    }

    /// Finds the lowest durable offset whose event has at least this `ts`.
    pub(crate) fn offset_at(&self, topic: &Topic, ts: i64) -> Result<Option<u64>, LogReadError> {
        let (earliest, end) = (topic.state().earliest, topic.end());
        let places: Vec<FilePlace> = {
            let state = topic.state();
            let later = state.segments.iter().filter(|segment| segment.meta.max_ts >= ts);
            let later = later.filter(|segment| segment.meta.end > earliest && segment.meta.id.base < end);
            later
                .map(|segment| FilePlace {
                    meta: segment.meta,
                    applied: segment.applied,
                    samples: segment.samples.clone(),
                })
                .collect()
        };
        for place in places {
            let (_, start) = start_at(self, &place, |sample| sample.max_ts < ts);
            let found = self.first_at_or_after(topic, start.max(earliest), place.meta.end.min(end), ts)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn first_at_or_after(
        &self,
        topic: &Topic,
        from: u64,
        to: u64,
        ts: i64,
    ) -> Result<Option<u64>, LogReadError> {
        let limit = ReadLimit { events: 64, bytes: 16 * 1024 };
        let mut next = from;
        while next < to {
            let page = self.read(topic, next, limit)?;
            if let Some(view) = page.iter().find(|view| view.ts >= ts) {
                return Ok((view.offset < to).then_some(view.offset));
            }
            if page.next == next {
                break;
            }
            next = page.next;
        }
        Ok(None)
    }

    /// Runs a lookup. If it finds a damaged run, the run is replaced and the lookup tried again, at most once
    /// per run; or the log's threads replace it and the lookup fails.
    pub(crate) fn with_index<T>(
        &self,
        rebuild: RunRebuild,
        mut look: impl FnMut(&LogCore) -> Result<T, IndexRunError>,
    ) -> Result<T, LogReadError> {
        for _ in 0..=self.index.runs().all().count() {
            match look(self) {
                Ok(found) => return Ok(found),
                Err(IndexRunError::Damaged { file, .. })
                    if rebuild == RunRebuild::Later && self.options.threads =>
                {
                    self.room.want();
                    self.raise(|flags| flags.rebuild = Some(file));
                    return Err(LogReadError::Rebuilding);
                }
                Err(IndexRunError::Damaged { file, .. }) => self.rebuild_index(&file)?,
                Err(error) => return Err(run_error(error)),
            }
        }
        look(self).map_err(run_error)
    }
}
