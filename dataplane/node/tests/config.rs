//! The configuration file: every class of error names file, line and field; what is printed reads
//! back as the same; every recipe is good.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weft_config::node::{Elements, NodeConfig};
use weft_config::{ConfigError, ConfigFile, to_toml};
use weft_engine::table::push_slot_count;
use weft_lane::Settings;
use weft_node::config;
use weft_node::error::NodeError;

const GOOD: &str = r#"[node]
name = "n"
[port]
io = "udp"
ip = "10.0.0.1/24"
[lcores]
shards = 2
[[job]]
id = 3
[[row]]
row = 7
job = 3
window = 64
members = ["10.0.0.2:4000", { addr = "10.0.0.3:4000", weight = 1 }]
"#;

fn parse(name: &str, text: &str) -> Result<Settings, ConfigError> {
    config::parse(&ConfigFile::new(name, text))
}

/// `good` with `from` replaced by `to` is refused in one line, which begins as expected.
fn assert_refused(good: &str, cases: &[(&str, &str, &str)]) {
    for (from, to, expected) in cases {
        assert!(good.contains(from), "{from}");
        let error = match parse("node.toml", &good.replacen(from, to, 1)) {
            Ok(_) => panic!("`{to}` was accepted"),
            Err(error) => error.to_string(),
        };
        assert!(error.starts_with(expected), "`{to}` gave\n  {error}\nexpected\n  {expected}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
}

/// What is printed reads back as the same.
fn assert_prints_itself(text: &str) {
    let first = parse("a.toml", text).expect("it is good");
    let again = parse("b.toml", &to_toml(&first.config)).expect("what was printed is good");
    assert_eq!(first.config, again.config);
    assert_eq!(first.table, again.table);
}

#[test]
fn errors_name_file_line_and_field() {
    let cases = [
        // Bad TOML has no field.
        ("shards = 2", "shards = ", "node.toml:7: "),
        // Unknown keys and sections.
        ("window = 64", "windo = 64", "node.toml:13: row[0].windo: unknown field `windo`"),
        ("[lcores]", "[lcore]", "node.toml:6: lcore: unknown field `lcore`"),
        ("weight = 1", "wait = 1", "node.toml:14: row[0].members[1].wait: unknown field `wait`"),
        // What would let nobody in.
        (
            "[lcores]",
            "[strangers]\nrate_bytes_per_sec = 0\n[lcores]",
            "node.toml:7: strangers.rate_bytes_per_sec: must be positive",
        ),
        (
            "[lcores]",
            "[strangers]\nburst_bytes = 2047\n[lcores]",
            "node.toml:7: strangers.burst_bytes: must hold at least one frame",
        ),
        // Wrong types, bad values.
        ("shards = 2", "shards = \"two\"", "node.toml:7: lcores.shards: invalid type"),
        ("shards = 2", "shards = -1", "node.toml:7: lcores.shards: invalid value"),
        ("io = \"udp\"", "io = \"tcp\"", "node.toml:4: port.io: unknown variant `tcp`"),
        ("10.0.0.1/24", "10.0.0/24", "node.toml:5: port.ip: expected an address"),
        ("10.0.0.1/24", "10.0.0.1/33", "node.toml:5: port.ip: a prefix"),
        ("10.0.0.1/24", "0.0.0.0/24", "node.toml:5: port.ip: `0.0.0.0/24` is no address"),
        (
            "\"10.0.0.2:4000\"",
            "\"10.0.0.2\"",
            "node.toml:14: row[0].members[0]: expected \"ip:port\"",
        ),
        // What this crate decides.
        ("io = \"udp\"", "io = \"udp\"\nmtu = 500", "node.toml:5: port.mtu: must be at least 576"),
        ("io = \"udp\"", "io = \"udp\"\nudp_port = 0", "node.toml:5: port.udp_port: must be"),
        ("shards = 2", "shards = 2\ncpus = [1]", "node.toml:8: lcores.cpus: must name one CPU"),
        ("[lcores]", "[idle]\npause_min_us = 0\n[lcores]", "node.toml:7: idle.pause_min_us: must"),
        ("[lcores]", "[faults]\nloss = 1.5\n[lcores]", "node.toml:7: faults.loss: must be a prob"),
        ("10.0.0.3:4000", "10.0.0.3:4001", "node.toml:14: row[0].members: UDP source port 4001"),
        (
            "window = 64",
            "window = 64\nparent = { addr = \"10.0.0.9:1\", row = 0, rank = 64 }",
            "node.toml:14: row[0].parent.rank: must be from 0 to 63",
        ),
        (
            "window = 64",
            "window = 64\nparent = { addr = \"10.0.0.9:1\", row = 0, rank = 0, source_port = 9 }",
            "node.toml:14: row[0].parent.source_port: must be port.udp_port",
        ),
        // What the table decides.
        ("shards = 2", "shards = 3", "node.toml:7: lcores.shards: must be a power of two"),
        ("window = 64", "window = 65", "node.toml:13: row[0].window: must be a power of two"),
        ("window = 64", "elements = 400", "node.toml:13: row[0].elements: must be at least 1 and"),
        (
            "window = 64",
            "operation = \"max\"\nelement_type = \"f32\"",
            "node.toml:13: row[0].operation",
        ),
        ("window = 64", "sum_order = \"rank\"", "node.toml:13: row[0].sum_order: rank is for f32"),
        (
            "window = 64",
            "exponent = -128",
            "node.toml:13: row[0].exponent: must be from -126 to 126",
        ),
        (
            "window = 64",
            "exponent = 127",
            "node.toml:13: row[0].exponent: must be from -126 to 126",
        ),
        ("window = 64", "fan_in = 1", "node.toml:13: row[0].fan_in: must be at least"),
        ("weight = 1", "weight = 0", "node.toml:14: row[0].members: weight must be at least 1"),
        ("job = 3", "job = 4", "node.toml:12: row[0].job: names no job"),
        ("id = 3", "id = 300", "node.toml:9: job[0].id: must be below 256"),
        ("id = 3", "id = 3\nslots_max = 8", "node.toml:10: job[0].slots_max: is smaller"),
        ("id = 3", "id = 3\n[[job]]\nid = 3", "node.toml:11: job[1].id: is already taken"),
        ("id = 3", "id = 3\nrate_bytes_per_sec = 0", "node.toml:10: job[0].rate_bytes_per_sec"),
        ("10.0.0.3:4000", "[fe80::1]:4000", "node.toml:14: row[0].members: must be of the box's"),
        (
            "io = \"udp\"",
            "io = \"udp\"\nudp_port = 65535",
            "node.toml:5: port.udp_port: needs a port",
        ),
        // A key that is missing is placed at its section.
        ("row = 7", "row = 2000", "node.toml:11: row[0].row: must be below 1024"),
        ("row = 7\n", "", "node.toml:10: row[0]: missing field `row`"),
        ("ip = \"10.0.0.1/24\"\n", "", "node.toml:3: port: missing field `ip`"),
    ];
    assert_refused(GOOD, &cases);
}

const PUSH: &str = r#"[port]
io = "udp"
ip = "10.0.0.1/24"
[lcores]
shards = 1
[[job]]
id = 3
[[push]]
job = 5
workers = ["10.0.0.2:4000", "10.0.0.3:4000"]
server = "10.0.0.4:22341"
replica = "10.0.0.5:22341"
chunks = 100
elements = 16
quota_bytes = 8000
"#;

#[test]
fn push_jobs_are_judged_like_the_rest() {
    let settings = parse("a.toml", PUSH).expect("it is good");
    assert_eq!(push_slot_count(&settings.table.pushes[0]), 100);
    assert_eq!(settings.table.pushes[0].workers.len(), 2);
    assert_prints_itself(PUSH);
    let cases = [
        ("chunks = 100", "chunk = 100", "node.toml:13: push[0].chunk: unknown field `chunk`"),
        ("id = 3", "id = 5", "node.toml:9: push[0].job: is a [[job]] too"),
        ("job = 5", "job = 256", "node.toml:9: push[0].job: must be below 256"),
        ("job = 5", "job = 5\nbox_index = 64", "node.toml:10: push[0].box_index: must be below"),
        (
            "workers = [\"10.0.0.2:4000\", \"10.0.0.3:4000\"]",
            "workers = []",
            "node.toml:10: push[0].workers: must be 1",
        ),
        ("10.0.0.3:4000", "10.0.0.2:4000", "node.toml:10: push[0].workers: must have an address"),
        ("10.0.0.3:4000", "[fe80::1]:4000", "node.toml:10: push[0].workers: must be of the box's"),
        ("10.0.0.5:22341", "10.0.0.4:22341", "node.toml:11: push[0].server: must have an address"),
        ("chunks = 100", "chunks = 101", "node.toml:15: push[0].quota_bytes: must hold one update"),
        ("chunks = 100", "chunks = 0", "node.toml:13: push[0].chunks: must be from 1"),
        ("elements = 16", "elements = 400", "node.toml:14: push[0].elements: must be at least 1"),
        (
            "elements = 16",
            "elements = 16\nelement_type = \"bf16\"",
            "node.toml:15: push[0].element_type: must be i32 or f32; bf16 is for allreduce",
        ),
        (
            "elements = 16",
            "elements = 16\nexponent = -127",
            "node.toml:15: push[0].exponent: must be from -126 to 126",
        ),
        (
            "elements = 16",
            "elements = 16\npull_cache_bytes = 63",
            "node.toml:15: push[0].pull_cache_bytes: must hold",
        ),
        ("elements = 16", "elements = 16\nrate_bytes_per_sec = 0", "node.toml:15: push[0].rate_b"),
        (
            "elements = 16",
            "elements = 16\nrate_bytes_per_sec = 9\nburst_bytes = 9",
            "node.toml:16: push[0].burst_bytes: must hold",
        ),
    ];
    assert_refused(PUSH, &cases);
}

/// What no memory holds is refused with its key before it is taken: a node aborted or stood still.
#[test]
fn counts_that_no_memory_holds_are_refused() {
    let of_port = |line: &str| GOOD.replacen("io = \"udp\"", &format!("io = \"udp\"\n{line}"), 1);
    let of_lanes = |line: &str| GOOD.replacen("shards = 2", &format!("shards = 2\n{line}"), 1);
    let of_row = |lines: &str| GOOD.replacen("window = 64", lines, 1);
    let of_push = |line: &str| PUSH.replacen("quota_bytes = 8000", line, 1);
    let end = |section: &str| format!("{GOOD}{section}");
    let server = |line: &str| {
        format!(
            "[port]\nio = \"udp\"\nip = \"10.0.0.1/24\"\n[[server]]\njob = 1\n\
             workers = [\"10.0.0.2:4000\"]\ndimension = 100\n{line}\n"
        )
    };
    let huge = "9223372036854775807";
    let cases = [
        (of_port("frame_count = 1048577"), 5, "port.frame_count: must be at most 1048576"),
        (of_port(&format!("frame_count = {huge}")), 5, "port.frame_count: must be at most"),
        (
            of_port("mtu = 65535\nframe_count = 200000"),
            6,
            "port.frame_count: makes 26219600000 bytes of frames",
        ),
        (of_port("ring_bytes = 1073741825"), 5, "port.ring_bytes: must be at most 1073741824"),
        (
            of_port("socket_buffer_bytes = 1073741825"),
            5,
            "port.socket_buffer_bytes: must be at most 1073741824",
        ),
        (of_lanes("ring_frames = 1048577"), 8, "lcores.ring_frames: must be at most 1048576"),
        (end("[dpdk]\nmbuf_count = 1048577\n"), 16, "dpdk.mbuf_count: must be at most 1048576"),
        (end("[dpdk]\nmemory_mib = 1048577\n"), 16, "dpdk.memory_mib: must be at most 1048576"),
        (
            end("[bench]\nmode = \"replay\"\nframes = 1048577\n"),
            17,
            "bench.frames: must be at most 1048576",
        ),
        (
            end("[arena]\nleases = 1000\nlease_bytes = 4294967296\n"),
            17,
            "arena.lease_bytes: makes more than 2^40 bytes",
        ),
        (
            end("[arena]\npushes = 8\npush_bytes = 274877906944\n"),
            17,
            "arena.push_bytes: makes more than 2^40 bytes",
        ),
        (of_push(&format!("quota_bytes = {huge}")), 15, "push[0].quota_bytes: must be at most"),
        (
            of_push(&format!("pull_cache_bytes = {huge}")),
            15,
            "push[0].pull_cache_bytes: must be at most",
        ),
        (
            server(&format!("staging_bytes_max = {huge}")),
            8,
            "server[0].staging_bytes_max: must be at most",
        ),
        (
            server(&format!("log_entries_max = {huge}")),
            8,
            "server[0].log_entries_max: must be from 1 to 2^20",
        ),
        (server(&format!("log_bytes_max = {huge}")), 8, "server[0].log_bytes_max: must be at most"),
        (
            of_row("window = 4096\nelements = 8192\nelement_type = \"f32\"\nsum_order = \"rank\"")
                .replacen("io = \"udp\"", "io = \"udp\"\nmtu = 65535", 1)
                .replacen("\"10.0.0.2:4000\"", &many_members(40), 1),
            14,
            "row[0].window: makes slots of more than 2^32 bytes",
        ),
    ];
    for (text, line, expected) in cases {
        let error = match parse("node.toml", &text) {
            Ok(_) => panic!("accepted; expected {expected}"),
            Err(error) => error.to_string(),
        };
        let expected = format!("node.toml:{line}: {expected}");
        assert!(error.starts_with(&expected), "gave\n  {error}\nexpected\n  {expected}");
    }
    // The largest that is taken.
    let text = of_port("frame_count = 1048576\nring_bytes = 1073741824");
    assert!(parse("node.toml", &text).is_ok());
}

fn many_members(count: u8) -> String {
    let members = (0..count).map(|index| format!("\"10.0.1.{index}:4000\""));
    members.collect::<Vec<_>>().join(", ")
}

#[test]
fn words_are_those_of_the_manual() {
    for (key, word) in [
        ("learning_rate", "plain"),
        ("learning_rate", "inverse_delay"),
        ("learning_rate", "ada_delay"),
        ("commit", "order"),
        ("commit", "arrival"),
        ("conduct", "in_order"),
        ("conduct", "fair"),
        ("integrity", "crc32c"),
        ("integrity", "none"),
    ] {
        let text = format!(
            "[port]\nio = \"udp\"\nip = \"10.0.0.1/24\"\n[[server]]\njob = 1\n\
             workers = [\"10.0.0.2:4000\"]\ndimension = 100\n{key} = \"{word}\"\n"
        );
        let settings = parse("a.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let printed = to_toml(&settings.config);
        assert!(printed.contains(&format!("{key} = \"{word}\"")), "{printed}");
    }
}

#[test]
fn what_is_printed_reads_back_as_the_same() {
    let with_all = GOOD.replace(
        "[lcores]",
        "[faults]\nloss = 0.02\nseed = 7\n[trace]\npcap = \"a.pcap\"\n[dpdk]\nallow = [\"0000:01:00.0\"]\n\
         lcores = \"0@1\"\n[lcores]",
    );
    for text in [GOOD, &with_all] {
        assert_prints_itself(text);
    }
}

#[test]
fn defaults_are_as_documented() {
    let settings = parse("a.toml", GOOD).expect("it is good");
    let NodeConfig { port, dpdk, row, job, .. } = &settings.config;
    assert_eq!((port.udp_port, port.mtu), (22341, 1500));
    assert_eq!((dpdk.memory_mib, dpdk.rx_descriptors, dpdk.mbuf_count), (256, 512, 2048));
    assert_eq!((row[0].elements, row[0].fan_in), (Elements::Count(256), Some(2)));
    assert_eq!((job[0].slots_max, job[0].burst_bytes), (4096, 1 << 20));
    assert_eq!(settings.udp_sockets, 2, "one per lane");
}

#[test]
fn a_missing_file_is_named() {
    let error = config::load(Path::new("/nonexistent/node.toml")).unwrap_err();
    assert!(matches!(error, NodeError::Unreadable { .. }));
    assert!(error.to_string().starts_with("reading /nonexistent/node.toml: "), "{error}");
}

fn weft_node(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft-node")).args(args).output().expect("weft-node runs")
}

fn recipes() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let files = std::fs::read_dir(folder).expect("the recipes are there");
    files.map(|file| file.expect("a readable folder").path()).collect()
}

#[test]
fn every_recipe_is_good() {
    let recipes = recipes();
    assert!(recipes.len() >= 7, "{recipes:?}");
    for recipe in recipes {
        let path = recipe.to_str().expect("the path is UTF-8");
        let output = weft_node(&["--config", path, "--check-config"]);
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        let printed = weft_node(&["--config", path, "--print-config"]).stdout;
        let printed = String::from_utf8(printed).expect("TOML is UTF-8");
        let original = std::fs::read_to_string(&recipe).expect("the recipe is readable");
        let (one, other) = (parse(path, &original), parse("printed", &printed));
        assert_eq!(one.expect("good").config, other.expect("good").config, "{path}");
    }
}

#[test]
fn usage_and_configuration_errors_exit_with_2_and_say_one_line() {
    assert_eq!(weft_node(&[]).status.code(), Some(2));
    assert_eq!(weft_node(&["--config", "x", "--nonsense"]).status.code(), Some(2));
    let output = weft_node(&["--config", "/nonexistent.toml", "--check-config"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("weft-node: reading /nonexistent.toml"), "{stderr}");
}

#[test]
fn the_version_names_commit_and_features() {
    let output = weft_node(&["--version"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let features = if cfg!(feature = "dpdk") { "features: dpdk" } else { "features: none" };
    assert!(text.starts_with("weft-node 0.") && text.contains("(commit "), "{text}");
    assert!(text.contains(features), "{text}");
}

#[test]
fn a_bench_is_for_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.toml");
    std::fs::write(&path, format!("{GOOD}[bench]\nmode = \"loop\"\n")).unwrap();
    let output = weft_node(&["--config", &path.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("start weft-bench with it"), "{said}");
}
