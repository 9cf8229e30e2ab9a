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
        refused: [("telemetry".to_owned(), 4)].into(),
        ..v1::StatusReply::default()
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
    let drops: Vec<_> =
        view.drops.iter().map(|line| (line.job.as_str(), line.what.as_str(), line.count)).collect();
    assert_eq!(drops, [("ps0", "dropped", 2), ("", "telemetry", 4)]);
    let link = &view.links[0];
    assert!((link.up_mbit - 100.0).abs() < 1e-9, "{link:?}");
    assert_eq!((link.sent_mbit, link.received_mbit), (Some(10.0), None));
    assert_eq!(view.groups[0].via, "a1");
    assert_eq!(view.bands, [BandLine { band: 2, jobs: vec!["ps0".to_owned()] }]);
}
