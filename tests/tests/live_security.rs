//! A run's control plane is closed to others: its controller, nodes and workers call each other
//! with certificates that the run made for itself, and that go with it.
//!
//! Needs `weft`, `weft-node` and `weft-controller` beside this test (`.ci/test` builds them). On
//! loopback.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use weft_config::ConfigFile;
use weft_config::controller::ControllerConfig;
use weft_tests::live::run::{Run, changed};
use weft_tests::live::{PATIENCE, eventually};

const SCENARIO: &str = r#"
name = "closed"
[job]
workers = 2
rounds = 10
batch = 16
hidden = [16]
learning_rate = 0.02
momentum = 0.5
element_type = "i32"
scale_exponent = -24
[push]
mode = "async"
aggregators = 1
compute_ms = [20, 40]
"#;

fn line<'a>(text: &'a str, with: &str) -> Option<&'a str> {
    text.lines().find(|line| line.contains(with))
}

#[test]
fn a_run_calls_its_controller_with_certificates_of_its_own() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run = Run::start(&changed(SCENARIO, directory.path(), &[]), &["--io", "udp", "--no-lab"]);
    let log = run.out().join("controller.log");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let is_ready = || line(&read(&log), "\"ready\":true").is_some();
    assert!(eventually(PATIENCE, is_ready), "no controller");
    let ready: Value = serde_json::from_str(line(&read(&log), "\"ready\":true").unwrap()).unwrap();
    assert_eq!(ready["tls"], true, "{ready}");
    let config = ConfigFile::new("controller.toml", read(&run.out().join("controller.toml")));
    let config: ControllerConfig = config.read().expect("it was written by the run");
    let key = config.tls.expect("it wants certificates").key;
    assert!(Path::new(&key).is_file(), "{key}");

    // A stranger without a certificate is turned away while the run goes on.
    let mut stranger = TcpStream::connect(ready["listen"].as_str().unwrap()).expect("it listens");
    stranger.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    stranger.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it listens");
    let mut answer = [0; 80];
    stranger.read_exact(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("this controller takes calls over TLS"), "{answer}");
    drop(stranger);

    let (ended, run_directory) = run.end(PATIENCE);
    let json = ended.json.as_ref().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(json["verdict"], "ok", "{json} {}", ended.stderr);
    assert_eq!(json["controller_fallbacks"], 0, "{json}");
    assert!(json["planning_mean_ns"].as_f64() > Some(0.0), "the controller planned: {json}");
    let out = run_directory.path().join("run");
    let counted: Value = serde_json::from_str(&read(&out.join("controller.stats.json"))).unwrap();
    assert_eq!(
        (&counted["connections_refused"], &counted["calls_refused"]),
        (&1.into(), &0.into())
    );
    assert!(!Path::new(&key).exists(), "the run's keys are left: {key}");
    for entry in fs::read_dir(&out).expect("the run directory") {
        let path = entry.expect("an entry").path();
        assert!(path.extension().is_none_or(|end| end != "key"), "{}", path.display());
    }
}
