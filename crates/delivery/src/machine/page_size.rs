//! How many new events a read asks for.

/// The size of the next page of new events: as many as members have credit for, stretched where the group passes
/// over events, and cut where the last page had more than members could take. A page that is too large is read in
/// vain, since a machine keeps no events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageSize {
    /// About how many events are scanned for each that is leased.
    stretch: usize,
    /// The most events of the next page. It doubles with every page that was used whole.
    cap: usize,
}

impl Default for PageSize {
    fn default() -> Self {
        Self { stretch: 1, cap: usize::MAX }
    }
}

impl PageSize {
    /// How many events to read, if members have credit for `room` of them; at most `page`.
    pub(super) fn events(self, room: usize, page: usize) -> usize {
        room.saturating_mul(self.stretch).min(self.cap).clamp(1, page.max(1))
    }

    /// Learns from a page of which `scanned` events were used, `leased` of them for members. `is_whole`: no event was
    /// left.
    pub(super) fn learn(&mut self, scanned: usize, leased: usize, is_whole: bool, page: usize) {
        self.cap = if is_whole { self.cap.saturating_mul(2) } else { scanned.max(1) };
        if scanned > 0 {
            let stretch = scanned.checked_div(leased).unwrap_or(self.stretch.saturating_mul(2));
            self.stretch = stretch.clamp(1, page.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 1_000;

    /// The sizes of the next pages, if of each page only `used` events can be used and `leased` of them are leased.
    fn sizes(room: usize, pages: usize, used: impl Fn(usize) -> (usize, usize)) -> Vec<usize> {
        let mut size = PageSize::default();
        let mut sizes = Vec::new();
        for _ in 0..pages {
            let events = size.events(room, PAGE);
            let (scanned, leased) = used(events);
            size.learn(scanned, leased, scanned == events, PAGE);
            sizes.push(events);
        }
        sizes
    }

    #[test]
    fn a_page_has_as_many_events_as_there_is_credit_for() {
        assert_eq!(sizes(1, 3, |events| (events, events)), [1, 1, 1]);
        assert_eq!(sizes(250, 3, |events| (events, events)), [250, 250, 250]);
        assert_eq!(sizes(5_000, 2, |events| (events, events)), [PAGE, PAGE]);
    }

    #[test]
    fn pages_grow_while_all_events_are_passed_over() {
        let grown = sizes(1, 13, |events| (events, 0));
        assert_eq!((grown[0], grown[5], grown[12]), (1, 32, PAGE));
        assert_eq!(sizes(1, 4, |events| (events.min(100), usize::from(events >= 100))), [1, 2, 4, 8]);
    }

    #[test]
    fn a_page_that_was_too_large_is_followed_by_a_smaller_one() {
        // A rate lets one event through at a time, whatever the credit.
        let all: usize = sizes(1_000, 100, |_| (1, 1)).iter().skip(1).sum();
        assert!(all <= 150, "{all}");
    }
}
