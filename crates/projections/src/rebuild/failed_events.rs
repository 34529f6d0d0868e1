//! Events that failed in a rebuild, until the rebuild makes dead letters of them.

use promethean_bus::StoredEvent;
use promethean_bus::groups::GivenUp;

/// The most events that may fail in one rebuild.
const EVENTS_MAX: usize = 10_000;
/// The most bytes of these events.
const BYTES_MAX: usize = 64 << 20;

/// Events that failed in a rebuild. They become dead letters when the rebuild ends, not before: until then the
/// served state has what they changed.
#[derive(Debug, Default)]
pub(super) struct FailedEvents {
    events: Vec<(StoredEvent, GivenUp)>,
    bytes: usize,
}

impl FailedEvents {
    /// Adds an event. Fails if there are too many: then the program is at fault, not its events.
    pub(super) fn add(&mut self, event: StoredEvent, given_up: GivenUp) -> Result<(), String> {
        self.bytes += event.bytes() + given_up.reason.len();
        if self.events.len() >= EVENTS_MAX || self.bytes > BYTES_MAX {
            let (count, last) = (self.events.len(), given_up.reason);
            return Err(format!(
                "{count} events failed before this one, which is too many for one rebuild; repair the program, then rebuild again; {last}"
            ));
        }
        self.events.push((event, given_up));
        Ok(())
    }

    pub(super) fn all(&self) -> &[(StoredEvent, GivenUp)] {
        &self.events
    }

    pub(super) fn count(&self) -> u64 {
        self.events.len() as u64
    }

    /// Why the first of them failed.
    pub(super) fn first_reason(&self) -> Option<&str> {
        self.events.first().map(|(_, given_up)| given_up.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use promethean_model::{EventId, Offset};

    use super::*;

    #[test]
    fn too_many_failures_end_the_rebuild() {
        let mut failed = FailedEvents::default();
        let given_up = || GivenUp { reason: "at offset 1: bad".to_owned(), attempts: 1, first_ms: 0 };
        let event = || StoredEvent::new("t".parse().unwrap(), Offset(1), EventId::derive(b"test", b""), 5);
        for _ in 0..EVENTS_MAX {
            failed.add(event(), given_up()).unwrap();
        }
        let refused = failed.add(event(), given_up()).unwrap_err();
        assert!(refused.contains("10000 events") && refused.contains("at offset 1: bad"), "{refused}");
        assert_eq!((failed.count(), failed.first_reason()), (10_000, Some("at offset 1: bad")));
    }
}
