//! `weft top` and `weft job` where the controller is no address, speaks otherwise, says nothing, or
//! is not there: the exit status and the reason are those of what was wrong.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use weft_config::TlsSection;
use weft_config::controller::{BandsConfig, ControllerConfig, HostConfig, JobConfig};
use weft_controller::daemon::Daemon;

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.current_dir(directory).args(arguments);
    command
}

/// Exit status and standard error.
fn weft(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let ended = command(directory, arguments).output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// A controller with this certificate, until the test ends.
fn controller(tls: Option<TlsSection>) -> SocketAddr {
    start(ControllerConfig { tls, ..config() })
}

fn config() -> ControllerConfig {
    ControllerConfig {
        hosts: ["w0", "s0"].map(HostConfig::named).into(),
        jobs: vec![JobConfig::new("digits", 1, 1000, ["w0"], "s0")],
        ..ControllerConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }
}

/// A controller, until the test ends.
fn start(config: ControllerConfig) -> SocketAddr {
    let (tell, at) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let daemon = Daemon::bind(config).await.unwrap();
            tell.send(daemon.addr).unwrap();
            daemon.run(std::future::pending()).await
        })
    });
    at.recv().unwrap()
}

#[test]
fn what_cannot_be_called_at_all_is_wrong_usage() {
    let here = tempfile::tempdir().unwrap();
    let certs = "https://127.0.0.1:1";
    for (address, more, why) in [
        ("nonsense", &[][..], "is neither https:// nor http://"),
        ("http://", &[], "is no endpoint"),
        ("ftp://127.0.0.1:1", &[], "is neither https:// nor http://"),
        (certs, &[], "needs a certificate: give --certs"),
        ("http://127.0.0.1:99999", &[], "has a port that is none"),
        ("http://127.0.0.1:1", &["--certs", "."], "does not use the certificate"),
        (certs, &["--certs", "not-there"], "cannot read not-there/ca.pem"),
    ] {
        let top = [&["top", address, "--once"], more].concat();
        let job = [&["job", "pause", "digits", "--controller", address], more].concat();
        for arguments in [top, job] {
            let (status, said) = weft(here.path(), &arguments);
            assert_eq!(status, Some(2), "{arguments:?}: {said}");
            assert!(said.contains(why), "{arguments:?}: {said}");
            assert!(!said.contains("is it running"), "{said}");
        }
    }
    // One reason, and once.
    let (_, said) = weft(here.path(), &["top", certs, "--once", "--certs", "not-there"]);
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
    // Nobody is there.
    let (status, said) = weft(here.path(), &["top", "http://127.0.0.1:1", "--once"]);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("cannot reach the controller at http://127.0.0.1:1"), "{said}");
}

#[test]
fn a_controller_with_tls_that_is_called_without_it_says_what_to_do() {
    let here = tempfile::tempdir().unwrap();
    for arguments in
        [&["certs", "init"][..], &["certs", "issue", "controller", "--host", "127.0.0.1"]]
    {
        assert_eq!(weft(here.path(), arguments).0, Some(0));
    }
    let file = |name: &str| here.path().join("certs").join(name).to_str().unwrap().to_owned();
    let tls = TlsSection {
        ca: file("ca.pem"),
        cert: file("controller.pem"),
        key: file("controller.key"),
    };
    let address = format!("http://{}", controller(Some(tls)));
    for arguments in
        [&["top", &address, "--once"][..], &["job", "pause", "digits", "--controller", &address]]
    {
        let (status, said) = weft(here.path(), arguments);
        assert_eq!(status, Some(3), "{said}");
        assert!(said.contains(&format!("cannot speak with the controller at {address}")), "{said}");
        assert!(said.contains("write https://"), "{said}");
    }
}

/// `operator.pem`, else the one that has a name, else the file that is named.
#[test]
fn an_operator_is_found_in_a_folder_by_its_certificates_name() {
    let here = tempfile::tempdir().unwrap();
    let made = |words: &[&str]| assert_eq!(weft(here.path(), words).0, Some(0), "{words:?}");
    made(&["certs", "init"]);
    made(&["certs", "issue", "controller", "--host", "127.0.0.1"]);
    made(&["certs", "issue", "operator", "--name", "alice"]);
    let file = |name: &str| here.path().join("certs").join(name).to_str().unwrap().to_owned();
    let tls = TlsSection {
        ca: file("ca.pem"),
        cert: file("controller.pem"),
        key: file("controller.key"),
    };
    let address = format!("https://{}", controller(Some(tls)));
    let top = |certs: &str| weft(here.path(), &["top", &address, "--once", "--certs", certs]);
    let list = |certs: &str| {
        weft(here.path(), &["job", "list", "--controller", &address, "--certs", certs])
    };
    for certs in ["certs", "certs/operator-alice.pem"] {
        assert_eq!(top(certs), (Some(0), String::new()), "{certs}");
        assert_eq!(list(certs), (Some(0), String::new()), "{certs}");
    }
    made(&["certs", "issue", "operator", "--name", "bob"]);
    for (status, said) in [top("certs"), list("certs")] {
        assert_eq!(status, Some(2), "{said}");
        let both = "give --certs one of certs/operator-alice.pem, certs/operator-bob.pem";
        assert!(said.contains(both), "{said}");
    }
    assert_eq!(list("certs/operator-bob.pem").0, Some(0));
    made(&["certs", "issue", "operator"]);
    assert_eq!(list("certs").0, Some(0), "one without a name is everybody's");
}

/// It was asked, and not told anything: there is nothing that it could heed.
#[test]
fn a_controller_that_says_nothing_is_asked_and_not_told() {
    let here = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let (status, said) = weft(here.path(), &["top", &address, "--once"]);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("did not answer within 5 s") && !said.contains("heed"), "{said}");
    let word = ["job", "pause", "digits", "--controller", &address, "--timeout", "0.5"];
    let (status, said) = weft(here.path(), &word);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("it may heed the word yet"), "{said}");
}

/// A stopped controller listens like this: with TLS it does not even shake hands.
#[test]
fn a_dial_that_nobody_answers_ends_in_time_and_at_a_signal() {
    let here = tempfile::tempdir().unwrap();
    for arguments in [&["certs", "init"][..], &["certs", "issue", "operator"]] {
        assert_eq!(weft(here.path(), arguments).0, Some(0));
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", silent.local_addr().unwrap());
    let certs = ["--certs", "certs"];
    let (status, said) = weft(here.path(), &[&["top", &address, "--once"], &certs[..]].concat());
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("no answer within 5 s"), "{said}");
    let word = ["job", "pause", "digits", "--controller", &address, "--timeout", "0.5"];
    let (status, said) = weft(here.path(), &[&word, &certs[..]].concat());
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("no answer within 0.5 s"), "{said}");
    // A recording takes a signal down in order, whatever it waits for.
    while silent.set_nonblocking(true).is_ok() && silent.accept().is_ok() {}
    silent.set_nonblocking(false).unwrap();
    let mut top = Command::new(env!("CARGO_BIN_EXE_weft"))
        .current_dir(here.path())
        .args([&["top", &address, "--record", "readings"], &certs[..]].concat())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _held = silent.accept().unwrap();
    let signalled = Instant::now();
    kill(Pid::from_raw(i32::try_from(top.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(top.wait().unwrap().code(), Some(130));
    assert!(signalled.elapsed() < Duration::from_secs(4), "the dial's end was waited for");
}

/// Nothing of it was ever granted: it waited for its server until the caller's time was over.
#[test]
fn a_job_whose_server_never_came_is_paused_and_goes_on() {
    let here = tempfile::tempdir().unwrap();
    let address = format!("http://{}", controller(None));
    let word = |word: &str| weft(here.path(), &["job", word, "digits", "--controller", &address]);
    assert_eq!(word("pause"), (Some(0), String::new()));
    assert_eq!(word("pause").0, Some(1), "it is paused already");
    assert_eq!(word("resume"), (Some(0), String::new()));
}

/// Added, listed and removed, each once as asked and once refused.
#[test]
fn jobs_are_added_listed_and_removed() {
    let here = tempfile::tempdir().unwrap();
    let bands = Some(BandsConfig::default());
    let address = format!("http://{}", start(ControllerConfig { bands, ..config() }));
    let job = |words: &[&str]| {
        weft(here.path(), &[&["job"], words, &["--controller", &address]].concat())
    };
    let list = || {
        let words = ["job", "list", "--format", "json", "--controller", &address];
        let ended = command(here.path(), &words).output().unwrap();
        serde_json::from_slice::<Value>(&ended.stdout).unwrap()
    };
    let text = "[[job]]\nname = \"more\"\nindex = 2\ndimension = 10\nworkers = [\"w0\", \"w0\"]\n\
                server = \"s0\"\ntau_max = 9\nmode = \"sync\"\n";
    std::fs::write(here.path().join("more.toml"), text).unwrap();
    assert_eq!(job(&["add", "more.toml"]), (Some(0), String::new()));
    let (status, said) = job(&["add", "more.toml"]);
    assert!(status == Some(1) && said.contains("job `more` already"), "{said}");
    let listed = list();
    let of = |at: usize, key: &str| listed[at][key].clone();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    assert_eq!([of(0, "name"), of(1, "name")], ["digits", "more"].map(Value::from));
    assert_eq!(
        [of(1, "id"), of(1, "workers"), of(1, "workers_attached")],
        [2, 2, 0].map(Value::from)
    );
    assert_eq!([of(1, "kind"), of(1, "state")], ["push", "running"].map(Value::from));
    assert!(of(1, "policy").is_string() && of(1, "next_round").is_null(), "{listed}");
    for key in LISTED {
        assert!(listed[0].get(key).is_some(), "{key}: {listed}");
        assert!(STEERING.contains(&format!("`{key}`")), "docs/steering.md has no `{key}`");
    }
    assert_eq!(listed[0].as_object().map(serde_json::Map::len), Some(LISTED.len()), "{listed}");
    // Of bands: set, and no number of seconds.
    assert_eq!(job(&["bands", "round-robin", "--interval", "5"]), (Some(0), String::new()));
    assert_eq!(job(&["bands", "round-robin", "--interval", "0"]).0, Some(2));
    assert_eq!(job(&["remove", "more"]), (Some(0), String::new()));
    for (words, why) in [
        (&["remove", "more"][..], "there is no such job"),
        (&["remove", "digits"], "the job is in the configuration file"),
        (&["pause", "more"], "there is no such job"),
    ] {
        let (status, said) = job(words);
        assert!(status == Some(1) && said.contains(why), "{words:?}: {said}");
    }
    assert_eq!(list().as_array().map(Vec::len), Some(1));
    // A controller without [bands] in its file.
    let plain = format!("http://{}", controller(None));
    let (status, said) = weft(here.path(), &["job", "bands", "one", "--controller", &plain]);
    assert!(status == Some(1) && said.contains("[bands]"), "{said}");
}

/// The file is at fault: its line and key are named, and no controller is called.
#[test]
fn files_of_jobs_that_make_no_sense_are_refused_by_line() {
    let here = tempfile::tempdir().unwrap();
    let nobody = ["--controller", "http://127.0.0.1:1"];
    for (text, why) in [
        (String::new(), "job: is there 0 times: give one"),
        (GOOD.repeat(2), "job: is there 2 times"),
        (format!("{GOOD}tau_max = 0\n"), "job.toml:7: job[0].tau_max"),
        (format!("{GOOD}options = {{ no_drop = true }}\n"), "job.toml:7: job[0].options"),
        (
            GOOD.replace("[\"w0\"]", "[{ host = \"w0\", address = \"10.0.0.1\" }]"),
            "job.toml:5: job[0].workers",
        ),
        (format!("{GOOD}[[reduce]]\nname = \"sums\"\n"), "job.toml:7: reduce"),
        (format!("{GOOD}nonsense = 1\n"), "job.toml:7: job[0].nonsense"),
    ] {
        std::fs::write(here.path().join("job.toml"), &text).unwrap();
        let (status, said) =
            weft(here.path(), &[&["job", "add", "job.toml"], &nobody[..]].concat());
        assert!(status == Some(2) && said.contains(why), "{text}: {said}");
    }
    for (text, why) in [
        ("", "neither [[job]] nor"),
        ("[[row]]\nrow = 1\n", "rows.toml:1: row[0]"),
        ("[[job]]\nid = 3\nname = \"x\"\n", "rows.toml:3: job[0].name"),
    ] {
        std::fs::write(here.path().join("rows.toml"), text).unwrap();
        let (status, said) =
            weft(here.path(), &[&["job", "hold", "a0", "rows.toml"], &nobody[..]].concat());
        assert!(status == Some(2) && said.contains(why), "{text}: {said}");
    }
    std::fs::write(here.path().join("job.toml"), GOOD).unwrap();
    std::fs::write(here.path().join("rows.toml"), "[[job]]\nid = 3\n").unwrap();
    let (add, hold) = (["job", "add", "job.toml"], ["job", "hold", "a0", "rows.toml"]);
    for words in
        [&add[..], &hold, &["job", "list"], &["job", "remove", "x"], &["job", "bands", "one"]]
    {
        let (status, said) = weft(here.path(), &[words, &nobody].concat());
        assert!(status == Some(3) && said.contains("cannot reach"), "{words:?}: {said}");
    }
    let address = format!("http://{}", controller(None));
    let (status, said) = weft(here.path(), &[&hold[..], &["--controller", &address]].concat());
    assert!(status == Some(1) && said.contains("the job's share of job 3: "), "{said}");
}

/// A full disk: what was not saved is not announced.
#[test]
fn a_job_that_cannot_be_saved_is_not_added() {
    let here = tempfile::tempdir().unwrap();
    let folder = here.path().join("state");
    std::fs::create_dir(&folder).unwrap();
    let state_file = Some(folder.join("state.json").to_str().unwrap().to_owned());
    let address = format!("http://{}", start(ControllerConfig { state_file, ..config() }));
    // Without the folder nothing can be written, not even by root.
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(here.path().join("job.toml"), GOOD).unwrap();
    let words = ["job", "add", "job.toml", "--timeout", "2", "--controller", &address];
    let (status, said) = weft(here.path(), &words);
    assert!(status == Some(1) && said.contains("did not answer within 2 s"), "{said}");
}

/// A job beside that of the controller's file.
const GOOD: &str = "[[job]]\nname = \"more\"\nindex = 2\ndimension = 10\nworkers = [\"w0\"]\n\
                    server = \"s0\"\n";

/// The keys of a listed job.
const LISTED: [&str; 15] = [
    "name",
    "id",
    "kind",
    "state",
    "policy",
    "workers",
    "workers_attached",
    "is_server_attached",
    "version",
    "next_round",
    "epoch",
    "band",
    "pauses",
    "resizes",
    "problem",
];

const STEERING: &str = include_str!("../../docs/steering.md");
