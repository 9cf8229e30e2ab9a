//! Every recipe of `dataplane/node/configs` serves the clients that its comment names: the commands
//! are those of the comment, as they stand there, in namespaces of their own. A recipe that is new
//! has to be named here first.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weft_tests::live::documents::of_recipe;
use weft_tests::live::{PATIENCE, eventually, has_dpdk, has_lab, skip};

use crate::live_documents::{Namespace, Reader, Running, root, said};

/// The test of a recipe.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Its commands run, and the output of each client has this.
    Says(&'static str),
    /// The commands are another recipe's.
    With(&'static str),
    /// Is read by `--check-config` alone, and why.
    Checked(&'static str),
}

use How::{Checked, Says, With};

const RECIPES: &[(&str, How)] = &[
    ("af-packet-veth.toml", Says(SUM)),
    ("dpdk-memif.toml", Says(SUM)),
    ("dpdk-veth.toml", Says(SUM)),
    ("keys.toml", Says("\n3\n")),
    ("mlx5.toml", Checked("needs such a NIC")),
    ("push.toml", With("server.toml")),
    ("replica.toml", With("server.toml")),
    // The truth of the example is 0.25, 0.5 and so on.
    ("server-alone.toml", Says("step 180: loss 0.0")),
    ("server.toml", Says("step 180: loss 0.0")),
    ("switch.toml", Checked("tests/tests/live_switch.rs starts such a switch")),
    ("two-level-leaf.toml", Says("4 workers, sum 6")),
    ("two-level-root.toml", With("two-level-leaf.toml")),
    ("udp.toml", Says(SUM)),
];

/// The sum of two of the example `allreduce`.
const SUM: &str = "gradient[7] is now 1.75";

/// Files of the recipes, and the names of namespaces, end with the namespace.
const ALONE: &str = "mount -t tmpfs tmpfs /run && mkdir /run/netns && \
                     mount -t tmpfs tmpfs /var/tmp && ip link set lo up";

const FOLDER: &str = "dataplane/node/configs";

#[test]
fn every_recipe_serves_the_clients_that_it_names() {
    let mut names: Vec<_> = fs::read_dir(root().join(FOLDER))
        .expect("the folder can be read")
        .map(|file| file.expect("a file").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    let known: Vec<_> = RECIPES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, known, "a recipe is run by no test, or is gone");
    let test = "every_recipe_serves_the_clients_that_it_names";
    let can_run = has_lab(test);
    let reader = Reader::new();
    for (name, how) in RECIPES {
        let path = format!("{FOLDER}/{name}");
        let commands = of_recipe(&fs::read_to_string(root().join(&path)).expect("a recipe"));
        match how {
            Says(_) if !can_run => {}
            Says(_) if name.starts_with("dpdk") && !has_dpdk(test) => {}
            Says(_) if commands.iter().any(|it| it.starts_with("ethtool")) && !has_ethtool() => {
                skip(&path, "ethtool is not installed");
            }
            Says(text) => run(&reader, name, &commands, text),
            With(other) => {
                let of_other = fs::read_to_string(root().join(FOLDER).join(other));
                let commands = of_recipe(&of_other.expect("a recipe"));
                assert!(commands.iter().any(|it| it.contains(&path)), "{other} starts no {name}");
            }
            Checked(why) => {
                let mut command =
                    reader.shell(&format!("weft-node --config {path} --check-config"));
                let output = command.current_dir(root()).output().expect("bash runs");
                assert!(output.status.success(), "{name} ({why}): {}", said(&output));
            }
        }
    }
}

fn has_ethtool() -> bool {
    Command::new("ethtool").arg("--version").output().is_ok()
}

/// A client, and its output.
struct Client(Running, PathBuf);

impl Client {
    fn said(&self) -> String {
        fs::read_to_string(&self.1).expect("a log")
    }
}

/// Runs a recipe's commands: boxes go on until all clients have ended.
fn run(reader: &Reader, name: &str, commands: &[String], expected: &str) {
    let namespace = Namespace::new(ALONE);
    let (mut boxes, mut clients) = (Vec::new(), Vec::<Client>::new());
    let mut typed = 0;
    for (index, command) in commands.iter().enumerate() {
        let log = reader.path(&format!("{name}.{index}.log"));
        if command.contains("weft-node ") || command.starts_with("weft-bridge ") {
            let running = start(&namespace, reader.shell(command), &log);
            let is_ready = || fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"));
            assert!(eventually(PATIENCE, is_ready), "{name}: `{command}` is not ready");
            boxes.push(running);
        } else if command.contains(" --example ") {
            clients.push(Client(start(&namespace, reader.shell(command), &log), log));
        } else if command.starts_with("push ") || command.starts_with("pull ") {
            // Each client answers with a line, after its first one, `ready`.
            typed += 1;
            for client in &mut clients {
                let stdin = client.0.0.stdin.as_mut().expect("piped");
                writeln!(stdin, "{command}").expect("it reads");
            }
            let is_answered = |client: &Client| client.said().lines().count() > typed;
            let answered = eventually(PATIENCE, || clients.iter().all(is_answered));
            assert!(answered, "{name}: `{command}` is not answered");
        } else {
            let mut bash = reader.bash(command);
            let output = namespace.wrap(bash.current_dir(root())).output().expect("bash runs");
            assert!(output.status.success(), "{name}: `{command}`: {}", said(&output));
        }
    }
    assert!(!boxes.is_empty() && clients.len() > 1, "{name}: {commands:?}");
    for client in &mut clients {
        drop(client.0.0.stdin.take());
        let child = &mut client.0.0;
        let is_over = eventually(PATIENCE, || !matches!(child.try_wait(), Ok(None)));
        assert!(is_over, "{name}: a client does not end: {}", client.said());
        let text = client.said();
        assert!(client.0.0.wait().expect("it has ended").success(), "{name}: {text}");
        assert!(text.contains(expected), "{name}: {text}");
    }
    for running in boxes {
        let status = running.end().status;
        assert!(status.success(), "{name}: a box ends with {status}");
    }
}

fn start(namespace: &Namespace, mut command: Command, log: &Path) -> Running {
    let mut wrapped = namespace.wrap(command.current_dir(root()));
    let file = File::create(log).expect("a log");
    wrapped.stdin(Stdio::piped()).stdout(file.try_clone().expect("a log")).stderr(file);
    Running(wrapped.spawn().expect("nsenter runs"))
}

/// Starts a recipe's box and its clients, without an `ethtool` line, from a file in which `from`
/// stands for `to`.
fn start_changed(
    reader: &Reader,
    namespace: &Namespace,
    name: &str,
    [from, to]: [&str; 2],
) -> (Client, Vec<Client>) {
    let recipe = fs::read_to_string(root().join(FOLDER).join(name)).expect("a recipe");
    assert!(recipe.contains(from), "{recipe}");
    let file = reader.path(name);
    fs::write(&file, recipe.replace(from, to)).expect("a file");
    let path = file.to_str().expect("a path of text");
    let mut started = Vec::new();
    for (index, command) in of_recipe(&recipe).iter().enumerate() {
        let log = reader.path(&format!("{index}.log"));
        let command = command.replace(&format!("{FOLDER}/{name}"), path);
        if command.contains("weft-node ") || command.contains(" --example ") {
            started.push(Client(start(namespace, reader.shell(&command), &log), log));
            let is_ready = || started[0].said().contains("ready");
            assert!(eventually(PATIENCE, is_ready), "{}", started[0].said());
        } else if !command.starts_with("ethtool") {
            let output = namespace.wrap(&reader.bash(&command)).output().expect("bash runs");
            assert!(output.status.success(), "`{command}`: {}", said(&output));
        }
    }
    (started.remove(0), started)
}

/// A box that checks checksums refuses all that comes without one.
#[test]
fn offloads_that_are_on_are_named_by_the_box() {
    let test = "offloads_that_are_on_are_named_by_the_box";
    if !(has_lab(test) && has_dpdk(test)) {
        return;
    }
    let (reader, namespace) = (Reader::new(), Namespace::new(ALONE));
    let change = ["\nmembers", "\nintegrity = \"checksum16\"\nmembers"];
    let (Client(running, log), mut clients) =
        start_changed(&reader, &namespace, "dpdk-veth.toml", change);
    for client in &mut clients {
        let is_over = eventually(PATIENCE, || !matches!(client.0.0.try_wait(), Ok(None)));
        assert!(is_over, "a client does not end: {}", client.said());
    }
    assert!(running.end().status.success());
    let text = fs::read_to_string(log).expect("a log");
    for reason in ["length", "integrity"] {
        let line = format!("weft-node: warning: agg0 refuses frames for {reason}: ");
        assert_eq!(text.matches(&line).count(), 1, "{text}");
    }
}
