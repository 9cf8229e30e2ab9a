//! Push sessions against a real server and a real aggregator, over memory ports.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::controller::Controller;
use crate::common::{Cluster, JOB, PARAMETERS, box_addr, faulty, server_addr, worker_addr};
use weft_client::push::{
    ControllerConfig, Outcome, PushConfig, PushError, PushSession, PushStatistics, Version,
};
use weft_control::Event;
use weft_io::pool::PoolFrame;
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Port, PortInfo, PortStats, Waker, memory};
use weft_wire::Nanos;

fn config(rank: u8) -> PushConfig {
    let mut config = PushConfig::new(worker_addr(rank), server_addr()).job(JOB.0).rank(rank);
    config.seed = Some(u64::from(rank) + 11);
    config.member_timeout = Duration::from_secs(20);
    config
}

/// Multiples of 2^-10: exact in the job's fixed point.
fn update(rank: u8, round: u16) -> Vec<f32> {
    let value = |index: u16| {
        f32::from(index % 37) / 64.0 - f32::from(rank) / 8.0 + f32::from(round) / 1024.0
    };
    (0..u16::try_from(PARAMETERS).unwrap()).map(value).collect()
}

fn sum<'a>(updates: impl IntoIterator<Item = &'a Vec<f32>>) -> Vec<f32> {
    let mut sum = vec![0.0; PARAMETERS];
    for update in updates {
        sum.iter_mut().zip(update).for_each(|(sum, value)| *sum += value);
    }
    sum
}

/// Chunks sent are all accounted for.
fn check(stats: &PushStatistics) {
    let known = stats.chunks_direct + stats.chunks_aggregated + stats.chunks_dropped;
    assert_eq!(
        stats.chunks_sent,
        known + stats.chunks_voided + stats.chunks_undecided,
        "{stats:?}"
    );
}

/// Each worker pushes `rounds` updates and waits for each; gives their counters.
fn train<P: Port + Send + 'static>(
    ports: Vec<P>,
    rounds: u16,
    shape: impl Fn(&mut PushConfig) + Sync,
) -> Vec<PushStatistics> {
    thread::scope(|scope| {
        let shape = &shape;
        let workers: Vec<_> = (0..)
            .zip(ports)
            .map(|(rank, port)| {
                scope.spawn(move || {
                    let mut config = config(rank);
                    shape(&mut config);
                    let mut session = PushSession::over(port, &config).unwrap();
                    let mut model = vec![0.0; PARAMETERS];
                    for round in 0..rounds {
                        let version = session.pull(&mut model).unwrap();
                        let ticket = session.push(&update(rank, round), version).unwrap();
                        assert!(matches!(ticket.wait(), Ok(Outcome::Committed { .. })));
                    }
                    session.close().unwrap()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

fn all(workers: u8, rounds: u16) -> Vec<Vec<f32>> {
    (0..workers).flat_map(|rank| (0..rounds).map(move |round| update(rank, round))).collect()
}

/// Checks that the model holds these updates, as the last worker sees it.
fn check_model<P: Port + Send + 'static>(port: P, rank: u8, updates: &[Vec<f32>]) {
    let mut session = PushSession::over(port, &config(rank)).unwrap();
    let mut model = vec![0.0; PARAMETERS];
    let version = Version(updates.len() as u64);
    assert_eq!(session.pull_newer(&mut model, Version(version.0 - 1)).unwrap(), version);
    let expected = sum(updates);
    let wrong = model.iter().zip(&expected).filter(|(is, should)| is != should).count();
    assert_eq!(wrong, 0, "of {PARAMETERS} parameters, the first {} for {}", model[0], expected[0]);
    session.close().unwrap();
}

#[test]
fn updates_enter_the_model_once_without_a_controller() {
    let (_cluster, mut ports) = Cluster::start(3, |job| job.tau_max = 100);
    let last = ports.pop().unwrap();
    for stats in train(ports, 5, |_| {}) {
        check(&stats);
        assert_eq!((stats.updates_committed, stats.chunks_direct), (5, 80));
        assert_eq!(stats.push_to_outcome.count, 5);
        assert_eq!(stats.controller_fallbacks, 0);
    }
    check_model(last, 2, &all(2, 5));
}

#[test]
fn a_lossy_network_changes_nothing_but_the_time() {
    for seed in 0..4 {
        let (_cluster, mut ports) = Cluster::start(3, |job| job.tau_max = 100);
        let last = ports.pop().unwrap();
        let ports = (0..).zip(ports).map(|(rank, port)| faulty(port, seed, rank)).collect();
        let mut repeats = 0;
        for stats in train(ports, 4, |_| {}) {
            check(&stats);
            assert_eq!(stats.updates_committed, 4);
            repeats += stats.retransmissions + stats.pull_repeats;
        }
        assert!(repeats > 0, "the network did lose");
        check_model(last, 2, &all(2, 4));
    }
}

#[test]
fn a_controller_groups_updates_by_way_of_the_aggregator() {
    let (cluster, mut ports) = Cluster::start(3, |job| job.tau_max = 100);
    let controller = Controller::start(&cluster, 3, 2);
    controller.gate(Duration::from_millis(20));
    let last = ports.pop().unwrap();
    let stats = train(ports, 4, |config| {
        config.controller = Some(ControllerConfig::new(controller.endpoint.clone()));
    });
    for stats in stats {
        check(&stats);
        assert_eq!((stats.updates_committed, stats.chunks_aggregated), (4, 64));
        assert_eq!(stats.request_to_grant.count, 4);
        assert!(stats.grant_to_first_chunk.total_ns >= 4 * 19_000_000, "the gate held it back");
        assert!(stats.grant_to_staged.total_ns >= stats.grant_to_first_chunk.total_ns);
        assert_eq!(stats.controller_fallbacks, 0);
    }
    check_model(last, 2, &all(2, 4));
}

/// What its port has carried, as often as the controller said: every 20 ms.
#[test]
fn a_worker_reports_what_it_has_carried() {
    let (cluster, mut ports) = Cluster::start(1, |job| job.tau_max = 100);
    let controller = Controller::start(&cluster, 1, 1);
    let mut config = config(0);
    config.controller = Some(ControllerConfig::new(controller.endpoint.clone()));
    let mut session = PushSession::over(ports.remove(0), &config).unwrap();
    session.push(&update(0, 0), Version(0)).unwrap().wait().unwrap();
    let stats = session.statistics();
    thread::sleep(Duration::from_millis(500));
    let told = controller.counters();
    assert!((3..=30).contains(&told.len()), "{} reports", told.len());
    let last = told.last().unwrap();
    // An update of 16 chunks of 64 numbers, and nothing after it but keepalives.
    assert!(last.tx_bytes >= stats.bytes_sent && last.tx_bytes > 4096, "{last:?} {stats:?}");
    assert!(last.rx_bytes >= stats.bytes_received, "{last:?} {stats:?}");
    // Its address is the loopback's or nobody's: there is no link to speak of.
    assert_eq!((last.nic_rx_bytes, last.nic_tx_bytes), (None, None));
    assert!(
        told.windows(2)
            .all(|pair| { pair[0].at_ns < pair[1].at_ns && pair[0].tx_bytes <= pair[1].tx_bytes })
    );
    session.close().unwrap();
}

#[test]
fn a_lossy_network_and_a_controller() {
    let (cluster, mut ports) = Cluster::start(3, |job| job.tau_max = 100);
    let controller = Controller::start(&cluster, 3, 2);
    let last = ports.pop().unwrap();
    let ports = (0..).zip(ports).map(|(rank, port)| faulty(port, 77, rank)).collect();
    let stats = train(ports, 6, |config| {
        config.controller = Some(ControllerConfig::new(controller.endpoint.clone()));
        config.pull_via = Some(0);
    });
    for stats in stats {
        check(&stats);
        assert_eq!(stats.updates_committed, 6);
    }
    check_model(last, 2, &all(2, 6));
}

#[test]
fn a_dead_controller_is_done_without() {
    let (cluster, mut ports) = Cluster::start(2, |job| job.tau_max = 100);
    let mut controller = Controller::start(&cluster, 2, 1);
    let mut config = config(0);
    let mut address = ControllerConfig::new(controller.endpoint.clone());
    address.silence = Duration::from_millis(300);
    config.controller = Some(address);
    let mut session = PushSession::over(ports.remove(0), &config).unwrap();
    let first = session.push(&update(0, 0), Version(0)).unwrap();
    assert_eq!(first.wait().unwrap(), Outcome::Committed { version: Version(1) });
    controller.kill();
    let begun = Instant::now();
    let second = session.push(&update(0, 1), Version(1)).unwrap();
    assert_eq!(second.wait().unwrap(), Outcome::Committed { version: Version(2) });
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let stats = session.close().unwrap();
    check(&stats);
    assert_eq!((stats.controller_fallbacks, stats.request_to_grant.count), (1, 1));
}

#[test]
fn a_dropped_update_goes_with_the_next_when_asked_to() {
    for (feedback, expected) in [(true, 2), (false, 1)] {
        let (cluster, mut ports) = Cluster::start(2, |job| job.tau_max = 100);
        let controller = Controller::start(&cluster, 2, 1);
        controller.drop_next(1);
        let mut config = config(0);
        config.controller = Some(ControllerConfig::new(controller.endpoint.clone()));
        config.error_feedback = feedback;
        let mut session = PushSession::over(ports.remove(0), &config).unwrap();
        let dropped = session.push(&[0.5; 10], Version(0)).unwrap();
        assert_eq!(dropped.wait().unwrap(), Outcome::Dropped);
        let kept = session.push(&[0.25; 20], Version(0)).unwrap();
        assert_eq!(kept.wait().unwrap(), Outcome::Committed { version: Version(1) });
        let mut weights = [0.0; 30];
        session.pull(&mut weights).unwrap();
        assert_eq!(weights[0], if feedback { 0.75 } else { 0.25 });
        assert_eq!((weights[10], weights[20]), (0.25, 0.0));
        let stats = session.close().unwrap();
        assert_eq!((stats.updates_dropped, stats.updates_fed_back), (1, expected - 1));
    }
}

#[test]
fn an_update_that_is_too_old_is_dropped_by_the_server() {
    let (_cluster, mut ports) = Cluster::start(2, |job| job.tau_max = 1);
    let mut session = PushSession::over(ports.remove(0), &config(0)).unwrap();
    for version in 0..2 {
        let ticket = session.push(&update(0, 0), Version(version)).unwrap();
        assert!(matches!(ticket.wait(), Ok(Outcome::Committed { .. })));
    }
    let late = session.push(&update(0, 0), Version(0)).unwrap();
    assert_eq!(late.wait().unwrap(), Outcome::Dropped);
    let stats = session.close().unwrap();
    check(&stats);
    assert_eq!((stats.updates_committed, stats.updates_dropped), (2, 1));
}

#[test]
fn a_pull_waits_for_a_newer_model() {
    let (_cluster, mut ports) = Cluster::start(2, |job| job.tau_max = 100);
    let other = ports.pop().unwrap();
    let mut session = PushSession::over(ports.pop().unwrap(), &config(0)).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut session = PushSession::over(other, &config(1)).unwrap();
            thread::sleep(Duration::from_millis(100));
            session.push(&update(1, 0), Version(0)).unwrap().wait().unwrap();
            session.close().unwrap();
        });
        let mut weights = vec![0.0; PARAMETERS];
        let begun = Instant::now();
        assert_eq!(session.pull_newer(&mut weights, Version(0)).unwrap(), Version(1));
        assert!(begun.elapsed() > Duration::from_millis(90));
        assert!(weights == update(1, 0));
    });
    session.close().unwrap();
}

#[test]
fn a_model_is_pulled_through_the_aggregator() {
    let (_cluster, mut ports) = Cluster::start(2, |job| job.tau_max = 100);
    let mut config = config(0);
    config.aggregators = vec![(0, box_addr())];
    config.pull_via = Some(0);
    let mut session = PushSession::over(ports.remove(0), &config).unwrap();
    session.push(&update(0, 3), Version(0)).unwrap().wait().unwrap();
    let mut weights = vec![0.0; PARAMETERS];
    assert_eq!(session.pull(&mut weights).unwrap(), Version(1));
    assert!(weights == update(0, 3));
    session.close().unwrap();
}

#[test]
fn what_cannot_work_is_an_error_that_says_why() {
    let (_cluster, mut ports) = Cluster::start(2, |_| {});
    let mut session = PushSession::over(ports.remove(0), &config(0)).unwrap();
    let long = vec![0.0; session.parameters_max() + 1];
    assert!(matches!(
        session.push(&long, Version(0)),
        Err(PushError::Config { field: "update", .. })
    ));
    let sick = session.push(&[f32::NAN], Version(0));
    assert!(matches!(sick, Err(PushError::Config { field: "update", .. })));
    let mut model = long;
    assert!(matches!(session.pull(&mut model), Err(PushError::Config { field: "model", .. })));
    session.close().unwrap();
    let rank = PushSession::over(ports.remove(0), &config(64));
    assert!(matches!(rank, Err(PushError::Config { field: "rank", .. })));
}

#[test]
fn a_server_that_is_not_there_is_an_error_in_bounded_time() {
    let (port, _peer) = memory::link(64, 1500, ["w0", "nobody"]);
    let mut config = config(0);
    config.connect_timeout = Duration::from_millis(200);
    let begun = Instant::now();
    let error = PushSession::over(port, &config).unwrap_err();
    assert!(matches!(error, PushError::Session(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_server_that_dies_ends_tickets_pulls_and_calls() {
    let (cluster, mut ports) = Cluster::start(2, |_| {});
    let mut config = config(0);
    config.member_timeout = Duration::from_millis(300);
    let mut session = PushSession::over(ports.remove(0), &config).unwrap();
    drop(cluster);
    let ticket = session.push(&update(0, 0), Version(0)).unwrap();
    let begun = Instant::now();
    assert!(ticket.wait().is_err());
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(session.pull(&mut [0.0; 4]).is_err());
    assert!(session.push(&[0.0], Version(0)).is_err());
    assert!(session.close().is_err());
}

#[test]
fn a_session_dropped_leaves_the_server() {
    let (cluster, mut ports) = Cluster::start(2, |_| {});
    let controller = Controller::start(&cluster, 2, 1);
    let mut config = config(0);
    config.controller = Some(ControllerConfig::new(controller.endpoint.clone()));
    drop(PushSession::over(ports.remove(0), &config).unwrap());
    let begun = Instant::now();
    let is_lost =
        |event: &Event| matches!(event, Event::MemberLost { rank, .. } if rank.index() == 0);
    while !cluster.server.events.try_iter().any(|(_, event)| is_lost(&event)) {
        assert!(begun.elapsed() < Duration::from_secs(5), "the server was not told");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_ungranted_update_goes_directly_when_the_controller_dies() {
    let (cluster, mut ports) = Cluster::start(2, |job| job.tau_max = 100);
    // It waits for a second request that never comes.
    let mut controller = Controller::start(&cluster, 2, 2);
    let mut config = config(0);
    let mut address = ControllerConfig::new(controller.endpoint.clone());
    address.silence = Duration::from_millis(200);
    config.controller = Some(address);
    let mut session = PushSession::over(ports.remove(0), &config).unwrap();
    let ticket = session.push(&update(0, 0), Version(0)).unwrap();
    let Err(ticket) = ticket.wait_timeout(Duration::from_millis(400)) else {
        panic!("granted by nobody");
    };
    controller.kill();
    assert_eq!(ticket.wait().unwrap(), Outcome::Committed { version: Version(1) });
    assert_eq!(session.close().unwrap().controller_fallbacks, 1);
}

/// Sleeps on until a frame or a message wakes it, whatever timers are due.
struct Patient(UdpPort);

impl Port for Patient {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.0.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.0.tx_burst(now, tx)
    }

    fn wait(&mut self, _: u64) {
        self.0.wait(u64::try_from(PATIENCE.as_nanos()).unwrap());
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        self.0.alloc()
    }

    fn info(&self) -> PortInfo {
        self.0.info()
    }

    fn stats(&self) -> PortStats {
        self.0.stats()
    }

    fn waker(&mut self) -> Option<Waker> {
        self.0.waker()
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn sessions_over_udp_are_woken_by_what_they_are_told() {
    let begun = Instant::now();
    let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let mut udp = UdpConfig::new(addr(0));
    udp.frame_count = 512;
    let port = UdpPort::open(&udp).unwrap();
    let server = port.local_addr();
    let worker = UdpPort::open(&udp).unwrap();
    let local = worker.local_addr();
    let _cluster = Cluster::serve(port, server, vec![local]);
    let mut config = PushConfig::new(local, server).job(JOB.0);
    config.member_timeout = Duration::from_secs(20);
    let mut session = PushSession::over(Patient(worker), &config).unwrap();
    for version in 0..3 {
        let ticket = session.push(&update(0, 1), Version(version)).unwrap();
        assert!(matches!(ticket.wait(), Ok(Outcome::Committed { .. })));
    }
    let mut weights = vec![0.0; PARAMETERS];
    session.pull_newer(&mut weights, Version(2)).unwrap();
    assert!(weights == sum(&vec![update(0, 1); 3]));
    let stats = session.close().unwrap();
    assert!(begun.elapsed() < PATIENCE, "a message was not heard");
    assert!(stats.bytes_sent > 3 * 4 * PARAMETERS as u64, "{stats:?}");
    assert!(stats.bytes_received > 4 * PARAMETERS as u64, "{stats:?}");
}
