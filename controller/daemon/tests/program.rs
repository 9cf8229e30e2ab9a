//! The program itself: exit statuses, the ready line, its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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
    command.env("NOTIFY_SOCKET", &socket);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let ready: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(ready["ready"], true);
    let mut state = [0; 16];
    let len = manager.recv(&mut state).unwrap();
    assert_eq!(&state[..len], b"READY=1", "what a service manager waits for");
    let mut scraper = TcpStream::connect(ready["metrics"].as_str().unwrap()).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut metrics = String::new();
    scraper.read_to_string(&mut metrics).unwrap();
    assert!(metrics.contains("weft_updates_requested_total{job=\"digits\"} 0"), "{metrics}");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let mut figures = String::new();
    child.stdout.take().unwrap().read_to_string(&mut figures).unwrap();
    assert!(child.wait().unwrap().success());
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["jobs"][0]["name"], "digits");
}
