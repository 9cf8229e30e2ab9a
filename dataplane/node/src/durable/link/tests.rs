//! A lane's decisions on their way to the disk and back.

use weft_control::{Command, GroupDescriptor, GroupMember, OrderNumber, Version};
use weft_engine::role::model::ModelConfig;
use weft_engine::role::server::ServerJobConfig;
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::header::ElementType;
use weft_wire::{GroupId, JobId, MacAddr, Nanos, Rank};

use super::*;
use crate::durable::StoredJob;
use crate::durable::disk::{Disk, LockedDirectory};
use crate::durable::tests::{FakeDisk, config};
use crate::record::Notes;

const JOB: JobId = JobId(3);

fn durable() -> ServerJobConfig {
    ServerJobConfig { is_durable: true, ..config() }
}

fn server() -> Server {
    let local = Endpoint { mac: MacAddr::default(), addr: "127.0.0.9:7000".parse().unwrap() };
    Server::new(local, 1500, &[durable()], 1, Kernels::detect()).unwrap()
}

/// A link to this disk, and the flag that stops the node.
fn start(config: ServerJobConfig, disk: Arc<dyn Disk>) -> (JournalLink, Arc<AtomicBool>) {
    let stop = Arc::new(AtomicBool::new(false));
    let jobs = vec![StoredJob::open(config, 1 << 20, disk).unwrap()];
    let link = JournalLink::start(Stored { jobs }, Arc::clone(&stop)).unwrap().unwrap();
    (link, stop)
}

/// The server judges a group of this order number VOID: one record.
fn decide(server: &mut Server, order: u64) {
    let group = GroupId::new(u16::try_from(order).unwrap(), 1);
    let install = Command::Install(GroupDescriptor {
        job: JOB,
        group,
        order: OrderNumber(order),
        members: vec![GroupMember { rank: Rank::new(0).unwrap(), version: Version(0) }],
        chunks: durable().model.chunks(),
        element_type: ElementType::I32,
        elements: durable().model.elements,
        exponent: 0,
        via: None,
        replicate: false,
        rate_bytes_per_sec: None,
        after: None,
        train_chunks: 0,
        lateness_ns: 1_000_000_000,
    });
    server.handle_command(Nanos(0), install);
    server.handle_command(Nanos(0), Command::Remove { job: JOB, group });
    let mut frame = vec![0; 1514];
    while server.poll_transmit(Nanos(0), &mut frame).is_some() {}
}

#[test]
fn what_a_lane_decides_becomes_durable_and_all_of_it_before_the_node_ends() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Arc::new(LockedDirectory::open(directory.path().to_owned()).unwrap());
    let (link, stop) = start(durable(), open());
    let (mut link, mut server) = (Some(link), server());
    assert!(!link.is_waiting());
    for order in 0..40 {
        decide(&mut server, order);
        assert!(server.awaits_journal());
        link.exchange(&mut server, &mut Notes::none());
        assert!(link.is_waiting(), "order {order} is on its way");
        let until = Instant::now() + Duration::from_secs(60);
        while order % 4 == 0 && link.is_waiting() {
            assert!(Instant::now() < until, "order {order} does not become durable");
            std::thread::yield_now();
            link.exchange(&mut server, &mut Notes::none());
        }
        assert!(order % 4 != 0 || !server.awaits_journal());
    }
    decide(&mut server, 40);
    let began = Instant::now();
    link.unwrap().finish(&mut server).unwrap();
    assert!(!server.awaits_journal());
    assert!(began.elapsed() < FINISH_TIMEOUT / 2);
    assert!(!stop.load(Ordering::Relaxed));
    let found = StoredJob::open(durable(), 1 << 20, open()).unwrap();
    assert_eq!(found.state.unwrap().next_order, OrderNumber(41));
}

/// The lane is told to stop, and the end says why; nobody waits for a disk that is gone.
#[test]
fn a_disk_that_fails_stops_the_node_at_once_and_its_error_is_told() {
    let disk = FakeDisk::new(1);
    let (mut link, stop) = start(durable(), Arc::new(disk.clone()));
    let mut server = server();
    disk.end_after(0);
    decide(&mut server, 0);
    link.exchange(&mut server, &mut Notes::none());
    let began = Instant::now();
    let error = link.finish(&mut server).unwrap_err().to_string();
    assert!(error.contains("journal-1: cannot be written: the node is dead"), "{error}");
    assert!(began.elapsed() < FINISH_TIMEOUT / 2);
    assert!(server.awaits_journal() && stop.load(Ordering::Relaxed));
}

#[test]
fn buffers_take_a_bounded_memory() {
    for (dimension, buffers) in [(300, BUFFERS_MAX), (1 << 20, 15)] {
        let model = ModelConfig::new(JOB, dimension);
        let config = ServerJobConfig::new(model, durable().workers);
        let (link, _) = start(config, Arc::new(FakeDisk::new(1)));
        assert_eq!((link.buffers, link.free.len()), (buffers, buffers), "{dimension}");
    }
}

#[test]
fn nothing_is_waited_for_where_nothing_is_kept() {
    assert!(!Keeper::<Server>::is_waiting(&()));
    assert!(!Keeper::<Server>::is_waiting(&None::<JournalLink>));
    let stop = Arc::new(AtomicBool::new(false));
    assert!(JournalLink::start(Stored::default(), stop).unwrap().is_none());
}
