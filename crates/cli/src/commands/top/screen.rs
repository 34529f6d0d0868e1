//! Drawing the state.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::state::{GROUP_HEADS, TOPIC_HEADS, TopRow, TopState, TopView};
use crate::commands::groups::{advice, tone_of};
use crate::output::{Tone, bytes_text, count_text};

/// The width from which on the meaning of a state is shown beside it.
const WIDE: u16 = 120;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState) {
    let rows = [Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)];
    let [head, body, foot] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Paragraph::new(totals(state)), head);
    table(frame, state, body);
    frame.render_widget(Paragraph::new(footer(state)), foot);
}

fn totals(state: &TopState) -> Vec<Line<'static>> {
    let totals = &state.totals;
    let health = if totals.health == "ok" { Color::Green } else { Color::Red };
    let dead = if totals.dead > 0 { Style::new().fg(Color::Yellow) } else { Style::new() };
    let mut first = vec![
        Span::styled("promethean ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("{}  ", state.url)),
        Span::styled(totals.health.clone(), Style::new().fg(health)),
    ];
    if state.is_paused() {
        first.push(Span::styled("  paused", Style::new().fg(Color::Yellow)));
    }
    if let Some(failure) = &state.failure {
        first.push(Span::styled(format!("  {failure}"), Style::new().fg(Color::Red)));
    }
    let second = vec![
        Span::raw(format!(
            "{} topics  {} groups  {}/s in  lag {}  in flight {}  ",
            count_text(totals.topics as u64),
            count_text(totals.groups as u64),
            count_text(totals.incoming as u64),
            count_text(totals.lag),
            count_text(totals.in_flight),
        )),
        Span::styled(format!("dead letters kept {}", count_text(totals.dead)), dead),
    ];
    vec![Line::from(first), Line::from(second)]
}

fn table(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let is_wide = area.width >= WIDE;
    let number = Constraint::Length(11);
    let (heads, widths): (Vec<&str>, Vec<Constraint>) = match state.view {
        TopView::Groups => {
            let state = if is_wide { Constraint::Fill(3) } else { Constraint::Length(12) };
            let narrow = Constraint::Length(9);
            let widths = vec![
                Constraint::Fill(2),
                Constraint::Fill(2),
                narrow,
                narrow,
                narrow,
                Constraint::Length(7),
                state,
            ];
            (vec!["GROUP", "TOPIC", "LAG", "DONE/s", "IN FLIGHT", "MEMBERS", "STATE"], widths)
        }
        TopView::Topics => (TOPIC_HEADS.to_vec(), vec![Constraint::Fill(1), number, number, number, number]),
    };
    let sorted = match state.view {
        TopView::Groups => GROUP_HEADS.get(state.sort()).copied(),
        TopView::Topics => TOPIC_HEADS.get(state.sort()).copied(),
    };
    let head = heads.iter().enumerate().map(|(at, head)| {
        let style = Style::new().add_modifier(Modifier::BOLD);
        let style = if sorted == Some(*head) { style.add_modifier(Modifier::UNDERLINED) } else { style };
        let is_text = at == 0 || *head == "TOPIC" || *head == "STATE";
        let line = Line::styled((*head).to_owned(), style);
        Cell::from(if is_text { line } else { line.right_aligned() })
    });
    let rows = state.rows();
    // One line is the head.
    let height = usize::from(area.height.saturating_sub(1));
    let shown =
        rows.iter().skip(state.skipped(rows.len(), height)).take(height).map(|row| match state.view {
            TopView::Groups => group_row(row, is_wide),
            TopView::Topics => topic_row(row),
        });
    frame.render_widget(Table::new(shown, widths).header(Row::new(head)).column_spacing(1), area);
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

fn count(number: f64) -> Cell<'static> {
    right(count_text(number as u64))
}

fn group_row(row: &TopRow, is_wide: bool) -> Row<'static> {
    let [lag, done, in_flight, members] = row.numbers;
    let state = match (is_wide, advice(&row.state)) {
        (true, advice) if !advice.is_empty() => format!("{}: {advice}", row.state),
        _ => row.state.clone(),
    };
    let color = match tone_of(&row.state) {
        Tone::Good => Color::Green,
        Tone::Bad => Color::Red,
        Tone::Warn => Color::Yellow,
        Tone::Strong | Tone::Faint | Tone::Mark => Color::Reset,
    };
    Row::new([
        Cell::from(row.name.clone()),
        Cell::from(row.topic.clone()),
        count(lag),
        count(done),
        count(in_flight),
        count(members),
        Cell::from(Span::styled(state, Style::new().fg(color))),
    ])
}

fn topic_row(row: &TopRow) -> Row<'static> {
    let [events, incoming, bytes, groups] = row.numbers;
    let size = right(bytes_text(bytes as u64));
    Row::new([Cell::from(row.name.clone()), count(events), count(incoming), size, count(groups)])
}

fn footer(state: &TopState) -> Line<'static> {
    if state.is_typing {
        return Line::from(format!("filter: {}_  (Enter keeps it, Esc clears it)", state.filter));
    }
    let filter = if state.filter.is_empty() { String::new() } else { format!("  filter: {}", state.filter) };
    let keys =
        format!("Tab groups/topics  s sort  r reverse  / filter  arrows scroll  p pause  q quit{filter}");
    Line::styled(keys, Style::new().add_modifier(Modifier::DIM))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::tests::state;
    use super::*;

    fn drawn(state: &TopState, columns: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, 10)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let lines = buffer.content().chunks(usize::from(columns));
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    #[test]
    fn everything_fits_80_columns() {
        let text = drawn(&state(), 80);
        for word in [
            "http://127.0.0.1:8090",
            "lag 107",
            "dead letters kept 3",
            "billing",
            "no_members",
            "MEMBERS",
            "q quit",
        ] {
            assert!(text.contains(word), "{word}:\n{text}");
        }
    }

    #[test]
    fn wide_terminals_show_what_a_state_means() {
        let mut state = state();
        assert!(drawn(&state, 200).contains("no_members: no member takes the events; start a consumer"));
        state.press(ratatui::crossterm::event::KeyCode::Tab.into());
        let text = drawn(&state, 200);
        assert!(text.contains("4.0 KiB") && text.contains("EVENTS"), "{text}");
    }
}
