//! The program itself: exit statuses, the ready line, its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use weft_rpc::certs::{Authority, Issued, Validity};
use weft_rpc::tls::{Dialler, TlsFiles};
use weft_rpc::v1;
use weft_rpc::v1::workers_client::WorkersClient;

use crate::common::more_job;

const CONFIG: &str = "listen = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\n\
    [[host]]\nname = \"w0\"\n[[host]]\nname = \"s0\"\n\
    [[job]]\nname = \"digits\"\nindex = 1\ndimension = 10\nworkers = [\"w0\"]\nserver = \"s0\"\n";

fn program(config: &str, arguments: &[&str]) -> (tempfile::TempDir, Command) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controller.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-controller"));
    command.arg("--config").arg(path).args(arguments);
    (directory, command)
}

#[test]
fn a_configuration_can_be_checked_and_printed() {
    let (_directory, mut good) = program(CONFIG, &["--check-config"]);
    assert!(good.status().unwrap().success());
    let (_directory, mut print) = program(CONFIG, &["--print-config"]);
    let printed = String::from_utf8(print.output().unwrap().stdout).unwrap();
    assert!(printed.contains("gather_window_us = 2000"), "{printed}");
    let (_directory, mut again) = program(&printed, &["--check-config"]);
    assert!(again.status().unwrap().success(), "what is printed can be read");
    let shipped = include_str!("../configs/controller.toml");
    let (_directory, mut shipped) = program(shipped, &["--check-config"]);
    assert!(shipped.status().unwrap().success());
}

#[test]
fn a_bad_configuration_names_line_and_field_and_exits_2() {
    for (word, config) in [
        ("13: job[0].momentum: is 2", CONFIG.to_owned() + "momentum = 2.0\n"),
        ("13: job[0].mometum: unknown field", CONFIG.to_owned() + "mometum = 0.0\n"),
        ("13: job[0].policy: ", CONFIG.to_owned() + "policy = \"wishful\"\n"),
        (
            "12: job[0].server: there is no node",
            CONFIG.replace("server = \"s0\"", "server = \"s9\""),
        ),
    ] {
        let (_directory, mut command) = program(&config, &["--check-config"]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("controller.toml:{word}")), "{said}");
    }
}

#[test]
fn it_says_when_it_is_ready_and_ends_with_its_figures() {
    let (directory, mut command) = program(CONFIG, &["--format", "json"]);
    let socket = directory.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    command.env("NOTIFY_SOCKET", &socket).env_remove("JOURNAL_STREAM");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let ready: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(ready["ready"], true);
    let mut state = [0; 16];
    let len = manager.recv(&mut state).unwrap();
    assert_eq!(&state[..len], b"READY=1", "what a service manager waits for");
    let get = |path: &str| {
        let mut scraper = TcpStream::connect(ready["metrics"].as_str().unwrap()).unwrap();
        write!(scraper, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).unwrap();
        answer
    };
    let metrics = get("/metrics");
    assert!(metrics.contains("weft_updates_requested_total{job=\"digits\"} 0"), "{metrics}");
    assert!(metrics.contains("weft_node_band_wait_max_seconds"), "{metrics}");
    assert!(!metrics.contains("_ns"), "times are in seconds: {metrics}");
    for path in ["/healthz", "/readyz"] {
        assert!(get(path).starts_with("HTTP/1.1 200 "), "{path}");
    }
    // A hang-up is a line of the log, with the time, and no end.
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGHUP).unwrap();
    let heard = lines.next().unwrap().unwrap();
    let (time, text) = heard.split_once(' ').unwrap();
    assert!(text.starts_with("weft-controller: SIGHUP is not used: "), "{heard}");
    assert!(time.len() == 24 && time.ends_with('Z'), "{heard}");
    assert!(get("/healthz").starts_with("HTTP/1.1 200 "), "it went on");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let mut figures = String::new();
    child.stdout.take().unwrap().read_to_string(&mut figures).unwrap();
    assert!(child.wait().unwrap().success());
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["jobs"][0]["name"], "digits");
}

/// Certificates, as `weft certs` lays them out.
#[expect(clippy::disallowed_methods, reason = "certificates are valid by the time of day")]
fn certificates(folder: &Path) {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let validity = Validity::days(now_s.try_into().unwrap(), 1);
    let (authority, ca) = Authority::create("test", validity).unwrap();
    std::fs::write(folder.join("ca.pem"), &ca.cert).unwrap();
    for (name, role, hosts) in [
        ("controller", "weft:role/controller", &["127.0.0.1".to_owned()][..]),
        ("worker", "weft:role/worker/job/1/rank/0", &[]),
        ("other", "weft:role/worker/job/1/rank/1", &[]),
        ("operator", "weft:role/operator", &[]),
    ] {
        let issued = authority.issue(&role.parse().unwrap(), hosts, validity, None).unwrap();
        let Issued { cert, key } = issued;
        std::fs::write(folder.join(format!("{name}.pem")), cert).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key).unwrap();
    }
}

/// Ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A controller that may have few descriptors, and peers that would have many: one worker's
/// certificate, strangers that never shake hands, scrapers that ask nothing.
#[tokio::test]
async fn connections_that_do_nothing_leave_descriptors_and_places_to_others() {
    const FILES: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let config = CONFIG.replace("[\"w0\"]", "[\"w0\", \"w0\"]").replace(
        "metrics = ",
        "state_file = \"state\"\n\
         tls = { ca = \"ca.pem\", cert = \"controller.pem\", key = \"controller.key\" }\n\
         metrics = ",
    );
    std::fs::write(folder.path().join("controller.toml"), config).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -n {FILES}; exec \"$0\" --config controller.toml")])
        .arg(env!("CARGO_BIN_EXE_weft-controller"))
        .current_dir(folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let child = Ended(child);
    let ready: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    let (at, metrics) = (ready["listen"].as_str().unwrap(), ready["metrics"].as_str().unwrap());
    let channel = async |name: &str| -> Channel {
        let files = TlsFiles::in_folder(folder.path(), name);
        let dialler = Dialler::new(&format!("https://{at}"), Some(&files)).unwrap();
        dialler.dial(|channel| async { Ok(channel) }).await.unwrap()
    };
    // One that is there and works, and then the others.
    let working = channel("other").await;
    let (said, outbound) = mpsc::channel(8);
    let hello = v1::WorkerHello { job: 1, name: None, rank: 1, life: 7, position: None };
    let hello = v1::worker_message::Message::Hello(hello);
    said.send(v1::WorkerMessage { message: Some(hello) }).await.unwrap();
    let mut client = WorkersClient::new(working);
    let mut heard = client.attach(ReceiverStream::new(outbound)).await.unwrap().into_inner();
    let mut idle = Vec::new();
    for _ in 0..120 {
        idle.push(channel("worker").await);
    }
    let silent = |at: &str, count: usize| -> Vec<TcpStream> {
        (0..count).map(|_| TcpStream::connect(at).unwrap()).collect()
    };
    let (_strangers, _scrapers) = (silent(at, 100), silent(metrics, 60));
    // An operator's word is carried out, and kept.
    let mut operator = WorkersClient::new(channel("operator").await);
    let registered = tokio::time::timeout(PATIENCE, operator.register_job(more_job())).await;
    registered.expect("it is answered").unwrap();
    assert!(std::fs::read_to_string(folder.path().join("state")).unwrap().contains("\"more\""));
    // The stream of before is there.
    let reply = tokio::time::timeout(PATIENCE, heard.message()).await.unwrap().unwrap().unwrap();
    assert!(matches!(reply.message, Some(v1::worker_reply::Message::Welcome(_))), "{reply:?}");
    // And so are the figures.
    let mut scraper = TcpStream::connect(metrics).unwrap();
    scraper.set_read_timeout(Some(PATIENCE)).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    scraper.read_to_string(&mut page).unwrap();
    assert!(page.contains("weft_connections_refused_total"), "{page}");
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.0.id())).unwrap().count();
    assert!(open < FILES - 50, "{open} of {FILES}");
}

const PATIENCE: Duration = Duration::from_secs(20);
