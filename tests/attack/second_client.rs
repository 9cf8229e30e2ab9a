//! The second client (`proto/clients/python`, written from SPEC alone) beside this one: its own
//! tests, groups of both, and a hostile client made of it against a box with an honest job.
//!
//! `WEFT_ATTACK_SCALE=20` lies and floods twenty times as much. Needs python3 of 3.11 or later, else
//! SKIPPED; forged addresses need root.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use weft_client::{Config, Numbers, Session};
use weft_tests::live::durable::scale;
use weft_tests::live::node::{self, Node};
use weft_tests::live::{program, skip, together};

const LEN: usize = 64 * 21 + 5;
const ROUNDS: u32 = 8;
/// The member that the other client is.
const OTHER: u8 = 1;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// python3 with the second client on its path; says SKIPPED where there is none.
fn python(test: &str) -> Option<Command> {
    let recent = "import sys; sys.exit(sys.version_info < (3, 11))";
    let found = Command::new("python3").args(["-c", recent]).status();
    if !found.is_ok_and(|status| status.success()) {
        skip(test, "needs python3, 3.11 or later");
        return None;
    }
    let mut command = Command::new("python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PYTHONPATH", repository().join("proto/clients/python"));
    Some(command)
}

#[test]
fn the_second_client_keeps_what_the_specification_promises() {
    let Some(mut python) = python("the_second_client_keeps_what_the_specification_promises") else {
        return;
    };
    let status = python
        .args(["-m", "unittest", "discover", "--verbose", "-t", "."])
        .current_dir(repository().join("proto/clients/python"))
        .env("WEFT_NODE", program("weft-node"))
        .status();
    assert!(status.expect("python3 runs").success());
}

/// A member's integers in a round.
fn integers(rank: u8, round: u32) -> Vec<i32> {
    let mut state = u32::from(rank) << 24 | round;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.cast_signed()
    };
    std::iter::repeat_with(next).take(LEN).collect()
}

/// Finite numbers whose sums depend on the order of addition.
fn floats(rank: u8, round: u32) -> Vec<f32> {
    let float = |word: i32| f32::from_bits(word.cast_unsigned() & 0x83ff_ffff | 0x3800_0000);
    integers(rank, round).into_iter().map(float).collect()
}

/// Rank 1 of 3 is the second client, and the others this one; all get the same sums, which are
/// returned.
fn mixed(
    python: Command,
    node: &Node,
    options: &[&str],
    lanes: u16,
    numbers: Option<Numbers>,
) -> Value {
    let is_integer = options.contains(&"i32");
    let rounds = |rank| -> Value {
        let vector = |round| match is_integer {
            true => json!(integers(rank, round)),
            false => json!(floats(rank, round)),
        };
        (0..ROUNDS).map(vector).collect()
    };
    let python = Mutex::new(Some(python));
    let sums = together(3, |rank| {
        if rank == OTHER {
            let mut python = python.lock().expect("no panic").take().expect("one member");
            return other(&mut python, node, options, &rounds(rank));
        }
        let mut config: Config = node.client(0, 0, rank).lanes(lanes);
        if let Some(numbers) = numbers {
            config = config.numbers(numbers);
        }
        let mut session = Session::connect(&config).expect("joins");
        let sums = (0..ROUNDS)
            .map(|round| {
                if is_integer {
                    let mut values = integers(rank, round);
                    session.allreduce_i32(&mut values).expect("a sum");
                    return json!(values);
                }
                let mut values = floats(rank, round);
                session.allreduce(&mut values).expect("a sum");
                json!(values)
            })
            .collect();
        assert!(session.close().expect("the port is open"), "all close");
        sums
    });
    assert!(sums[0] == sums[2]);
    assert!(sums[0] == sums[usize::from(OTHER)], "the two clients read another sum");
    sums[0].clone()
}

/// The second client's sums.
fn other(python: &mut Command, node: &Node, options: &[&str], vectors: &Value) -> Value {
    let (local, addr) = (node.member(0, OTHER).to_string(), node.addr().to_string());
    let mut child = python
        .args(["-m", "weft_client", &local, &addr, &OTHER.to_string(), "--in", "-"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(vectors.to_string().as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output.status);
    let sum = |line: &str| -> Value {
        let line: Value = serde_json::from_str(line).expect("JSON");
        // As this client's: an f64 that is the f32 exactly.
        line["sum"].clone()
    };
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(sum).collect()
}

/// The sums of `integers`, modulo 2^32.
fn integer_sums() -> Value {
    (0..ROUNDS)
        .map(|round| {
            let sums = (0..LEN).map(|index| {
                (0..3).fold(0_i32, |sum, rank| sum.wrapping_add(integers(rank, round)[index]))
            });
            json!(sums.collect::<Vec<_>>())
        })
        .collect()
}

const SMALL: &str = "elements = 64\nwindow = 16\n";
const LOSS: &str = "[faults]\nseed = 3\nloss = 0.1";

#[test]
fn both_clients_in_one_group_with_loss_lanes_and_a_lease_that_runs_out() {
    let test = "both_clients_in_one_group_with_loss_lanes_and_a_lease_that_runs_out";
    let Some(python) = python(test) else { return };
    // 22 chunks a round: 66 last for three.
    let row = format!("{SMALL}exponent = 0\nchunks_max = 66");
    let config = node::Config::new(2).section(LOSS).job(0, "").row(0, 0, 3, &row);
    let node = Node::start(&config);
    assert!(mixed(python, &node, &["--numbers", "i32"], 2, None) == integer_sums());
    // Two lanes, and three leases one after another.
    assert_eq!(node.end()["formations"], 2 * 3);
}

#[test]
fn both_clients_agree_in_every_number_mode() {
    let modes = [
        ("exponent = -8", "fixed", None),
        ("", "fixed", Some(Numbers::Block { exponent_row: 1 })),
        ("element_type = \"f32\"", "f32", Some(Numbers::F32)),
        ("element_type = \"f32\"\nsum_order = \"rank\"", "f32", Some(Numbers::F32)),
        ("element_type = \"bf16\"", "bf16", Some(Numbers::Bf16)),
    ];
    for (row, name, numbers) in modes {
        let Some(python) = python("both_clients_agree_in_every_number_mode") else { return };
        let config = node::Config::new(1)
            .section(LOSS)
            .job(0, "")
            .row(0, 0, 3, &format!("{SMALL}{row}"))
            .row(1, 0, 3, &format!("{SMALL}operation = \"max\"\nexponent = 0"));
        let mut options = vec!["--numbers", name];
        if matches!(numbers, Some(Numbers::Block { .. })) {
            options.extend(["--exponent-row", "1"]);
        }
        let sums = mixed(python, &Node::start(&config), &options, 1, numbers);
        // What the sums are, the second client's own tests say; here they are no trifle.
        let first = sums[0][0].as_f64().expect("a number");
        let exact: f64 = (0..3).map(|rank| f64::from(floats(rank, 0)[0])).sum();
        assert!((first - exact).abs() <= 0.02 + exact.abs() / 50.0, "{row}: {first} for {exact}");
    }
}

#[test]
fn a_hostile_client_changes_no_sum_and_all_that_is_refused_is_counted() {
    let test = "a_hostile_client_changes_no_sum_and_all_that_is_refused_is_counted";
    let Some(mut python) = python(test) else { return };
    let row = format!("{SMALL}exponent = 0\nchunks_max = 1000000");
    let config = node::Config::new(2)
        .metrics()
        .job(0, "name = \"honest\"")
        .job(1, "name = \"hostile\"")
        .row(0, 0, 2, &row)
        .row(1, 1, 2, &format!("{SMALL}exponent = 0\nchunks_max = 4096"));
    let node = Node::start(&config);
    let over = AtomicBool::new(false);
    let (rounds, node) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2).map(|rank| node.client(0, 0, rank).lanes(2)).collect();
        let honest: Vec<_> = (0..2_u8)
            .zip(clients)
            .map(|(rank, client)| {
                scope.spawn({
                    let over = &over;
                    move || honest(rank, &client, over)
                })
            })
            .collect();
        let node = hostile(&mut python, node);
        over.store(true, Ordering::Relaxed);
        let rounds: Vec<_> =
            honest.into_iter().map(|worker| worker.join().expect("sums")).collect();
        (rounds, node)
    });
    println!("{rounds:?} rounds beside it");
    assert!(rounds[0] > 10 && rounds[0] == rounds[1], "{rounds:?}");
    let _ = node.end();
}

/// Sums until the attack is over, each one checked; the last element tells the members that it is.
fn honest(rank: u8, client: &Config, over: &AtomicBool) -> u32 {
    let mut session = Session::connect(client).expect("joins");
    let mut round = 0;
    loop {
        let mut values = integers(rank, round);
        *values.last_mut().expect("not empty") = i32::from(over.load(Ordering::Relaxed));
        session.allreduce_i32(&mut values).expect("a sum");
        let stops = values.pop().expect("as many") > 0;
        let (a, b) = (integers(0, round), integers(1, round));
        let exact = a.iter().zip(&b).map(|(a, b)| a.wrapping_add(*b));
        assert!(values.iter().copied().eq(exact.take(LEN - 1)), "rank {rank}, round {round}");
        round += 1;
        if stops {
            assert!(session.close().expect("the port is open"), "all close");
            return round;
        }
    }
}

/// Runs the hostile client against `node`, which is restarted when it says so.
fn hostile(python: &mut Command, mut node: Node) -> Node {
    let port = |job| node.member(job, 0).port().to_string();
    let mut child = python
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("attack/hostile.py"))
        .args([node.addr().ip().to_string(), node.addr().port().to_string()])
        .args([node.metrics().to_string(), port(0), port(1), scale().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut stdin = child.stdin.take().expect("piped");
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.expect("UTF-8");
        println!("{line}");
        if line == "RESTART" {
            node.restart();
            writeln!(stdin, "restarted").expect("it waits");
        }
    }
    assert!(child.wait().expect("it is ours").success(), "not counted as it should be");
    node
}
