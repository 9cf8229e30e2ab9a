//! Starts the controller and ends it: sockets, the core, statistics, signals.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tonic::service::Routes;
use tower_layer::layer_fn;
use weft_config::controller::ControllerConfig;
use weft_config::{Problem, StatsFormat};
use weft_controller_engine::{ConfigError, Controller, PolicySource, Saved, built_in_policies};
use weft_plan::policy::AnyPolicy;
use weft_rpc::v1::nodes_server::NodesServer;
use weft_rpc::v1::status_server::StatusServer;
use weft_rpc::v1::workers_server::WorkersServer;

use crate::auth::Refusals;
use crate::auth::certificates::Certificates;
use crate::auth::listener::connections;
use crate::auth::rights::Guard;
use crate::core::{Core, INPUTS_MAX, Input, JobPolicy, Snapshot};
use crate::error::DaemonError;
use crate::events::Events;
use crate::exec::{self, ExecPolicy, Limits};
use crate::northbound::Northbound;
use crate::southbound::node::Southbound;
use crate::state::StateFile;
use crate::status::{Reader, serve_metrics, write_json, write_text};

/// Checks a configuration as a whole: what [`Daemon::bind`] would refuse, without a socket.
///
/// # Errors
/// The first field that makes no sense.
pub fn check(config: &ControllerConfig) -> Result<(), DaemonError> {
    certificates(config)?;
    job_policy(config)?;
    let fresh = Saved::fresh(0);
    Controller::new(config.engine(), &fresh, policies(config)).map(|_| ()).map_err(refused)
}

/// The certificate that a configuration names; none where it needs none.
fn certificates(config: &ControllerConfig) -> Result<Option<Certificates>, DaemonError> {
    config.check()?;
    let loaded = config.tls.as_ref().map(|files| Certificates::load(files.into())).transpose();
    Ok(loaded.map_err(|error| Problem::new("tls", error.to_string()))?)
}

/// The policy of whole jobs, if one is named.
fn job_policy(config: &ControllerConfig) -> Result<Option<JobPolicy>, DaemonError> {
    Ok(config.job_policy.as_ref().map(JobPolicy::new).transpose()?)
}

fn refused(error: ConfigError) -> DaemonError {
    Problem::new(error.field, error.problem).into()
}

/// The policies that jobs can have, whoever names them: those built in, and `exec:CMD` for the
/// programs of the configuration. Any other would let whoever can register a job, or write the
/// state file, run a program here.
fn policies(config: &ControllerConfig) -> PolicySource {
    let built_in = built_in_policies();
    let programs = exec::programs(config);
    let limits = Limits::from(&config.tuning);
    Box::new(move |name| match ExecPolicy::from_name(name, limits) {
        Some(program) if programs.contains(program.command()) => {
            Ok(AnyPolicy::Own(Arc::new(program)))
        }
        Some(_) => Err(format!(
            "`{name}` is a program that the controller's configuration does not name; add it to \
             [policies] exec there, or ask for a built-in policy"
        )),
        None => built_in(name),
    })
}

/// Refuses a state whose jobs have policies that are not to be had any more: under another policy
/// they would be planned in a way that nobody asked for, and without one they would be forgotten.
fn check_registered(saved: &Saved, policies: &PolicySource) -> Result<(), String> {
    for job in &saved.registered {
        if let Some(Err(problem)) = job.policy.as_deref().map(policies) {
            return Err(format!("job `{}`, which was registered: policy: {problem}", job.name));
        }
    }
    Ok(())
}

/// A controller whose sockets are open.
#[derive(Debug)]
pub struct Daemon {
    listener: TcpListener,
    certificates: Option<Certificates>,
    controller: Controller,
    state_file: Option<StateFile>,
    config: ControllerConfig,
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Daemon {
    /// Reads the state and opens the socket.
    ///
    /// # Errors
    /// The configuration, the state or the address cannot be used.
    pub async fn bind(config: ControllerConfig) -> Result<Self, DaemonError> {
        let certificates = certificates(&config)?;
        job_policy(&config)?;
        let opened =
            config.state_file.clone().map(PathBuf::from).map(StateFile::open).transpose()?;
        let (state_file, known) = opened.unzip();
        let saved = known.flatten().unwrap_or_else(|| Saved::fresh(seed()));
        let policies = policies(&config);
        check_registered(&saved, &policies).map_err(|problem| DaemonError::State {
            path: config.state_file.clone().unwrap_or_default().into(),
            problem,
        })?;
        let controller = Controller::new(config.engine(), &saved, policies).map_err(refused)?;
        let addr = config.listen;
        let listen = |source| DaemonError::Listen { addr, what: "gRPC", source };
        let listener = TcpListener::bind(addr).await.map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        Ok(Self { listener, certificates, controller, state_file, config, addr })
    }

    /// Serves until `stop`; returns the last figures.
    ///
    /// # Errors
    /// The address for metrics cannot be used, or the gRPC server ended by itself.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<Snapshot, DaemonError> {
        let Self { listener, certificates, controller, state_file, config, addr } = self;
        let (core, inputs) = mpsc::channel(INPUTS_MAX);
        let period_ns = config.telemetry_period_ms.saturating_mul(1_000_000);
        let mut running = Core::new(controller, state_file, period_ns, random());
        if let Some(policy) = job_policy(&config)? {
            running.steer_by(policy);
        }
        if let Some(path) = &config.events {
            let events = Events::open(path.as_ref())
                .map_err(|source| DaemonError::Events { path: path.into(), source })?;
            running.record(events);
        }
        let running = tokio::spawn(running.run(inputs));
        let refusals = Arc::new(Refusals::default());
        let reader = Reader::new(core.clone(), Arc::clone(&refusals));
        let metrics = match config.metrics {
            Some(addr) => Some(serve_metrics(addr, reader.clone()).await?),
            None => None,
        };
        let reporter = report(&config, reader.clone());
        let reporter = tokio::spawn(reporter);
        let ready = serde_json::json!({
            "ready": true,
            "role": "controller",
            "listen": addr,
            "tls": certificates.is_some(),
            "metrics": metrics,
        });
        weft_process::say!("{ready}");
        weft_process::notify::ready();
        let guarded = Arc::clone(&refusals);
        let server = tonic::transport::Server::builder()
            .layer(layer_fn(move |inner: Routes| Guard::new(inner, Arc::clone(&guarded))))
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .add_service(WorkersServer::new(Northbound::new(core.clone())))
            .add_service(NodesServer::new(Southbound::new(core.clone())))
            .add_service(StatusServer::new(reader.clone()));
        let incoming = connections(listener, certificates, Arc::clone(&refusals));
        // Streams have no end of their own: they are cut, not waited for.
        let outcome = tokio::select! {
            served = server.serve_with_incoming(incoming) => served,
            () = stop => Ok(()),
        };
        outcome?;
        reporter.abort();
        let (answer, answered) = oneshot::channel();
        let _ = core.send(Input::Stop(answer)).await;
        let mut last = answered.await.unwrap_or_default();
        (last.connections_refused, last.calls_refused) = refusals.read();
        // It has answered, and lets go of the state file.
        let _ = running.await;
        Ok(last)
    }
}

/// Periodic statistics on stderr.
fn report(config: &ControllerConfig, reader: Reader) -> impl Future<Output = ()> + use<> {
    let period = Duration::from_secs(config.stats_period_s);
    let format = config.stats_format;
    async move {
        while !period.is_zero() {
            tokio::time::sleep(period).await;
            let Some(snapshot) = reader.read().await else { return };
            weft_process::say!("{}", write(&snapshot, format).trim_end());
        }
    }
}

/// The figures, with a line end.
#[must_use]
pub fn write(snapshot: &Snapshot, format: StatsFormat) -> String {
    match format {
        StatsFormat::Text => write_text(snapshot),
        StatsFormat::Json => write_json(snapshot) + "\n",
    }
}

/// A number that the last controller most likely did not start from.
fn seed() -> u16 {
    u16::try_from(random() & 0xffff).unwrap_or_default()
}

/// A number that differs from call to call.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library's hasher is keyed by the system's randomness.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// A peer that answers nothing for so long is gone.
const KEEPALIVE: Duration = Duration::from_secs(2);
