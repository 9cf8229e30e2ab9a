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
use weft_config::TlsSection;
use weft_config::controller::{ControllerConfig, HostConfig, JobConfig};
use weft_controller::daemon::Daemon;

/// Exit status and standard error.
fn weft(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let binary = env!("CARGO_BIN_EXE_weft");
    let ended = Command::new(binary).current_dir(directory).args(arguments).output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// A controller with this certificate, until the test ends.
fn controller(tls: Option<TlsSection>) -> SocketAddr {
    let config = ControllerConfig {
        hosts: ["w0", "s0"].map(HostConfig::named).into(),
        jobs: vec![JobConfig::new("digits", 1, 1000, ["w0"], "s0")],
        tls,
        ..ControllerConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    };
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
