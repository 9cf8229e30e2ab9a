//! The workers' training in virtual time, and what is seen of it: what `run/push/worker.rs` does
//! over a client's session, and `run/processes.rs` around it.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft_control::{Command, Decision, Event, GroupDescriptor, Mode, Version};
use weft_engine::role::push::Values;
use weft_node::agent::EventLines;
use weft_sim::engine::Engine;
use weft_sim::links::Links;
use weft_sim::push::application::{Application, Next, Standing, Update};
use weft_sim::push::node::BoxNode;
use weft_sim::push::scenario::Action;
use weft_sim::push::topology;
use weft_sim::push::worker::{WorkerNode, WorkerOutput};
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{JobId, Nanos};

use super::box_names;
use crate::run::packet::{LOOK_EVERY, PacketError, RESTART_PAUSE, bytes_per_sec};
use crate::run::plan::{Plan, WorkerPlan, model_path};
use crate::run::push::log::{BoxEvent, LogLine};
use crate::run::push::recorded::Answers;
use crate::run::push::recording::{UpdateRecording, updates_path};
use crate::run::push::worker::{STEPS_OF_A_LIFE, STREAM_COMPUTE};
use crate::run::watch::{Due, SILENCE_MARGIN, Watch};
use crate::run::{
    BoxCounters, Observed, UpdateMessage, UpdateOutcome, WorkerMessage, WorkerSummary,
};
use crate::scenario::{CONTROLLER, Scenario};
use crate::workload::digits::{SplitMix64, Trainer, model_bytes};

/// The workers' training, and what is seen of the run.
pub(super) struct Training<'a> {
    scenario: &'a Scenario,
    plan: &'a Plan,
    directory: &'a Path,
    answers: Arc<Mutex<Answers>>,
    progress: &'a mut dyn FnMut(u8, &WorkerMessage),
    interrupted: &'a dyn Fn() -> bool,
    is_interrupted: bool,
    looks: u32,
    workers: Vec<Worker>,
    /// Version at which workers end.
    end: u64,
    watch: Watch<'a>,
    /// Zero of the virtual clock, for [`Watch`].
    origin: Instant,
    heard: Nanos,
    actions: VecDeque<Action>,
    /// By box, in the order of the plan.
    logs: Vec<(EventLines, Vec<LogLine>)>,
    planned: Vec<LogLine>,
    observed: Observed,
    error: Option<PacketError>,
}

/// One worker's training.
struct Worker {
    trainer: Trainer,
    recording: UpdateRecording,
    random: SplitMix64,
    life: u32,
    next: Next,
    has_joined: bool,
    is_done: bool,
    update: Vec<f32>,
    number: u64,
    message: UpdateMessage,
    asked_at: Nanos,
    granted_at: Option<Nanos>,
    summary: WorkerSummary,
}

impl<'a> Training<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        plan: &'a Plan,
        directory: &'a Path,
        answers: Arc<Mutex<Answers>>,
        progress: &'a mut dyn FnMut(u8, &WorkerMessage),
        interrupted: &'a dyn Fn() -> bool,
    ) -> Result<Self, PacketError> {
        let workers = plan.workers.iter().map(|plan| Worker::new(plan, directory, 0));
        let origin = Instant::now();
        Ok(Self {
            scenario,
            plan,
            directory,
            answers,
            progress,
            interrupted,
            is_interrupted: false,
            looks: 0,
            workers: workers.collect::<Result<_, _>>()?,
            end: plan.workers[0].last_version(),
            watch: Watch::new(scenario, plan, scenario.job.member_timeout(), origin),
            origin,
            heard: Nanos(0),
            actions: VecDeque::new(),
            logs: plan
                .boxes
                .iter()
                .map(|planned| {
                    let mut config = planned.config.clone();
                    let job = topology::job_id(0).0;
                    config.server.iter_mut().for_each(|section| section.job = job);
                    config.replica.iter_mut().for_each(|section| section.job = job);
                    (EventLines::new(&config), Vec::new())
                })
                .collect(),
            planned: Vec::new(),
            observed: Observed::default(),
            error: None,
        })
    }

    /// The model that everybody starts from.
    pub(super) fn initial(&self) -> Vec<f32> {
        self.workers[0].trainer.parameters().to_vec()
    }

    /// What was seen.
    ///
    /// # Errors
    /// What ended the run before its time.
    pub(super) fn observed(self) -> Result<Observed, PacketError> {
        if self.is_interrupted {
            return Err(PacketError::Interrupted);
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut observed = self.observed;
        observed.reached = self.watch.reached();
        let names = self.plan.boxes.iter().map(|planned| planned.name.clone());
        observed.logs = names.zip(self.logs.into_iter().map(|(_, lines)| lines)).collect();
        if self.plan.controller.is_some() {
            observed.logs.push((CONTROLLER.to_owned(), self.planned));
        }
        Ok(observed)
    }

    /// Where a box of the simulation is in the plan.
    fn box_of(&self, node: usize) -> usize {
        let name = &box_names(self.plan)[node];
        let place = self.plan.boxes.iter().position(|planned| planned.name == *name);
        place.expect("every box is of the plan")
    }

    fn worker(&mut self, worker: Standing) -> &mut Worker {
        let life = u32::try_from(worker.life).unwrap_or(u32::MAX);
        if self.workers[worker.rank].life != life {
            match Worker::new(&self.plan.workers[worker.rank], self.directory, life) {
                Ok(new) => self.workers[worker.rank] = new,
                Err(error) => self.error = Some(error),
            }
        }
        &mut self.workers[worker.rank]
    }

    /// Takes in what a life of a worker says.
    fn hear(&mut self, now: Nanos, rank: usize, life: u32, message: WorkerMessage) {
        self.heard = now;
        let rank = u8::try_from(rank).expect("a rank is below 64");
        (self.progress)(rank, &message);
        let at = self.origin + Duration::from_nanos(now.0);
        let noted = self.watch.note(rank, &message, at);
        self.end = noted.end.unwrap_or(self.end);
        self.observed.ended = self.observed.ended.take().or(noted.ended);
        self.observed.take(rank, life, message);
        noted.due.into_iter().for_each(|due| self.go_on(now, due));
    }

    /// The outcome of a worker's update is known.
    fn take_outcome(&mut self, now: Nanos, worker: Standing, outcome: UpdateOutcome, version: u64) {
        let (push, per_round) = (self.plan.workers[0].push(), self.scenario.updates_per_round());
        let end = self.end;
        let known = self.worker(worker);
        (known.message.outcome, known.message.committed_version) = (outcome, version);
        known.message.outcome_ns = now.0;
        let message = std::mem::take(&mut known.message);
        known.message.pull_ns = now.0;
        known.number += 1;
        known.summary.updates_dropped += u64::from(outcome != UpdateOutcome::Committed);
        let is_committed = outcome == UpdateOutcome::Committed;
        known.next = match push.mode {
            Mode::Async if version >= end => Next::Leave,
            Mode::Async => Next::Pull(None),
            Mode::Sync | Mode::Partial => {
                let last = if is_committed { version - 1 } else { message.version };
                let round_ends = (last / per_round + 1) * per_round;
                Next::Pull(Some(Version(round_ends - 1)))
            }
        };
        let life = known.life;
        self.hear(now, worker.rank, life, WorkerMessage::Update(message));
    }

    /// Does what is due.
    fn go_on(&mut self, now: Nanos, due: Due<'_>) {
        let (name, is_final) = match due {
            Due::Rate(step) => {
                self.observed.rate_steps.push((now.0, step.clone()));
                let host = self.host(&step.name);
                let rates = bytes_per_sec(step.rates());
                return self.actions.extend(host.map(|host| Action::SetRates { host, rates }));
            }
            Due::Restart(name) => (name, false),
            Due::Crash(name) => (name, true),
        };
        let boxes = self.plan.boxes.len();
        let action = match self.host(name) {
            None => Action::RestartController {
                pause: if is_final { Nanos::MAX } else { RESTART_PAUSE },
            },
            Some(node) if node < boxes && is_final => Action::KillBox { node },
            Some(node) if node < boxes => Action::RestartBox { node, pause: RESTART_PAUSE },
            // One that has finished stays so.
            Some(host) if self.workers[host - boxes].is_done => return,
            Some(host) => Action::RestartWorker { worker: host - boxes, pause: RESTART_PAUSE },
        };
        self.actions.push_back(action);
        let kept = if is_final { &mut self.observed.crashes } else { &mut self.observed.restarts };
        kept.push((now.0, name.to_owned()));
    }

    /// The place of a host, which the controller has none of.
    fn host(&self, name: &str) -> Option<usize> {
        let boxes = box_names(self.plan);
        let rank = || name.strip_prefix('w')?.parse::<usize>().ok();
        boxes.iter().position(|known| known == name).or_else(|| Some(boxes.len() + rank()?))
    }
}

impl Worker {
    fn new(plan: &WorkerPlan, directory: &Path, life: u32) -> Result<Self, PacketError> {
        let job = &plan.scenario.job;
        let rank = usize::from(plan.rank);
        let trainer = Trainer::new(rank, job.workers.into(), plan.seed, &job.trainer())?;
        Ok(Self {
            recording: UpdateRecording::create(&updates_path(directory, plan.rank, life))?,
            random: SplitMix64::keyed(plan.seed, STREAM_COMPUTE, plan.rank.into()),
            life,
            next: Next::Pull(None),
            has_joined: false,
            is_done: false,
            update: vec![0.0; trainer.parameter_count()],
            trainer,
            number: 0,
            message: UpdateMessage::default(),
            asked_at: Nanos(0),
            granted_at: None,
            summary: WorkerSummary::default(),
        })
    }
}

impl Application for Training<'_> {
    fn next(&mut self, now: Nanos, worker: Standing) -> Next {
        if worker.under_way > 0 {
            return Next::Wait;
        }
        let known = self.worker(worker);
        if !std::mem::replace(&mut known.has_joined, true) {
            known.message.pull_ns = now.0;
            let rank = u8::try_from(worker.rank).expect("a rank is below 64");
            self.observed.joined.push((now.0, rank));
            self.heard = now;
        }
        self.workers[worker.rank].next
    }

    fn compute(
        &mut self,
        now: Nanos,
        worker: Standing,
        _: u64,
        (version, model): (Version, &[f32]),
    ) -> Option<Update> {
        let end = self.end;
        let (push, job) = (self.plan.workers[0].push(), &self.scenario.job);
        let known = self.worker(worker);
        if version.0 >= end {
            known.next = Next::Leave;
            return None;
        }
        known.trainer.load(&model[..known.update.len()]);
        let measured = (push.until_loss && worker.rank == 0).then(|| known.trainer.evaluate().0);
        let step = u64::from(known.life) * STEPS_OF_A_LIFE + known.number;
        let loss = known.trainer.gradient(step, &mut known.update);
        known.update.iter_mut().for_each(|value| *value *= -job.learning_rate);
        let [from, to] = push.compute_ms.map(|ms| f64::from(ms) * 1e6);
        let span_ns = from + (to - from) * f64::from(known.random.next_f32());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a minute")]
        let span = Nanos(span_ns as u64);
        let written = known.recording.update(known.number, version.0, &known.update);
        known.message = UpdateMessage {
            number: known.number,
            version: version.0,
            pull_duration_ns: now.0 - known.message.pull_ns,
            compute_ns: span.0,
            push_ns: now.0 + span.0,
            loss,
            ..std::mem::take(&mut known.message)
        };
        let life = known.life;
        let norm = known.update.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        let max_abs = known.update.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let values = Values::Reals(known.update.clone());
        if let Err(error) = written {
            self.error = Some(error.into());
        }
        if let Some(loss) = measured {
            let measured = WorkerMessage::Measured { version: version.0, loss };
            self.hear(now, worker.rank, life, measured);
        }
        Some(Update { span, values, units: Vec::new(), norm, max_abs: max_abs.into() })
    }

    fn said(&mut self, now: Nanos, worker: Standing, said: &WorkerOutput) {
        let has_controller = self.plan.controller.is_some();
        let known = self.worker(worker);
        match said {
            WorkerOutput::Request(_) => known.asked_at = now,
            WorkerOutput::Joined(group, _) if group.row() < ROW_DIRECT => {
                let (waited_ns, summary) = (now.since(known.asked_at).0, &mut known.summary);
                known.granted_at = Some(now);
                summary.request_to_grant_count += 1;
                summary.request_to_grant_total_ns += waited_ns;
            }
            WorkerOutput::Joined(..) => {
                known.granted_at = None;
                known.summary.controller_fallbacks += u64::from(has_controller);
            }
            WorkerOutput::Failed(error) => {
                let rank = u8::try_from(worker.rank).expect("a rank is below 64");
                self.observed.failures.push((now.0, rank, error.clone()));
            }
            WorkerOutput::Cancel(_)
            | WorkerOutput::Pulled(_)
            | WorkerOutput::Shown(..)
            | WorkerOutput::Told(..) => {}
        }
    }

    fn decided(&mut self, now: Nanos, worker: Standing, decision: Decision) {
        match decision {
            Decision::Committed(version) => {
                self.take_outcome(now, worker, UpdateOutcome::Committed, version.0);
            }
            Decision::Dropped => self.take_outcome(now, worker, UpdateOutcome::Dropped, 0),
            // It is sent anew.
            Decision::Void => {}
        }
    }

    fn started(&mut self, now: Nanos, worker: Standing, _: u64) {
        let known = self.worker(worker);
        if let Some(granted_at) = known.granted_at.take() {
            let (waited_ns, summary) = (now.since(granted_at).0, &mut known.summary);
            summary.grant_to_first_chunk_count += 1;
            summary.grant_to_first_chunk_total_ns += waited_ns;
        }
    }

    fn box_event(&mut self, now: Nanos, node: usize, rx_bytes: u64, (job, event): (JobId, &Event)) {
        let place = self.box_of(node);
        let (lines, log) = &mut self.logs[place];
        let line = lines.event(now.0, job, event, rx_bytes);
        log.push(LogLine::of(line));
    }

    fn box_command(&mut self, node: usize, command: &Command) {
        let place = self.box_of(node);
        self.logs[place].0.command(command);
    }

    fn planned(&mut self, now: Nanos, group: &GroupDescriptor) {
        let members = group.members.iter();
        let rank = |rank: usize| u8::try_from(rank).expect("a rank is below 64");
        let event = BoxEvent::Installed {
            group: group.group.0,
            order: group.order.0,
            members: members.map(|m| (rank(m.rank.index()), m.version.0)).collect(),
            exponent: group.exponent,
            via: group.via.map(|via| via.0),
            replicate: group.replicate,
            rate_bytes_per_sec: group.rate_bytes_per_sec,
        };
        self.planned.push(LogLine { t_ns: now.0, rx_bytes: 0, event });
    }

    fn poll_action(&mut self, _: Nanos) -> Option<Action> {
        self.actions.pop_front()
    }

    fn is_over(&mut self, now: Nanos) -> bool {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOK_EVERY) {
            self.is_interrupted |= (self.interrupted)();
        }
        let patience = self.scenario.job.member_timeout() + SILENCE_MARGIN;
        if u128::from(now.since(self.heard).0) > patience.as_nanos() {
            let seconds = patience.as_secs();
            let why = format!("no worker had anything to say for {seconds} s of virtual time");
            self.observed.ended.get_or_insert(why);
        }
        if let Some(silence) = &self.answers.lock().expect("nobody panics with it").silence {
            self.observed.ended.get_or_insert_with(|| silence.clone());
        }
        self.is_interrupted || self.error.is_some() || self.observed.ended.is_some()
    }

    fn end(&mut self, _: Nanos, boxes: &[BoxNode], workers: &[WorkerNode], links: &Links) {
        for (rank, worker) in workers.iter().enumerate().filter(|(_, worker)| worker.is_done()) {
            let (rx_bytes, tx_bytes) = links.carried(boxes.len() + rank);
            let (stats, known) = (worker.pusher.stats(), &self.workers[rank]);
            let summary = WorkerSummary {
                chunks_sent: stats.chunks_sent,
                chunks_direct: stats.chunks_direct,
                chunks_aggregated: stats.chunks_aggregated,
                chunks_dropped: stats.chunks_dropped,
                chunks_voided: stats.chunks_voided,
                chunks_undecided: worker.pusher.chunks_undecided(),
                retransmissions: stats.retransmissions,
                tx_bytes,
                rx_bytes,
                ..known.summary.clone()
            };
            let rank = u8::try_from(rank).expect("a rank is below 64");
            self.observed.summaries.push((rank, summary));
        }
        for node in boxes {
            let name = &box_names(self.plan)[node.node];
            let (rx_bytes, tx_bytes) = links.carried(node.node);
            let job = topology::job_id(0);
            let (duplicates, view) = match &node.engine {
                Engine::Aggregator(engine) => {
                    let reports = engine.gather().reports();
                    (reports.map(|report| report.stats().duplicates).sum(), None)
                }
                Engine::Server(engine) => {
                    (engine.jobs().map(|(_, stats)| stats.duplicates).sum(), engine.model(job))
                }
                Engine::Replica(engine) => {
                    (engine.jobs().map(|(_, stats)| stats.duplicates).sum(), engine.model(job))
                }
            };
            let counters = BoxCounters { rx_bytes, tx_bytes, duplicates, ..BoxCounters::default() };
            self.observed.boxes.push((name.clone(), counters));
            if let Some(view) = view {
                let path = model_path(self.directory, name);
                if let Err(source) = fs::write(&path, model_bytes(view.weights)) {
                    self.error = Some(PacketError::Io { path, source });
                }
            }
        }
    }
}
