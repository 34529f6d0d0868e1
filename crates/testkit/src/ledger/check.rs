//! The rules of the check.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::LedgerEntry;
use super::holes::Holes;
use super::observed::{ObservedEvent, ObservedTopics};
use super::tries::{EventName, Tries, Try, collect};
use super::violation::{Summary, Violation};

pub(super) fn check(entries: &[LedgerEntry], observed: &ObservedTopics) -> Result<Summary, Vec<Violation>> {
    let mut violations = Vec::new();
    let tries = collect(entries, &mut violations);
    let mut found: Found<'_> = BTreeMap::new();
    for (topic, seen) in observed {
        for event in &seen.events {
            found.entry((topic, &event.id)).or_default().push(event);
        }
    }
    let holes = Holes::new(&tries, observed);
    let mut checker = Checker { tries, found, observed, holes, violations };
    let mut summary = Summary::default();
    checker.check_events(&mut summary);
    checker.check_inventions();
    checker.check_batches();
    checker.check_order();
    checker.check_gaps();
    if checker.violations.is_empty() { Ok(summary) } else { Err(checker.violations) }
}

type Found<'a> = BTreeMap<EventName<'a>, Vec<&'a ObservedEvent>>;

struct Checker<'a> {
    tries: Tries<'a>,
    found: Found<'a>,
    observed: &'a ObservedTopics,
    holes: Holes<'a>,
    violations: Vec<Violation>,
}

impl Checker<'_> {
    fn check_events(&mut self, summary: &mut Summary) {
        for (name, tries) in &self.tries {
            let earliest = self.observed.get(name.0).map_or(0, |topic| topic.earliest);
            let found = self.found.get(name).map_or(&[][..], Vec::as_slice);
            let may_be_gone = |offset| offset < earliest || self.holes.may_be_gone(name.0, tries, offset);
            match judge(*name, tries, found, &may_be_gone) {
                Ok(Fate::Ok) => summary.ok += 1,
                Ok(Fate::OkDropped) => summary.ok_dropped += 1,
                Ok(Fate::Failed) => summary.failed += 1,
                Ok(Fate::UnknownPresent) => summary.unknown_present += 1,
                Ok(Fate::UnknownAbsent) => summary.unknown_absent += 1,
                Err(violation) => self.violations.push(violation),
            }
        }
    }

    fn check_inventions(&mut self) {
        for ((topic, id), events) in self.found.iter().filter(|(name, _)| !self.tries.contains_key(*name)) {
            let invented = |event: &&ObservedEvent| Violation::NeverInvoked {
                topic: (*topic).to_owned(),
                id: (*id).to_owned(),
                offset: event.offset,
            };
            self.violations.extend(events.iter().map(invented));
        }
    }

    fn check_batches(&mut self) {
        let mut batches: BTreeMap<&str, BTreeSet<EventName<'_>>> = BTreeMap::new();
        for (name, tries) in &self.tries {
            for batch in tries.iter().filter_map(|attempt| attempt.event.batch.as_deref()) {
                batches.entry(batch).or_default().insert(*name);
            }
        }
        for (batch, events) in batches {
            let (present, absent): (Vec<_>, Vec<_>) =
                events.iter().partition(|name| self.found.contains_key(*name));
            // Retention or compaction may have dropped an event that is not seen.
            let untouched = |name: &EventName<'_>| {
                let trimmed = self.observed.get(name.0).is_some_and(|topic| topic.earliest > 0);
                let tries = self.tries.get(name).map_or(&[][..], Vec::as_slice);
                !trimmed && !self.holes.may_be_gone(name.0, tries, 0)
            };
            let absent: Vec<_> = absent.into_iter().filter(|name| untouched(name)).collect();
            if !present.is_empty() && !absent.is_empty() {
                let print = |names: Vec<EventName<'_>>| {
                    names.iter().map(|(topic, id)| format!("{topic}/{id}")).collect()
                };
                let (present, absent) = (print(present), print(absent));
                self.violations.push(Violation::TornBatch { batch: batch.to_owned(), present, absent });
            }
        }
    }

    /// Checks the order of each producer: read from the start of a topic, every event must have a try that was invoked after
    /// the tries of the events before it. Taking the earliest such try leaves the most room for later events.
    fn check_order(&mut self) {
        for (topic, seen) in self.observed {
            let mut latest: BTreeMap<&str, usize> = BTreeMap::new();
            for event in &seen.events {
                let tries =
                    self.tries.get(&(topic.as_str(), event.id.as_str())).map_or(&[][..], Vec::as_slice);
                let mut tries = tries.iter().filter(|attempt| attempt.may_have_happened()).peekable();
                let Some(producer) = tries.peek().map(|attempt| attempt.event.producer.as_str()) else {
                    continue;
                };
                let latest = latest.entry(producer).or_default();
                match tries.find(|attempt| attempt.order >= *latest) {
                    Some(attempt) => *latest = attempt.order,
                    None => self.violations.push(Violation::OutOfOrder {
                        producer: producer.to_owned(),
                        topic: topic.clone(),
                        id: event.id.clone(),
                        offset: event.offset,
                    }),
                }
            }
        }
    }

    fn check_gaps(&mut self) {
        for (topic, seen) in self.observed {
            let mut expected = seen.earliest;
            for event in &seen.events {
                let hole = seen.compacted && event.offset > expected;
                if event.offset != expected && !hole {
                    self.violations.push(Violation::Gap {
                        topic: topic.clone(),
                        expected,
                        found: event.offset,
                    });
                }
                expected = event.offset + 1;
            }
        }
    }
}

enum Fate {
    Ok,
    OkDropped,
    Failed,
    UnknownPresent,
    UnknownAbsent,
}

fn judge(
    (topic, id): EventName<'_>,
    tries: &[Try<'_>],
    found: &[&ObservedEvent],
    may_be_gone: &dyn Fn(u64) -> bool,
) -> Result<Fate, Violation> {
    let (topic, id) = (topic.to_owned(), id.to_owned());
    if found.len() > 1 {
        let offsets = found.iter().map(|event| event.offset).collect();
        return Err(Violation::Duplicated { topic, id, offsets });
    }
    let mut acks = tries.iter().filter_map(Try::acked);
    if let Some(first) = acks.next() {
        return match (acks.find(|second| *second != first), found.first()) {
            (Some(second), _) => Err(Violation::AckMoved { topic, id, first, second }),
            (None, None) if may_be_gone(first) => Ok(Fate::OkDropped),
            (None, None) => Err(Violation::Missing { topic, id, offset: first }),
            (None, Some(event)) if event.offset != first => {
                Err(Violation::WrongOffset { topic, id, acked: first, found: event.offset })
            }
            (None, Some(event)) => {
                let right =
                    tries.iter().filter(|attempt| attempt.acked().is_some()).all(|ack| ack.explains(event));
                if right { Ok(Fate::Ok) } else { Err(Violation::ContentDiffers { topic, id, offset: first }) }
            }
        };
    }
    let mut open = tries.iter().filter(|attempt| attempt.may_have_happened()).peekable();
    match (open.peek().is_some(), found.first()) {
        (false, None) => Ok(Fate::Failed),
        (false, Some(event)) => Err(Violation::FailedPresent { topic, id, offset: event.offset }),
        (true, None) => Ok(Fate::UnknownAbsent),
        (true, Some(event)) if open.any(|attempt| attempt.explains(event)) => Ok(Fate::UnknownPresent),
        (true, Some(event)) => Err(Violation::ContentDiffers { topic, id, offset: event.offset }),
    }
}
