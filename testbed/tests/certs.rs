//! `weft certs` as scripts see it, and the commands of docs/security.md.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use weft_rpc::certs::Validity;
use weft_rpc::identity::Identity;
use weft_testbed::certs::Folder;

fn weft(directory: &Path, arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_weft");
    Command::new(program).args(arguments).current_dir(directory).output().expect("weft starts")
}

/// Standard output of a command that must end with this status.
fn said(directory: &Path, arguments: &[&str], status: i32) -> String {
    let output = weft(directory, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn list(directory: &Path, status: i32) -> Vec<Value> {
    let json = said(directory, &["certs", "list", "--format", "json"], status);
    serde_json::from_str(&json).expect("a JSON array")
}

#[expect(clippy::disallowed_methods, reason = "certificates are valid by the time of day")]
fn now_unix_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

#[test]
fn the_commands_of_the_guide_make_certificates_for_everybody() {
    let directory = tempfile::tempdir().unwrap();
    let guide = include_str!("../../docs/security.md");
    let block = guide.split("```sh\n").nth(1).expect("commands").split("```").next().unwrap();
    let mut count = 0;
    for line in block.lines() {
        let command = line.split('#').next().unwrap();
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[0], "weft", "{line}");
        said(directory.path(), &words[1..], 0);
        count += 1;
    }
    assert!(count >= 6, "{block}");
    let rows = list(directory.path(), 0);
    let named = |name: &str| rows.iter().find(|row| row["name"] == name).expect(name);
    for (name, identity, hosts) in [
        ("ca", "ca", ""),
        ("controller", "weft:role/controller", "10.0.0.1 controller.example"),
        ("node-s0", "weft:role/node/name/s0", ""),
        ("worker-1-0", "weft:role/worker/job/1/rank/0", ""),
        ("operator-alice", "weft:role/operator/name/alice", ""),
    ] {
        let row = named(name);
        assert_eq!((&row["identity"], &row["hosts"]), (&identity.into(), &hosts.into()));
        assert_eq!(row["state"], "good");
    }
    // Less what it took to come here.
    assert!(matches!(named("node-s0")["days_left"].as_u64(), Some(364 | 365)), "{rows:?}");
}

#[test]
fn what_has_ended_is_an_exit_status_until_it_is_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    said(here, &["certs", "init"], 0);
    said(here, &["certs", "issue", "operator"], 0);
    let now = now_unix_s();
    let ended = Validity { from_unix_s: now - 1000, until_unix_s: now - 10 };
    let node = Identity::Node { name: Some("a0".into()) };
    Folder::at(here.join("certs")).issue(&node, &[], ended).unwrap();
    let state = |rows: &[Value], name: &str| {
        rows.iter().find(|row| row["name"] == name).unwrap()["state"].clone()
    };
    assert_eq!(state(&list(here, 1), "node-a0"), "ended");
    assert!(said(here, &["certs", "list"], 1).contains("ENDED"));
    // What ends soon alone.
    let renewed = said(here, &["certs", "renew", "--format", "csv"], 0);
    assert_eq!(renewed.lines().count(), 2, "{renewed}");
    assert!(renewed.starts_with("name,identity,hosts,until,days_left,state,cert\nnode-a0,"));
    assert_eq!(state(&list(here, 0), "node-a0"), "good");
    said(here, &["certs", "renew", "operator", "--days", "5"], 0);
    let rows = list(here, 0);
    let operator = rows.iter().find(|row| row["name"] == "operator").unwrap();
    assert!(matches!(operator["days_left"].as_u64(), Some(4 | 5)), "{operator}");

    // One of another CA is no good either, and cannot be renewed.
    let other = tempfile::tempdir().unwrap();
    said(other.path(), &["certs", "init"], 0);
    said(other.path(), &["certs", "issue", "operator"], 0);
    for file in ["certs/operator.pem", "certs/operator.key"] {
        std::fs::copy(other.path().join(file), here.join(file)).unwrap();
    }
    assert_eq!(state(&list(here, 1), "operator"), "foreign");
    said(here, &["certs", "renew", "operator"], 2);
}

#[test]
fn wrong_usage_and_existing_files_have_their_exit_statuses() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    said(here, &["certs", "issue", "operator"], 1);
    said(here, &["certs", "init"], 0);
    said(here, &["certs", "init"], 1);
    said(here, &["certs", "issue", "operator"], 0);
    said(here, &["certs", "issue", "operator"], 1);
    for wrong in [
        &["issue", "controller"][..],
        &["issue", "root"],
        &["issue", "worker", "--rank", "1"],
        &["issue", "worker", "--job", "1", "--rank", "64"],
        &["issue", "worker", "--job", "65536"],
        &["issue", "worker", "--host", "10.0.0.1"],
        &["issue", "node", "--job", "1"],
        &["issue", "node", "--name", "a/b"],
        &["issue", "node", "--days", "0"],
        &["renew", "nobody"],
        &["renew", "ca"],
    ] {
        said(here, &[&["certs"], wrong].concat(), 2);
    }
}
