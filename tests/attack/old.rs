//! The present programs on files and peers of an earlier version: they work, or are refused by
//! name. `old/README.md` says where each file is from.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;
use weft_tests::live::durable::{Ended, Server};
use weft_tests::live::node::own_address;
use weft_tests::live::{PATIENCE, eventually, program};

fn old(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("attack/old").join(file)
}

fn read(file: &str) -> Vec<u8> {
    let path = old(file);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A directory with an old configuration whose addresses are free here, and the files of a job;
/// the box's address, and those of two workers.
fn place(config: &str, state: Option<&str>) -> (TempDir, PathBuf, [Ipv4Addr; 3]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let addresses = [(); 3].map(|()| own_address());
    let text = String::from_utf8(read(config)).expect("TOML is UTF-8");
    let mut parts = text.split("127.77.3.");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (host, rest) = part.split_at(1);
        let host: usize = host.parse().expect("1 to 3");
        text += &format!("{}{rest}", addresses[host - 1]);
    }
    let path = directory.path().join(config);
    fs::write(&path, text).expect("a file in a temporary directory");
    if let Some(state) = state {
        let job = directory.path().join("state/job-0");
        fs::create_dir_all(&job).expect("a directory");
        for entry in fs::read_dir(old(state)).expect("old files") {
            let from = entry.expect("an old file").path();
            fs::copy(&from, job.join(from.file_name().expect("a name"))).expect("a copy");
        }
    }
    (directory, path, addresses)
}

fn serve(config: &Path) -> Result<Ended, Ended> {
    let server = Server::start(config, config.parent().expect("it is in a directory"))?;
    Ok(server.end(Signal::SIGTERM))
}

/// One that was killed while it committed, and one while it made a checkpoint as well.
#[test]
fn a_server_goes_on_from_old_files() {
    for (state, version) in [("killed", 213), ("compacting", 42)] {
        let (directory, config, _) = place("server.toml", Some(state));
        // The second start reads what the first one wrote.
        for _ in 0..2 {
            let ended = serve(&config).unwrap_or_else(|ended| panic!("{state}: {}", ended.stderr));
            assert_eq!(ended.status, Some(0), "{}", ended.stderr);
            let server = &ended.report["servers"][0];
            assert_eq!(
                (&server["version"], &server["next_order"]),
                (&version.into(), &version.into())
            );
            let model = fs::read(directory.path().join("model.f32")).expect("its model");
            assert_eq!(model, read(&format!("{state}/model.f32")), "{state}");
        }
    }
}

#[test]
fn old_files_that_lack_a_journal_are_refused_by_name() {
    let without = |state: &str, file: &str, len: Option<usize>| {
        let (directory, config, _) = place("server.toml", Some(state));
        let path = directory.path().join("state/job-0").join(file);
        match len {
            None => fs::remove_file(&path).expect("it is there"),
            Some(len) => fs::write(&path, &read(&format!("{state}/{file}"))[..len]).expect("cut"),
        }
        let refused = serve(&config).expect_err("it must not start");
        assert_eq!(refused.status, Some(3), "{}", refused.stderr);
        refused.stderr
    };
    let stderr = without("killed", "journal-2", None);
    assert!(stderr.contains("job-0/checkpoint: ") && stderr.contains("is lost"), "{stderr}");
    for (state, file, order) in [("killed", "journal-2", 118), ("compacting", "journal-2", 39)] {
        for len in [0, 31] {
            let stderr = without(state, file, Some(len));
            assert!(stderr.contains(&format!("job-0/{file}: ")), "{stderr}");
            assert!(stderr.contains(&format!("order {order} and all after it")), "{stderr}");
        }
    }
    let stderr = without("compacting", "journal-1", None);
    assert!(stderr.contains("job-0/journal-2: ") && stderr.contains("one is missing"), "{stderr}");
    let stderr = without("compacting", "checkpoint", None);
    assert!(stderr.contains("job-0/checkpoint: is missing"), "{stderr}");
}

/// The first start of the present version may be interrupted, too: its journal is there, and the
/// old checkpoint still.
#[test]
fn a_first_start_that_was_interrupted_is_none() {
    let (directory, config, _) = place("server.toml", Some("killed"));
    let job = directory.path().join("state/job-0");
    serve(&config).unwrap_or_else(|ended| panic!("{}", ended.stderr));
    for file in ["checkpoint", "journal-2"] {
        fs::copy(old("killed").join(file), job.join(file)).expect("a copy");
    }
    assert!(job.join("journal-3").exists());
    let ended = serve(&config).unwrap_or_else(|ended| panic!("{}", ended.stderr));
    assert_eq!(ended.report["servers"][0]["version"], 213, "{}", ended.report);
    // Without the old journal, the new one is none that could follow.
    fs::copy(old("killed/checkpoint"), job.join("checkpoint")).expect("a copy");
    let refused = serve(&config).expect_err("it must not start");
    assert!(refused.stderr.contains("job-0/checkpoint: "), "{}", refused.stderr);
}

#[test]
fn old_configurations_are_good_still() {
    for (name, config) in [
        ("weft-node", "server.toml"),
        ("weft-node", "aggregator.toml"),
        ("weft-controller", "controller.toml"),
    ] {
        let (_directory, path, _) = place(config, None);
        let output = Command::new(program(name))
            .args(["--check-config", "--config"])
            .arg(&path)
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{config}: {stderr}");
    }
}

/// A controller takes up its old state: the job that was registered while it ran is there, and
/// cannot be registered again.
#[test]
fn a_controller_goes_on_from_its_old_state() {
    let (directory, config, _) = place("controller.toml", None);
    let state = directory.path().join("controller.state");
    fs::copy(old("controller.state"), &state).expect("a copy");
    let log = directory.path().join("log");
    let mut controller = Command::new(program("weft-controller"))
        .arg("--config")
        .arg(&config)
        .current_dir(directory.path())
        .stderr(fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("it starts");
    let ready = eventually(PATIENCE, || {
        let is_over = !matches!(controller.try_wait(), Ok(None));
        let text = fs::read_to_string(&log).unwrap_or_default();
        assert!(!is_over, "weft-controller ended: {text}");
        text.contains("\"ready\":true")
    });
    let _ = controller.kill();
    let _ = controller.wait();
    assert!(ready, "weft-controller is not ready");
    let text = fs::read_to_string(&state).expect("its state");
    let kept: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(kept["registered"][0]["name"], "more", "{kept}");
    let before: serde_json::Value = serde_json::from_slice(&read("controller.state")).unwrap();
    assert!(kept["generation_ceiling"].as_u64() >= before["generation_ceiling"].as_u64(), "{kept}");
}

/// The bytes of a handshake that lives and boxes draw: CRC, token, epoch, session and cookies.
fn without_draws(datagram: &[u8]) -> Vec<u8> {
    let mut fixed = datagram.to_vec();
    for drawn in [20..24, 36..40, 48..56, 56..72] {
        fixed[drawn].fill(0);
    }
    fixed
}

/// SPEC#handshake: HELLO of an old worker and of an old member, as they were on the wire, get the
/// CHALLENGE that an old box gave, up to what is drawn; the old JOIN, whose token is another box's,
/// gets no word that an old one would not give.
#[test]
fn old_peers_are_answered_as_they_were() {
    for (config, hello, challenge, join) in [
        ("server.toml", "worker-hello.bin", "server-challenge.bin", "worker-join.bin"),
        ("aggregator.toml", "member-hello.bin", "aggregator-challenge.bin", "member-join.bin"),
    ] {
        let (directory, path, [host, worker, _]) = place(config, None);
        let server = Server::start(&path, directory.path())
            .unwrap_or_else(|ended| panic!("{config}: {}", ended.stderr));
        let socket = UdpSocket::bind((worker, 7000)).expect("an address of its own");
        socket.connect((host, 22341)).expect("the box's address");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        let mut answer = vec![0; 2000];
        let mut ask = |file: &str, repeats: usize| {
            for _ in 0..repeats {
                socket.send(&read(file)).expect("it is sent");
                if let Ok(len) = socket.recv(&mut answer) {
                    return Some(answer[..len].to_vec());
                }
            }
            None
        };
        let answer = ask(hello, 20).expect("an answer");
        assert_eq!(without_draws(&answer), without_draws(&read(challenge)), "{config}");
        assert_eq!(answer[40..48], read(hello)[40..48], "the life is echoed");
        // A challenge, if anything: never a place in the session.
        if let Some(answer) = ask(join, 1) {
            assert_eq!(answer[32], 2, "{config}");
        }
        let ended = server.end(Signal::SIGTERM);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    }
}

/// SPEC#handshake: what a present worker sends first is what an old one sent, up to what is drawn:
/// so an old box answers it.
#[test]
fn a_present_worker_says_hello_as_an_old_one_did() {
    let ip = own_address();
    let socket = UdpSocket::bind((ip, 22341)).expect("an address of its own");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let worker = std::thread::spawn(move || {
        let local = (ip, 7000).into();
        let mut config = weft_client::push::PushConfig::new(local, (ip, 22341).into());
        config.connect_timeout = Duration::from_secs(1);
        weft_client::push::PushSession::connect(&config).map(drop)
    });
    let mut datagram = vec![0; 2000];
    let len = socket.recv(&mut datagram).expect("a hello");
    let mut expected = without_draws(&read("worker-hello.bin"));
    let mut hello = without_draws(&datagram[..len]);
    // Its life.
    for datagram in [&mut expected, &mut hello] {
        datagram[40..48].fill(0);
    }
    assert_eq!(hello, expected);
    worker.join().expect("it ends").expect_err("nobody answers");
}
