use super::*;

fn status(uptime_s: u64, committed: u64) -> v1::StatusReply {
    let worker = |rank, lag_ms: u64, is_attached| v1::WorkerStatus {
        rank,
        host: format!("w{rank}"),
        is_attached,
        lag_mean_ns: lag_ms * 1_000_000,
        ..v1::WorkerStatus::default()
    };
    let job = v1::JobStatus {
        name: "ps0".to_owned(),
        job: 3,
        committed,
        dropped: 2,
        band: Some(2),
        state: v1::JobState::Paused.into(),
        granted: 8,
        aggregated: 6,
        workers: vec![worker(0, 5, true), worker(1, 40, true), worker(2, 0, false)],
        groups: vec![v1::GroupStatus { order: 7, via: Some(1), ..v1::GroupStatus::default() }],
        ..v1::JobStatus::default()
    };
    v1::StatusReply {
        uptime_ns: uptime_s * 1_000_000_000,
        jobs: vec![job],
        hosts: vec![v1::HostStatus {
            name: "ps".to_owned(),
            up_bytes_per_sec: 12_500_000,
            sent_bytes_per_sec: Some(1_250_000),
            ..v1::HostStatus::default()
        }],
        nodes: vec![v1::NodeStatus {
            name: "s0".to_owned(),
            drops: [(v1::FrameDrop::StaleEpoch.into(), 7), (9999, 3)]
                .map(|(reason, frames)| v1::FrameDrops { reason, frames })
                .into(),
            rx_dropped: 5,
            bands: (0..9).map(|queue| band(queue, uptime_s)).collect(),
            ..v1::NodeStatus::default()
        }],
        refused: [("telemetry".to_owned(), 4)].into(),
        ..v1::StatusReply::default()
    }
}

/// Of the queues only 1 and that of bare frames ever had a frame.
fn band(queue: u32, uptime_s: u64) -> v1::BandFrames {
    let is_used = u64::from([1, 8].contains(&queue));
    v1::BandFrames {
        queue,
        sent: is_used * uptime_s,
        sent_bytes: is_used * uptime_s * 1_000_000,
        full: u64::from(queue == 1) * 2,
        wait_max_ns: is_used * 4_500_000,
        waiting: u64::from(queue == 1) * 6,
        waiting_bytes: u64::from(queue == 1) * 6000,
        oldest_ns: u64::from(queue == 1) * 1_500_000,
        ..v1::BandFrames::default()
    }
}

#[test]
fn rates_are_of_two_readings_of_one_life() {
    let rate = |now: &v1::StatusReply, before| View::new(now, before).jobs[0].commits_per_s;
    let (first, second) = (status(10, 100), status(12, 130));
    assert_eq!(rate(&second, Some(&first)), Some(15.0));
    assert_eq!(rate(&second, None), None);
    // It began anew: what it counted before says nothing.
    assert_eq!(rate(&first, Some(&second)), None);
}

#[test]
fn the_latest_worker_is_first_and_what_did_not_happen_is_not_shown() {
    let view = View::new(&status(10, 100), None);
    let ranks: Vec<u32> = view.stragglers.iter().map(|line| line.rank).collect();
    assert_eq!(ranks, [1, 0, 2]);
    let job = &view.jobs[0];
    assert_eq!((job.workers, job.workers_attached, job.state.as_str()), (3, 2, "paused"));
    assert!((job.aggregated_share - 0.75).abs() < 1e-12);
    let drops: Vec<_> = view
        .drops
        .iter()
        .map(|line| (line.job.as_str(), line.node.as_str(), line.what.as_str(), line.count))
        .collect();
    let expected = [
        ("ps0", "", "dropped", 2),
        ("", "s0", "stale_epoch", 7),
        ("", "s0", "other", 3),
        ("", "s0", "rx_dropped", 5),
        ("", "s0", "band_1_full", 2),
        ("", "", "telemetry", 4),
    ];
    assert_eq!(drops, expected);
    let link = &view.links[0];
    assert!((link.up_mbit - 100.0).abs() < 1e-9, "{link:?}");
    assert_eq!((link.sent_mbit, link.received_mbit), (Some(10.0), None));
    assert_eq!(view.groups[0].via, "a1");
    assert_eq!(view.bands, [BandLine { band: 2, jobs: vec!["ps0".to_owned()] }]);
}

#[test]
fn queues_that_had_a_frame_are_shown_with_what_they_send_between_two_readings() {
    let view = View::new(&status(12, 130), Some(&status(10, 100)));
    let first = QueueLine {
        node: "s0".to_owned(),
        band: "1".to_owned(),
        sent: 12,
        sent_bytes: 12_000_000,
        sent_mbit: Some(8.0),
        full: 2,
        aged: 0,
        wait_max_ms: 4.5,
        waiting: 6,
        waiting_bytes: 6000,
        oldest_ms: 1.5,
    };
    assert_eq!(view.queues[0], first);
    assert_eq!((view.queues.len(), view.queues[1].band.as_str()), (2, "bare"));
    assert_eq!(View::new(&status(12, 130), None).queues[0].sent_mbit, None);
}
