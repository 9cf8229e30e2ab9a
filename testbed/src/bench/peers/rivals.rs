//! Builds and runs the peers' programs (`testbed/bench/peers`): one for OpenMPI, one for Gloo.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use weft_kernel::Kernels;

use super::row::limit;
use super::{Case, Peer, Place, WARM_UP};
use crate::bench::member::MemberResult;
use crate::bench::network::Network;
use crate::bench::place::allowed_cpus;
use crate::bench::process::{BenchError, Program, Running, adopt, reap};

/// The programs that this machine can build, and how each peer was built.
#[derive(Debug)]
pub struct Rivals {
    directory: PathBuf,
    weft: String,
    /// Nothing where it is not installed.
    mpi: Option<String>,
    gloo: Option<String>,
}

impl Rivals {
    /// Builds them in `directory`. What is not installed is left out, and said so.
    ///
    /// # Errors
    /// When the sources cannot be written, or on a signal.
    pub fn build(directory: &Path) -> Result<Self, BenchError> {
        for (name, text) in SOURCES {
            let path = directory.join(name);
            fs::write(&path, text)
                .map_err(BenchError::system(format!("writing {}", path.display())))?;
        }
        let has_mpi = builds(
            "OpenMPI is left out: apt-get install openmpi-bin libopenmpi-dev",
            Command::new("mpicc").args(MPI_FLAGS).args(["-o", "mpi", "mpi_allreduce.c"]),
            directory,
        )?;
        let has_gloo = builds(
            "Gloo is left out: apt-get install libgloo-dev g++",
            Command::new("g++").args(GLOO_FLAGS).args([
                "-std=c++17",
                "-o",
                "gloo",
                "gloo_allreduce.cc",
                "-lgloo",
                "-lpthread",
            ]),
            directory,
        )?;
        let agent = directory.join("agent");
        fs::write(&agent, AGENT)
            .and_then(|()| fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)))
            .map_err(BenchError::system("writing mpirun's agent".to_owned()))?;
        Ok(Self {
            directory: directory.to_owned(),
            weft: weft_build(),
            mpi: has_mpi.then(mpi_build),
            gloo: has_gloo.then(gloo_build),
        })
    }

    /// Peers that this machine has, and how each was built.
    pub fn builds(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("weft", Some(&self.weft)),
            ("openmpi", self.mpi.as_ref()),
            ("gloo", self.gloo.as_ref()),
        ];
        all.into_iter().filter_map(|(name, build)| Some((name, build?.as_str())))
    }

    /// How a peer was built; `None` where this machine lacks it.
    pub(super) fn build_of(&self, peer: Peer) -> Option<&str> {
        match peer {
            Peer::OpenMpi | Peer::OpenMpiRing | Peer::OpenMpiShm => self.mpi.as_deref(),
            Peer::Gloo => self.gloo.as_deref(),
            _ => Some(&self.weft),
        }
    }

    /// Runs one of them to its end.
    pub(super) fn run(
        &self,
        network: &Network,
        place: Place,
        case: Case,
        iterations: u32,
    ) -> Result<Vec<MemberResult>, BenchError> {
        let count = (case.bytes / 4).max(1);
        let sums = [count.to_string(), WARM_UP.to_string(), iterations.to_string()];
        let ips = (0..place.workers).map(|rank| network.local(rank, 1).ip().to_string());
        let ips: Vec<String> = ips.collect();
        let limit = limit(place, case, iterations);
        let outputs = match case.peer {
            Peer::Gloo => self.run_gloo(network, &ips, &sums, case, limit)?,
            peer => vec![self.run_mpi(network, &ips, &sums, peer, limit)?],
        };
        let lines = outputs.iter().flat_map(|text| text.lines());
        let lines = lines.filter(|line| line.starts_with('{'));
        let failed = |how: String| BenchError::Process {
            program: case.peer.words().0.to_owned(),
            how,
            stderr: outputs.concat(),
        };
        let results: Vec<MemberResult> = lines
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .map_err(|error| failed(format!("printed no result: {error}")))?;
        if results.len() == ips.len() {
            Ok(results)
        } else {
            Err(failed(format!("printed {} results of {}", results.len(), ips.len())))
        }
    }

    fn run_mpi(
        &self,
        network: &Network,
        ips: &[String],
        sums: &[String],
        peer: Peer,
        limit: Duration,
    ) -> Result<String, BenchError> {
        let mut command = network.command("w0", Path::new("mpirun"));
        command.args(["--allow-run-as-root", "--mca", "pml", "ob1", "-np"]);
        command.arg(ips.len().to_string());
        if peer == Peer::OpenMpiShm {
            through_memory(&mut command, ips.len());
        } else {
            self.over_tcp(&mut command, network, ips, peer == Peer::OpenMpiRing)?;
        }
        command.arg(self.directory.join("mpi")).args(sums);
        adopt();
        let output = Running::start("mpirun", &mut command)?.within(limit).finish();
        reap();
        output
    }

    /// TCP between the namespaces: shared memory would go around them.
    fn over_tcp(
        &self,
        command: &mut Command,
        network: &Network,
        ips: &[String],
        is_ring: bool,
    ) -> Result<(), BenchError> {
        let hosts: Vec<String> = ips.iter().map(|ip| format!("{ip}:1")).collect();
        command
            .args(["--host", &hosts.join(","), "--mca", "plm_rsh_agent"])
            .arg(self.directory.join("agent"))
            .args(["--mca", "btl", "tcp,self"])
            .args(["--mca", "btl_tcp_if_include", SUBNET, "--mca", "oob_tcp_if_include", SUBNET])
            .args(["--mca", "plm_rsh_no_tree_spawn", "1"])
            // Every host is this one: each would bind its only rank to the same first core.
            .args(["--bind-to", "none"])
            // Ranks share CPUs here; else those that wait would keep them from those that work.
            .args(YIELD);
        if is_ring {
            command.args(["--mca", "coll_tuned_use_dynamic_rules", "1"]);
            command.args(["--mca", "coll_tuned_allreduce_algorithm", "4"]);
        }
        let lab = network.name().map(ToString::to_string).unwrap_or_default();
        let this = std::env::current_exe().map_err(BenchError::system("finding this program"))?;
        command.env("WEFT_BIN", this).env("WEFT_PEERS_LAB", lab);
        Ok(())
    }

    fn run_gloo(
        &self,
        network: &Network,
        ips: &[String],
        sums: &[String],
        case: Case,
        limit: Duration,
    ) -> Result<Vec<String>, BenchError> {
        let store = self.directory.join("store");
        // Files of the run before would be taken for this one's.
        let _ = fs::remove_dir_all(&store);
        fs::create_dir_all(&store)
            .map_err(BenchError::system(format!("making {}", store.display())))?;
        let algorithm = case.algorithm.unwrap_or_default().word();
        let start = |(rank, ip): (usize, &String)| {
            let mut command = network.command(&format!("w{rank}"), &self.directory.join("gloo"));
            command.args(sums).arg(rank.to_string()).arg(ips.len().to_string());
            command.arg(ip).arg(&store).arg(algorithm);
            Running::start(&format!("gloo {rank}"), &mut command)
        };
        let begun = Instant::now();
        let ranks: Vec<Running> = ips.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let finish = |rank: Running| rank.within(limit.saturating_sub(begun.elapsed())).finish();
        ranks.into_iter().map(finish).collect()
    }
}

/// Shared memory of one host, where ranks without a CPU of their own let the others go on.
fn through_memory(command: &mut Command, ranks: usize) {
    command.args(["--mca", "btl", "self,vader"]);
    if ranks > allowed_cpus().len() {
        command.args(["--oversubscribe", "--bind-to", "none"]).args(YIELD);
    } else {
        command.arg("--use-hwthread-cpus");
    }
}

/// True when a program was built.
fn builds(hint: &str, command: &mut Command, directory: &Path) -> Result<bool, BenchError> {
    let compiler = command.get_program().to_string_lossy().into_owned();
    let built = Running::start(&compiler, command.current_dir(directory))
        .and_then(|running| running.within(BUILD_LIMIT).finish());
    match built {
        Ok(_) => Ok(true),
        Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
        Err(_) => {
            weft_process::say!("weft: {hint}");
            Ok(false)
        }
    }
}

fn weft_build() -> String {
    let node = Program::node().map_or_else(|_| "no weft-node".to_owned(), |node| node.version);
    format!(
        "{node}; weft {} ({}; target features {}), {} arithmetic",
        env!("CARGO_PKG_VERSION"),
        env!("WEFT_PROFILE"),
        env!("WEFT_TARGET_FEATURES"),
        Kernels::detect().isa(),
    )
}

fn mpi_build() -> String {
    let version = said("mpirun", &["--version"]);
    // "mpirun (Open MPI) 4.1.4", and a line for complaints.
    let version = version.lines().next().and_then(|line| line.split_whitespace().last());
    format!("Open MPI {}, mpicc {}", version.unwrap_or("?"), MPI_FLAGS.join(" "))
}

fn gloo_build() -> String {
    let version = said("dpkg-query", &["-W", "-f", "${Version}", "libgloo-dev"]);
    let version = if version.is_empty() { "?" } else { &version };
    let compiler = said("g++", &["-dumpfullversion"]);
    format!("libgloo {version}, g++ {compiler} {}", GLOO_FLAGS.join(" "))
}

/// The output of a program; empty where the program cannot run.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output
        .map_or_else(|_| String::new(), |it| String::from_utf8_lossy(&it.stdout).trim().to_owned())
}

const SOURCES: [(&str, &str); 3] = [
    ("allreduce.h", include_str!("../../../bench/peers/allreduce.h")),
    ("mpi_allreduce.c", include_str!("../../../bench/peers/mpi_allreduce.c")),
    ("gloo_allreduce.cc", include_str!("../../../bench/peers/gloo_allreduce.cc")),
];

/// What mpirun takes for ssh: runs a command on the host with this address, which is a namespace.
const AGENT: &str = r#"#!/bin/bash
address=$1
shift
exec "$WEFT_BIN" lab exec "$WEFT_PEERS_LAB" "w$((${address##*.} - 1))" -- bash -c "$*"
"#;
/// The network of a lab's star.
const SUBNET: &str = "10.87.0.0/24";
const YIELD: [&str; 3] = ["--mca", "mpi_yield_when_idle", "1"];
/// The loops of OpenMPI are in its library, those of Gloo in its headers.
const MPI_FLAGS: [&str; 1] = ["-O3"];
const GLOO_FLAGS: [&str; 2] = ["-O3", "-march=native"];
const BUILD_LIMIT: Duration = Duration::from_secs(300);
