//! Draws the view on a screen: every section with the lines that it has room for, and how many it
//! has no room for. Pure: into a buffer.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};

use super::view::View;
use super::words::{Section, sections};

/// Draws the view; `problem` says why it is an old one.
pub fn draw(frame: &mut Frame<'_>, view: &View, endpoint: &str, problem: Option<&str>) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let title = format!("weft top  {endpoint}  up {:.0} s  {} plans", view.uptime_s, view.plans);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(Line::styled(title, bold)), head);
    let shown: Vec<Section> =
        sections(view).into_iter().filter(|(_, _, rows)| !rows.is_empty()).collect();
    let rows = shown.iter().map(|(_, _, rows)| rows.len()).collect::<Vec<_>>();
    let heights = share(&rows, body.height);
    let areas = Layout::vertical(heights.iter().map(|lines| Constraint::Length(*lines)));
    let areas = areas.split(body);
    for ((section, area), lines) in shown.iter().zip(areas.iter()).zip(&heights) {
        if *lines >= FRAME_LINES {
            draw_section(frame, section, *area);
        }
    }
    let foot_line = problem.map_or_else(|| "q: quit".to_owned(), |why| format!("OLD: {why}"));
    frame.render_widget(Paragraph::new(foot_line), foot);
}

fn draw_section(frame: &mut Frame<'_>, (title, head, rows): &Section, area: Rect) {
    let room = usize::from(area.height.saturating_sub(FRAME_LINES));
    let hidden = rows.len().saturating_sub(room);
    let title = if hidden == 0 { (*title).to_owned() } else { format!("{title} (+{hidden})") };
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let most = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        u16::try_from(most.max(head[column].len())).unwrap_or(u16::MAX)
    };
    let widths = (0..head.len()).map(|column| Constraint::Length(width(column)));
    let cells = |row: &Vec<String>| Row::new(row.iter().cloned().map(Cell::from));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let table = Table::new(rows.iter().take(room).map(cells), widths)
        .header(Row::new(head.iter().copied().map(Cell::from)).style(bold))
        .column_spacing(2)
        .block(Block::new().borders(Borders::TOP).title(title));
    frame.render_widget(table, area);
}

/// Lines of each section: what it needs, as far as there is room; where there is too little, the
/// longest give first.
fn share(rows: &[usize], height: u16) -> Vec<u16> {
    let need = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(FRAME_LINES);
    let mut lines: Vec<u16> = rows.iter().map(|rows| need(*rows)).collect();
    let mut over = lines.iter().map(|lines| u32::from(*lines)).sum::<u32>();
    while over > u32::from(height) {
        let Some(longest) = lines.iter_mut().max() else { break };
        if *longest <= FRAME_LINES + 1 {
            break;
        }
        *longest -= 1;
        over -= 1;
    }
    lines
}

/// Of a section without its rows: its title and its head.
const FRAME_LINES: u16 = 2;

#[cfg(test)]
mod tests;
