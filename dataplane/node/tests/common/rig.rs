//! A controller of two push jobs whose servers share a node with bands, in a lab of two namespaces.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use weft_client::push::{PushConfig, PushSession};
use weft_config::controller::{BandsConfig, ControllerConfig, HostConfig, JobConfig};
use weft_config::node::{
    BandsSection, ControllerSection, Io, NodeConfig, PortSection, ServerSection,
};
use weft_controller::daemon::Daemon;
use weft_rpc::v1;
use weft_rpc::v1::status_client::StatusClient;
use weft_rpc::v1::workers_client::WorkersClient;

use crate::common::{ConfigFile, PATIENCE, Running};
use crate::lab::{Lab, ip};

/// One lab at a time: its names are the process's.
static ALONE: Mutex<()> = Mutex::new(());
pub(crate) const NODE: [u8; 4] = [10, 77, 0, 1];
pub(crate) const UDP_PORT: u16 = 0x5745;
pub(crate) const PEER: [u8; 4] = [10, 77, 0, 2];
/// The link of the node's host.
pub(crate) const RATE_BYTES_PER_SEC: u64 = 1_250_000;
/// The labels that a controller gives first.
pub(crate) const LABELS: [u8; 2] = [3, 7];

pub(crate) struct Rig {
    pub(crate) lab: Lab,
    controller: SocketAddr,
    config: ControllerConfig,
    dimension: usize,
    serving: Option<(tokio::sync::oneshot::Sender<()>, JoinHandle<()>)>,
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    /// A lab with a controller of two push jobs in the peer's namespace; `None` where there can be
    /// none.
    pub(crate) fn up(policy: &str) -> Option<Self> {
        Self::up_with(policy, 1000)
    }

    /// The same, with models of so many parameters.
    pub(crate) fn up_with(policy: &str, dimension: usize) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lab = Lab::up()?;
        let add = ["-n", &lab.node, "addr", "add", "10.77.0.1/24", "dev", "vn0"];
        // The operator calls from where the controller is.
        let lo = ["-n", &lab.peer, "link", "set", "lo", "up"];
        for step in [&add[..], &lo[..]] {
            let done = ip(step);
            assert!(done.status.success(), "{step:?}: {done:?}");
        }
        let mut config = ControllerConfig::new(SocketAddr::from((PEER, 0)));
        config.insecure = true;
        config.hosts = ["s0", "w0"].map(HostConfig::named).into();
        let size = u64::try_from(dimension).expect("few parameters");
        let job = |index: u16| JobConfig::new(&format!("j{index}"), index, size, ["w0"], "s0");
        config.jobs = vec![job(0), job(1)];
        config.bands = Some(BandsConfig { policy: policy.parse().unwrap(), interval_s: 3600 });
        let mut rig = Self {
            lab,
            controller: config.listen,
            config,
            dimension,
            serving: None,
            _alone: alone,
        };
        rig.serve();
        Some(rig)
    }

    /// Starts the controller.
    fn serve(&mut self) {
        let (told, ready) = channel::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (namespace, config) = (namespace(&self.lab.peer), self.config.clone());
        let serving = std::thread::spawn(move || {
            enter(&namespace);
            runtime().block_on(async {
                let daemon = Daemon::bind(config).await.expect("a controller");
                told.send(daemon.addr).expect("the test waits");
                let stopped = async { drop(stopped.await) };
                daemon.run(stopped).await.expect("it serves");
            });
        });
        self.controller = ready.recv_timeout(PATIENCE).expect("it listens");
        self.serving = Some((stop, serving));
    }

    /// The controller ends, and another one begins where it was, with another file.
    pub(crate) fn begins_anew(&mut self, change: impl FnOnce(&mut ControllerConfig)) {
        let (stop, serving) = self.serving.take().expect("it serves");
        let _ = stop.send(());
        serving.join().expect("it ended");
        self.config.listen = self.controller;
        change(&mut self.config);
        self.serve();
    }

    pub(crate) fn config(&self, name: &str, bands: Option<BandsSection>) -> ConfigFile {
        self.config_of(name, bands, 1000, |_| {})
    }

    /// The node with models of so many parameters; `change` has the last word.
    pub(crate) fn config_of(
        &self,
        name: &str,
        bands: Option<BandsSection>,
        dimension: usize,
        change: impl FnOnce(&mut NodeConfig),
    ) -> ConfigFile {
        let port = PortSection::new(Io::Udp, IpAddr::from(NODE));
        let mut config = NodeConfig::new(port);
        config.node.name = "s0".to_owned();
        let endpoint = format!("http://{}", self.controller);
        config.controller = Some(ControllerSection { endpoint, name: None, tls: None });
        let worker = |port| vec![SocketAddr::from((PEER, port))];
        config.server = [(0, 4000), (1, 4001)]
            .map(|(job, port)| ServerSection::new(job, worker(port), dimension))
            .into();
        config.bands = bands;
        change(&mut config);
        ConfigFile::new(name, &config)
    }

    /// Pulls the model of a job until it is told to stop, or so often; returns how long each took.
    pub(crate) fn puller(
        &self,
        job: u16,
        times: usize,
        stop: &Arc<AtomicBool>,
    ) -> JoinHandle<Vec<Duration>> {
        let (at, stop) = (namespace(&self.lab.peer), Arc::clone(stop));
        let dimension = self.dimension;
        std::thread::spawn(move || {
            enter(&at);
            let addr = |host, port| SocketAddr::from((host, port));
            let config = PushConfig::new(addr(PEER, 4000 + job), addr(NODE, UDP_PORT)).job(job);
            let mut session = PushSession::connect(&config).expect("the server answers");
            let mut model = vec![0f32; dimension];
            let mut took = Vec::new();
            while took.len() < times && !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                session.pull(&mut model).expect("a model");
                took.push(begun.elapsed());
            }
            session.close().expect("a close");
            took
        })
    }

    pub(crate) fn start(&self, config: &ConfigFile) -> Running {
        Running::start(&mut self.lab.weft_node(config, &["--format", "json"]))
    }

    /// Calls the controller from the peer's namespace.
    fn call<T: Send>(&self, call: impl AsyncFnOnce(Channel) -> T + Send) -> T {
        let (namespace, uri) = (namespace(&self.lab.peer), format!("http://{}", self.controller));
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                enter(&namespace);
                runtime().block_on(async {
                    let channel = Channel::from_shared(uri).unwrap().connect().await.unwrap();
                    call(channel).await
                })
            });
            caller.join().expect("the call came back")
        })
    }

    pub(crate) fn status(&self) -> v1::StatusReply {
        self.call(async |channel| {
            StatusClient::new(channel).read(v1::StatusRequest {}).await.unwrap().into_inner()
        })
    }

    pub(crate) fn set(&self, policy: v1::BandPolicy, interval_s: u64) -> v1::SetBandPolicyReply {
        self.call(async |channel| {
            let request =
                v1::SetBandPolicyRequest { policy: policy.into(), interval_s, seen_change: None };
            WorkersClient::new(channel).set_band_policy(request).await.unwrap().into_inner()
        })
    }

    /// Waits until the node has given every job the band that it is to have.
    pub(crate) fn settled(&self, bands: [Option<u32>; 2]) -> v1::StatusReply {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            let is_settled = status.jobs.iter().zip(bands).all(|(job, band)| {
                let done = u32::from(band.is_some());
                job.band == band && job.band_boxes_done == done && job.band_boxes_awaited == 0
            });
            if is_settled {
                return status;
            }
            assert!(Instant::now() < deadline, "not {bands:?}: {:?}", status.jobs);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the status is as it is to be.
    pub(crate) fn status_until(
        &self,
        what: &str,
        is_so: impl Fn(&v1::StatusReply) -> bool,
    ) -> v1::StatusReply {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{what}: {status:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until each job has been refused its band for this.
    pub(crate) fn refused(&self, reason: &str) -> v1::StatusReply {
        let is_so = |job: &v1::JobStatus| job.band_refused.contains(reason);
        self.status_until(reason, |status| status.jobs.iter().all(is_so))
    }

    /// `ip` in the node's namespace.
    pub(crate) fn ip(&self, line: &str) {
        let words: Vec<&str> = ["-n", &self.lab.node].into_iter().chain(line.split(' ')).collect();
        let output = ip(&words);
        assert!(output.status.success(), "ip {line}: {output:?}");
    }

    pub(crate) fn tc(&self, line: &str) -> String {
        let words = line.split_whitespace();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.lab.node, "tc"]).args(words);
        let output = command.output().expect("iproute2 is installed");
        assert!(output.status.success(), "tc {line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The class of each label, by the kernel's filters for IPv4 under a root.
    pub(crate) fn classes_of_labels(&self, root: &str) -> [String; 2] {
        let text = self.tc(&format!("filter show dev vn0 parent {root}"));
        LABELS.map(|label| {
            let handle = format!("::{label:x} order");
            let line = text.lines().find(|l| l.contains(" pref 22341 ") && l.contains(&handle));
            let line = line.unwrap_or_else(|| panic!("no filter for {label} in {text}"));
            let class = line.split("flowid ").nth(1).expect("a class");
            class.split_whitespace().next().expect("a class").to_owned()
        })
    }

    /// Shapes the node's interface as `weft lab` does: under `1:1` there may be classes of jobs.
    pub(crate) fn shape_as_a_lab(&self) {
        for line in [
            "qdisc add dev vn0 root handle 1: htb default 10",
            "class add dev vn0 parent 1: classid 1:1 htb rate 20mbit ceil 20mbit burst 15k",
            "class add dev vn0 parent 1:1 classid 1:10 htb rate 100kbit ceil 20mbit prio 7",
            "qdisc add dev vn0 parent 1:10 handle 10: pfifo limit 100",
        ] {
            self.tc(line);
        }
    }

    /// Disciplines, classes and filters, sorted: the kernel's tables are hashed.
    pub(crate) fn listed(&self) -> [Vec<String>; 3] {
        ["qdisc", "class", "filter"].map(|what| {
            let text = self.tc(&format!("{what} show dev vn0"));
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        })
    }

    pub(crate) fn is_clean(&self) -> bool {
        let text = self.tc("-j qdisc show dev vn0");
        text.contains("\"noqueue\"") && !text.contains("htb")
    }

    pub(crate) fn wait_until_clean(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_clean() {
            assert!(Instant::now() < deadline, "{}", self.tc("qdisc show dev vn0"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.serving.take().map(|(stop, _)| stop.send(()));
    }
}

pub(crate) fn mean(times: &[Duration]) -> f64 {
    times.iter().sum::<Duration>().as_secs_f64() / times.len() as f64
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) fn namespace(name: &str) -> File {
    File::open(format!("/run/netns/{name}")).expect("it is there")
}

pub(crate) fn enter(namespace: &File) {
    setns(namespace, CloneFlags::CLONE_NEWNET).expect("root may enter");
}
