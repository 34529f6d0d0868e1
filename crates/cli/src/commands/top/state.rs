//! What is shown: rows with their rates, their order and their filter. Pure, so that it is tested without a
//! terminal.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sample::TopSample;
use crate::commands::groups::state_of;

/// What a key asks for beside a change of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopAction {
    None,
    Quit,
}

/// Which table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopView {
    Groups,
    Topics,
}

/// One line: names, numbers, and for a group why it waits.
#[derive(Debug, Clone)]
pub(super) struct TopRow {
    pub(super) name: String,
    /// The topic of a group; empty for a topic.
    pub(super) topic: String,
    /// Of a group: lag, events finished per second, in flight, members. Of a topic: events, events per second, bytes,
    /// groups.
    pub(super) numbers: [f64; 4],
    pub(super) state: String,
}

/// The rows that a page key moves by.
const PAGE: isize = 10;

/// The heads of the columns that rows can be sorted by.
pub(super) const GROUP_HEADS: [&str; 6] = ["GROUP", "LAG", "DONE/s", "IN FLIGHT", "MEMBERS", "STATE"];
pub(super) const TOPIC_HEADS: [&str; 5] = ["TOPIC", "EVENTS", "IN/s", "SIZE", "GROUPS"];

/// The numbers above the table.
#[derive(Debug, Clone, Default)]
pub(super) struct TopTotals {
    pub(super) topics: usize,
    pub(super) groups: usize,
    pub(super) incoming: f64,
    pub(super) lag: u64,
    pub(super) in_flight: u64,
    pub(super) dead: u64,
    pub(super) health: String,
}

/// Everything that the screen shows.
#[derive(Debug)]
pub(super) struct TopState {
    pub(super) url: String,
    pub(super) view: TopView,
    pub(super) totals: TopTotals,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) failure: Option<String>,
    is_paused: bool,
    sort: usize,
    is_reversed: bool,
    /// Rows above the first one that is shown.
    skipped: usize,
    groups: Vec<TopRow>,
    topics: Vec<TopRow>,
    before: Option<TopSample>,
}

impl TopState {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            view: TopView::Groups,
            totals: TopTotals::default(),
            filter: String::new(),
            is_typing: false,
            failure: None,
            is_paused: false,
            sort: 1,
            is_reversed: false,
            skipped: 0,
            groups: Vec::new(),
            topics: Vec::new(),
            before: None,
        }
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The column that rows are sorted by.
    pub(super) const fn sort(&self) -> usize {
        self.sort
    }

    /// How many of the rows stand above the screen, which shows `height` of them.
    pub(super) fn skipped(&self, rows: usize, height: usize) -> usize {
        self.skipped.min(rows.saturating_sub(height))
    }

    /// Keeps why the server was not asked; the last rows stay.
    pub(super) fn failed(&mut self, error: &anyhow::Error) {
        self.failure = Some(format!("{error:#}"));
    }

    /// Takes what the server says, and compares it with what it said before.
    pub(super) fn take(&mut self, sample: TopSample) {
        self.failure = None;
        let seconds = self.before.as_ref().map(|before| (sample.taken - before.taken).as_secs_f64());
        let rate = |now: u64, before: Option<u64>| match (seconds, before) {
            (Some(seconds), Some(before)) if seconds > 0.0 => now.saturating_sub(before) as f64 / seconds,
            _ => 0.0,
        };
        let before = self.before.as_ref();
        let ends: HashMap<&str, u64> = before
            .map(|one| one.topics.iter().map(|topic| (topic.topic.as_str(), topic.end)).collect())
            .unwrap_or_default();
        let floor = |group: &promethean_client::GroupDescription| {
            group.topics.iter().map(|one| one.floor).sum::<u64>()
        };
        let floors: HashMap<(&str, &str), u64> = before
            .map(|one| {
                one.groups
                    .iter()
                    .map(|group| ((group.group.as_str(), group.topic.as_str()), floor(group)))
                    .collect()
            })
            .unwrap_or_default();
        let mut readers: HashMap<&str, u64> = HashMap::new();
        for topic in sample.groups.iter().flat_map(|group| &group.topics) {
            *readers.entry(topic.topic.as_str()).or_default() += 1;
        }
        let group_row = |group: &promethean_client::GroupDescription| {
            let sum = |field: fn(&promethean_client::TopicProgress) -> u64| {
                group.topics.iter().map(field).sum::<u64>()
            };
            let done = rate(floor(group), floors.get(&(group.group.as_str(), group.topic.as_str())).copied());
            let members = group.topics.iter().map(|one| one.members).max().unwrap_or(0);
            let numbers = [sum(|one| one.lag) as f64, done, sum(|one| one.in_flight) as f64, members as f64];
            TopRow { name: group.group.clone(), topic: group.topic.clone(), numbers, state: state_of(group) }
        };
        let topic_row = |topic: &promethean_client::TopicDescription| {
            let incoming = rate(topic.end, ends.get(topic.topic.as_str()).copied());
            let groups = readers.get(topic.topic.as_str()).copied().unwrap_or(0);
            let numbers = [(topic.end - topic.earliest) as f64, incoming, topic.bytes as f64, groups as f64];
            TopRow { name: topic.topic.clone(), topic: String::new(), numbers, state: String::new() }
        };
        let groups: Vec<TopRow> = sample.groups.iter().map(group_row).collect();
        let topics: Vec<TopRow> = sample.topics.iter().map(topic_row).collect();
        let number =
            |rows: &[TopRow], at: usize| rows.iter().filter_map(|row| row.numbers.get(at)).sum::<f64>();
        self.totals = TopTotals {
            topics: topics.len(),
            groups: groups.len(),
            incoming: number(&topics, 1),
            lag: number(&groups, 0) as u64,
            in_flight: number(&groups, 2) as u64,
            dead: sample.dead,
            health: sample.health.clone(),
        };
        (self.groups, self.topics) = (groups, topics);
        self.before = Some(sample);
    }

    /// The rows to show, in their order.
    pub(super) fn rows(&self) -> Vec<&TopRow> {
        let all = match self.view {
            TopView::Groups => &self.groups,
            TopView::Topics => &self.topics,
        };
        let fits = |row: &&TopRow| row.name.contains(&self.filter) || row.topic.contains(&self.filter);
        let mut rows: Vec<&TopRow> = all.iter().filter(fits).collect();
        rows.sort_by(|one, other| {
            let by_name = || (&one.name, &one.topic).cmp(&(&other.name, &other.topic));
            let order = match self.sort {
                0 => Ordering::Equal,
                5 => one.state.cmp(&other.state),
                column => {
                    let number = |row: &TopRow| row.numbers.get(column - 1).copied().unwrap_or(0.0) as u64;
                    // The largest number comes first.
                    Reverse(number(one)).cmp(&Reverse(number(other)))
                }
            };
            order.then_with(by_name)
        });
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    /// Does what a key asks for.
    pub(super) fn press(&mut self, key: KeyEvent) -> TopAction {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return TopAction::Quit;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return TopAction::None;
        }
        match key.code {
            KeyCode::Char('q') => return TopAction::Quit,
            KeyCode::Esc if self.filter.is_empty() => return TopAction::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Tab | KeyCode::Char('t') => {
                self.view = if self.view == TopView::Groups { TopView::Topics } else { TopView::Groups };
                self.sort = self.sort.min(self.columns() - 1);
                self.skipped = 0;
            }
            KeyCode::Char('s') => self.sort = (self.sort + 1) % self.columns(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(PAGE),
            KeyCode::PageUp => self.scroll(-PAGE),
            KeyCode::Home => self.skipped = 0,
            KeyCode::End => self.scroll(isize::MAX),
            _ => {}
        }
        TopAction::None
    }

    /// Moves the first row that is shown; the last row can be the only one.
    fn scroll(&mut self, rows: isize) {
        let last = self.rows().len().saturating_sub(1);
        self.skipped = self.skipped.saturating_add_signed(rows).min(last);
    }

    const fn columns(&self) -> usize {
        match self.view {
            TopView::Groups => GROUP_HEADS.len(),
            TopView::Topics => TOPIC_HEADS.len(),
        }
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.len() < 200 => self.filter.push(letter),
            _ => {}
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use promethean_client::{GroupDescription, TopicDescription};
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    fn group(name: &str, floor: u64, lag: u64, reason: &str) -> GroupDescription {
        let progress = json!({"topic": "orders.placed", "floor": floor, "end": floor + lag, "lag": lag,
            "in_flight": 2, "members": 1, "reason": reason});
        let group = json!({"group": name, "topic": "orders.placed", "paused": false, "topics": [progress]});
        serde_json::from_value(group).unwrap()
    }

    fn sample(taken: Instant, floor: u64) -> TopSample {
        let topic = json!({"topic": "orders.placed", "earliest": 0, "end": floor + 100, "bytes": 4096, "settings": {}});
        let topics: Vec<TopicDescription> = vec![serde_json::from_value(topic).unwrap()];
        let groups = vec![group("billing", floor, 100, "no_members"), group("audit", floor, 7, "delivering")];
        TopSample { taken, health: "ok".to_owned(), groups, topics, dead: 3 }
    }

    /// A state after two samples, two seconds apart.
    pub(in crate::commands::top) fn state() -> TopState {
        let start = Instant::now();
        let mut state = TopState::new("http://127.0.0.1:8090".to_owned());
        state.take(sample(start, 100));
        state.take(sample(start + Duration::from_secs(2), 300));
        state
    }

    fn names(state: &TopState) -> Vec<&str> {
        state.rows().iter().map(|row| row.name.as_str()).collect()
    }

    fn press(state: &mut TopState, keys: &str) {
        for key in keys.chars() {
            state.press(KeyCode::Char(key).into());
        }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let state = state();
        let rows = state.rows();
        assert_eq!(rows[0].numbers, [100.0, 100.0, 2.0, 1.0]);
        assert_eq!((state.totals.incoming, state.totals.lag, state.totals.dead), (100.0, 107, 3));
    }

    #[test]
    fn rows_below_the_screen_are_scrolled_to() {
        let mut state = state();
        assert_eq!(state.skipped(2, 1), 0);
        state.press(KeyCode::Down.into());
        assert_eq!((state.skipped(2, 1), state.skipped(2, 2)), (1, 0), "a screen with room shows all");
        for key in [KeyCode::End, KeyCode::PageDown, KeyCode::Down] {
            state.press(key.into());
            assert_eq!(state.skipped(2, 1), 1, "{key:?}");
        }
        state.press(KeyCode::PageUp.into());
        assert_eq!(state.skipped(2, 1), 0);
    }

    #[test]
    fn keys_sort_filter_pause_and_quit() {
        let mut state = state();
        assert_eq!(names(&state), ["billing", "audit"], "by lag");
        press(&mut state, "r");
        assert_eq!(names(&state), ["audit", "billing"]);
        press(&mut state, "rsssss");
        assert_eq!(names(&state), ["audit", "billing"], "by name");
        press(&mut state, "/bilq");
        assert!(names(&state).is_empty(), "q is a letter of the filter");
        state.press(KeyCode::Backspace.into());
        state.press(KeyCode::Enter.into());
        assert_eq!(names(&state), ["billing"]);
        state.press(KeyCode::Esc.into());
        assert_eq!(names(&state).len(), 2);
        press(&mut state, "p");
        assert!(state.is_paused());
        press(&mut state, "t");
        assert_eq!(names(&state), ["orders.placed"]);
        assert_eq!(state.press(KeyCode::Char('q').into()), TopAction::Quit);
        assert_eq!(state.press(KeyCode::Esc.into()), TopAction::Quit);
    }
}
