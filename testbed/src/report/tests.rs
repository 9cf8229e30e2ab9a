use super::*;

fn record(outcome: Option<RunOutcome>) -> RunRecord {
    RunRecord {
        name: "first_try".to_owned(),
        weft_version: "0.1.0".to_owned(),
        commit: "0123abc".to_owned(),
        started_unix_s: 1_700_000_000,
        arguments: vec!["weft".to_owned(), "run".to_owned(), "digits.toml".to_owned()],
        seed: 7,
        configuration: serde_json::json!({"job": {"workers": 2}}),
        machine: Machine {
            cpu: "Example CPU".to_owned(),
            cpus: 2,
            kernel: "6.1.0".to_owned(),
            dpdk: Some("22.11.5".to_owned()),
            nics: vec!["eth0 (virtio_net)".to_owned()],
            load_average: [0.5, 0.25, 0.125],
        },
        outcome,
    }
}

pub(super) fn outcome() -> RunOutcome {
    RunOutcome {
        verdict: Verdict::Ok,
        reasons: vec!["degraded: no namespaces, so UDP on loopback".to_owned()],
        io_requested: "dpdk".to_owned(),
        io: "udp".to_owned(),
        worker_io: "af_packet".to_owned(),
        rounds: 4,
        rounds_per_second: Some(123.45),
        accuracy: Some(0.9721),
        model_identical: Some(true),
        model_sha256: Some("ab12".to_owned()),
        wrong_sums: Some(0),
        chunks_by_multicast: Some(0),
        chunks_aggregated: Some(1590),
        chunks_direct: Some(10),
        retransmissions: Some(3),
        duplicates_dropped: Some(2),
        bottleneck: Some("cpu".to_owned()),
        bottleneck_evidence: Some("workers busy 97 % of the time".to_owned()),
        seed: 7,
        surroundings: Surroundings::default(),
        push: None,
    }
}

fn rounds() -> Vec<RoundRow> {
    let times = [2_000_000, 2_100_000, 2_050_000, 9_000_000];
    let row = |(round, duration_ns)| RoundRow {
        round,
        start_ns: round * 10_000_000,
        duration_ns,
        loss: 0.1,
        ..RoundRow::default()
    };
    (0..).zip(times).map(row).collect()
}

fn transfers() -> Vec<TransferRow> {
    // Rank 1 starts 1, 2, 3 and 40 microseconds after rank 0, but in round 2 it is the first.
    let starts = [(0, [100, 200, 310, 400]), (1, [1_100, 2_200, 300, 40_400])];
    let mut rows = Vec::new();
    for (rank, starts) in starts {
        for (round, start_ns) in (0..).zip(starts) {
            rows.push(TransferRow { round, rank, start_ns, ..TransferRow::default() });
        }
    }
    rows
}

pub(super) fn finished() -> RunFiles {
    RunFiles {
        record: record(Some(outcome())),
        rounds: rounds(),
        transfers: transfers(),
        events: Vec::new(),
        updates: Vec::new(),
        commits: Vec::new(),
        replica: Vec::new(),
    }
}

fn write_run(directory: &std::path::Path) -> RunFiles {
    let events = vec![EventRow {
        t_ns: 5,
        event: "aggregator_restart".to_owned(),
        fields: serde_json::json!({"node": "a0"}).as_object().unwrap().clone(),
    }];
    let mut writer = RunWriter::create(directory, record(None)).unwrap();
    rounds().iter().for_each(|row| writer.round(row).unwrap());
    transfers().iter().for_each(|row| writer.transfer(row).unwrap());
    events.iter().for_each(|row| writer.event(row).unwrap());
    writer.finish(outcome()).unwrap();
    RunFiles { events, ..finished() }
}

#[test]
fn a_run_directory_is_read_back_as_written_and_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let written = write_run(&path);
    assert_eq!(RunFiles::read(&path).unwrap(), written);
    let again = RunWriter::create(&path, record(None)).unwrap_err();
    assert!(matches!(again, FilesError::Exists { .. }), "{again}");
}

#[test]
fn a_run_takes_an_empty_directory_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    drop(RunWriter::create(directory.path(), record(None)).unwrap());
    let notes = tempfile::tempdir().unwrap();
    std::fs::write(notes.path().join("rounds.csv"), "mine").unwrap();
    let refused = RunWriter::create(notes.path(), record(None)).unwrap_err();
    assert!(matches!(refused, FilesError::Exists { .. }), "{refused}");
    assert_eq!(std::fs::read(notes.path().join("rounds.csv")).unwrap(), b"mine");
    let file = RunWriter::create(&notes.path().join("rounds.csv"), record(None)).unwrap_err();
    assert!(matches!(file, FilesError::Io { .. }), "{file}");
}

#[test]
fn a_run_that_crashed_still_says_what_it_was() {
    let directory = tempfile::tempdir().unwrap();
    drop(RunWriter::create(directory.path(), record(None)).unwrap());
    let files = RunFiles::read(directory.path()).unwrap();
    assert_eq!(files.record, record(None));
    assert!(text(&Report::new(&files)).contains("the run did not end"));
}

#[test]
fn damage_is_named_by_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    write_run(&path);
    let damage = |name: &str, from: &str, to: &str| {
        let file = path.join(name);
        let good = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, good.replacen(from, to, 1)).unwrap();
        let message = RunFiles::read(&path).unwrap_err().to_string();
        std::fs::write(&file, good).unwrap();
        message
    };
    let message = damage("rounds.csv", "\n1,", "\none,");
    assert!(message.contains("rounds.csv") && message.contains("line: 3"), "{message}");
    let message = damage("transfers.csv", "rank", "worker");
    assert!(message.contains("transfers.csv") && message.contains("worker"), "{message}");
    let message = damage("events.jsonl", "{", "");
    assert!(message.contains("events.jsonl:1"), "{message}");
    let message = damage("run.json", "\"seed\": 7", "\"seed\": \"x\"");
    assert!(message.contains("run.json:"), "{message}");
    std::fs::remove_file(path.join("rounds.csv")).unwrap();
    assert!(RunFiles::read(&path).unwrap_err().to_string().contains("rounds.csv"));
}

#[test]
fn lag_is_measured_from_the_first_worker_of_each_round() {
    let rows = stragglers(&transfers());
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.rank, row.lag_ns.min, row.lag_ns.max, row.rounds_last))
        .collect();
    assert_eq!(found, [(0, 0, 10, 1), (1, 0, 40_000, 3)]);
    assert_eq!(stragglers(&transfers()[..4]), [], "one worker alone cannot lag");
}

#[test]
fn json_has_the_names_that_scripts_read() {
    let files = finished();
    let value = serde_json::to_value(Report::new(&files)).unwrap();
    for key in [
        "verdict",
        "io_requested",
        "io",
        "rounds",
        "accuracy",
        "model_identical",
        "model_sha256",
        "wrong_sums",
        "chunks_by_multicast",
        "chunks_aggregated",
        "chunks_direct",
        "retransmissions",
        "duplicates_dropped",
        "bottleneck",
        "seed",
    ] {
        assert!(value.get(key).is_some(), "{key} is missing");
    }
    assert_eq!(value["verdict"], "ok");
    assert_eq!(value["model_identical"], true);
    let metrics = metrics(&Report::new(&files));
    let value_of = |name: &str| &metrics.iter().find(|m| m.metric == name).unwrap().value;
    assert_eq!(value_of("stragglers.1.rounds_last"), "3");
    assert_eq!(value_of("round_time_ns.max"), "9000000");
}

/// A run that failed says which figures it has not, and none instead of them.
#[test]
fn what_was_not_compared_is_no_figure() {
    let mut files = finished();
    files.record.outcome = Some(RunOutcome {
        verdict: Verdict::Failed,
        accuracy: None,
        model_identical: None,
        model_sha256: None,
        wrong_sums: None,
        chunks_aggregated: None,
        chunks_by_multicast: None,
        chunks_direct: None,
        retransmissions: None,
        rounds: 0,
        rounds_per_second: None,
        duplicates_dropped: None,
        bottleneck: None,
        bottleneck_evidence: None,
        ..outcome()
    });
    let report = Report::new(&files);
    let text = text(&report);
    for line in [
        "accuracy  unknown",
        "model     not compared",
        "sums      not compared",
        "chunks    unknown: no worker came to its end",
        "rounds    0",
        "repeats   unknown retransmissions, unknown duplicates dropped",
        "limit     unknown: the run did not come to its end",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    }
    assert!(!text.contains("DIFFERS"), "{text}");
    let value = serde_json::to_value(&report).unwrap();
    for key in ["accuracy", "model_identical", "model_sha256", "wrong_sums", "chunks_aggregated"] {
        assert_eq!(value.get(key), Some(&serde_json::Value::Null), "{key}");
    }
    // Read back, it is still none.
    let outcome = files.record.outcome.clone().unwrap();
    let again = serde_json::from_value(serde_json::to_value(&outcome).unwrap()).unwrap();
    assert_eq!(outcome, again);
}

#[test]
fn the_text_report_reads_like_this() {
    let files = finished();
    let expected = "\
verdict   ok
          degraded: no namespaces, so UDP on loopback
name      first_try
io        udp (asked for dpdk), workers over af_packet
rounds    4, 123.5 per second
accuracy  0.9721 on held-out images
model     ab12 identical to the reference
sums      0 elements wrong
chunks    1590 aggregated (99.38 %), 10 direct
repeats   3 retransmissions, 2 duplicates dropped
limit     cpu: workers busy 97 % of the time
seed      7
";
    let found = text(&Report::new(&files));
    assert!(found.starts_with(expected), "{found}");
    for line in [
        "round times, 4 rounds: p50 2.05",
        "straggler lag behind the first worker of each round",
        "     1    1.000 us    40.00 us    40.00 us           3",
        "2 x Example CPU, Linux 6.1.0, DPDK 22.11.5, NIC eth0 (virtio_net), load 0.50 0.25 0.12",
    ] {
        assert!(found.contains(line), "{line:?} is missing in\n{found}");
    }
}

#[test]
fn the_picture_has_a_bar_for_every_bin() {
    let times: Vec<u64> = rounds().iter().map(|row| row.duration_ns).collect();
    let picture = round_times_svg("digits", &times).unwrap().unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("digits"), "{picture}");
    let bars = picture.matches("fill=\"#0072B2\"").count();
    assert_eq!(bars, bins(&times).len());
    assert_eq!(picture, round_times_svg("digits", &times).unwrap().unwrap());
    assert_eq!(round_times_svg("digits", &[]).unwrap(), None);
}

#[test]
fn what_surrounded_the_job_is_told() {
    let mut files = finished();
    let outcome = files.record.outcome.as_mut().unwrap();
    let flow = FlowRow {
        from: "w0".to_owned(),
        to: "server".to_owned(),
        rate_mbit: 20.0,
        begin_s: Some(1.5),
        end_s: Some(4.0),
        sent_mbit: 20.0,
        received_mbit: 15.25,
    };
    let late = FlowRow { begin_s: None, end_s: None, ..FlowRow::default() };
    let capture = CaptureRow {
        file: "a0.pcap".to_owned(),
        bytes: 2_500_000,
        frames: Some(3000),
        cut_frames: Some(12),
    };
    let hosts_ms = [("w0".to_owned(), 2.5)].into();
    outcome.surroundings = Surroundings {
        background: vec![flow, late],
        link_delay: Some(LinkDelay { by: "netem".to_owned(), hosts_ms }),
        captures: vec![
            capture,
            CaptureRow { file: "a0.life0.pcap".to_owned(), ..CaptureRow::default() },
        ],
        virtual_time: None,
    };
    let report = Report::new(&files);
    let found = text(&report);
    for expected in [
        "\nbackground traffic, Mbit/s of frames\nfrom  to",
        "\nw0    server  20         20.00  15.25    1.5 s  4.0 s\n",
        "0.00     -      -\n",
        "\nlink delay in each direction, by netem: w0 2.5 ms\n",
        "\ncaptures in the run directory\nfile           MB    frames  cut off\n",
        "\na0.pcap        2.50  3000    12\n",
        "\na0.life0.pcap  0.00  -       -\n",
    ] {
        assert!(found.contains(expected), "no {expected:?} in\n{found}");
    }
    let metrics = metrics(&report);
    let value_of = |name: &str| &metrics.iter().find(|m| m.metric == name).unwrap().value;
    assert_eq!(value_of("background.0.received_mbit"), "15.25");
    assert_eq!(value_of("link_delay.hosts_ms.w0"), "2.5");
    assert_eq!(
        (value_of("captures.0.cut_frames").as_str(), value_of("name").as_str()),
        ("12", "first_try")
    );
    // A run without them has no such keys, and records of earlier versions are read.
    let plain = serde_json::to_value(finished().record.outcome.unwrap()).unwrap();
    assert!(plain.get("background").is_none() && plain.get("captures").is_none());
    let read: RunOutcome = serde_json::from_value(plain).unwrap();
    assert_eq!(read.surroundings, Surroundings::default());
}

#[test]
fn a_run_whose_workers_change_is_known_by_its_configuration() {
    let mut record = record(None);
    assert!(!record.has_resizes());
    record.configuration = serde_json::json!({"resize": null});
    assert!(!record.has_resizes(), "a scenario that could have the section, and has not");
    record.configuration = serde_json::json!({"resize": {"word": []}});
    assert!(record.has_resizes());
}

#[test]
fn the_record_of_a_part_says_the_same_but_for_the_part() {
    let whole = record(Some(outcome()));
    let part: RunRecord = whole.of_part("first", 9, serde_json::json!({"name": "part"}));
    assert_eq!((part.title().as_str(), part.outcome.is_none()), ("first, seed 9", true));
    assert_eq!((&part.arguments, &part.machine), (&whole.arguments, &whole.machine));
}
