use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::{BandLine, DropLine, JobLine, LinkLine, QueueLine, StragglerLine};

fn view(workers: u32) -> View {
    let worker = |rank| StragglerLine {
        job: "ps0".to_owned(),
        rank,
        host: format!("w{rank}"),
        is_attached: true,
        ..StragglerLine::default()
    };
    View {
        uptime_s: 12.0,
        jobs: vec![JobLine {
            job: "ps0".to_owned(),
            state: "running".to_owned(),
            version: 41,
            commits_per_s: Some(7.5),
            is_server_attached: true,
            ..JobLine::default()
        }],
        links: vec![LinkLine { host: "ps".to_owned(), up_mbit: 100.0, ..LinkLine::default() }],
        stragglers: (0..workers).map(worker).collect(),
        ..View::default()
    }
}

fn drawn(view: &View, (width, height): (u16, u16), problem: Option<&str>) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer");
    terminal.draw(|frame| draw(frame, view, "https://c:1", problem)).expect("it draws");
    let buffer = terminal.backend().buffer().clone();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(line).collect()
}

#[test]
fn every_section_with_lines_is_on_the_screen() {
    let lines = drawn(&view(2), (80, 24), None);
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(lines[0].starts_with("weft top  https://c:1  up 12 s"), "{}", lines[0]);
    for text in ["jobs", "links", "stragglers", "running", "41", "7.5", "100.0", "w0", "w1"] {
        assert!(has(text), "{text}: {lines:#?}");
    }
    // There are no bands, groups or drops.
    assert!(!has("bands") && !has("groups") && !has("drops"), "{lines:#?}");
    assert!(lines[23].starts_with("q: quit"), "{lines:#?}");
}

#[test]
fn a_small_screen_shows_the_first_lines_and_says_how_many_it_hides() {
    let lines = drawn(&view(60), (80, 20), Some("it is gone"));
    let all = lines.join("\n");
    assert!(all.contains("running") && all.contains("100.0") && all.contains("w0"), "{all}");
    // 18 lines for three sections: 3 for the job, 3 for the link, 12 for the rest.
    assert!(all.contains("stragglers (+50)"), "{all}");
    assert!(lines[19].starts_with("OLD: it is gone"), "{all}");
}

#[test]
fn a_screen_of_no_size_is_no_reason_to_fail() {
    for size in [(1, 1), (10, 2), (80, 4), (200, 3)] {
        drawn(&view(60), size, None);
    }
}

#[test]
fn what_boxes_drop_and_what_waits_in_them_is_on_the_screen() {
    let job = |job: &str, band, band_boxes_awaited| JobLine {
        job: job.to_owned(),
        band: Some(band),
        band_boxes_awaited,
        ..JobLine::default()
    };
    let line = |job: &str, node: &str, what: &str, count| DropLine {
        job: job.to_owned(),
        node: node.to_owned(),
        what: what.to_owned(),
        count,
    };
    let view = View {
        jobs: vec![job("ps0", 0, 0), job("ps1", 1, 2)],
        bands: vec![
            BandLine { band: 0, jobs: vec!["ps0".to_owned()] },
            BandLine { band: 1, jobs: vec!["ps1".to_owned()] },
        ],
        queues: vec![QueueLine {
            node: "s0".to_owned(),
            band: "1".to_owned(),
            sent: 4242,
            sent_mbit: Some(9.75),
            full: 17,
            waiting: 61,
            waiting_bytes: 66_300,
            oldest_ms: 12.5,
            wait_max_ms: 99.5,
            ..QueueLine::default()
        }],
        drops: vec![
            line("", "s0", "stale_epoch", 31),
            line("", "s0", "length", 8),
            line("", "", "telemetry", 5),
        ],
        ..View::default()
    };
    let lines = drawn(&view, (160, 40), None);
    let row = |words: &[&str]| {
        let has = |line: &&String| words.iter().all(|word| line.contains(word));
        assert!(lines.iter().any(|line| has(&line)), "{words:?}: {lines:#?}");
    };
    row(&["s0", "length: from a veth", "`ethtool -K DEV tx off gso off tso off gro off`"]);
    row(&["queues"]);
    row(&["box", "band", "sends", "frames", "lost", "waiting", "oldest", "longest"]);
    row(&["s0", "1", "9.8 Mb/s", "4242", "17", "61 (66.3 kB)", "12.5 ms", "99.5 ms"]);
    row(&["drops"]);
    row(&["s0", "stale_epoch", "31"]);
    row(&["(controller)", "telemetry", "5"]);
    row(&["1", "ps1 (2 to answer)"]);
    assert!(!lines.iter().any(|line| line.contains("ps0 (")), "{lines:#?}");
}
