//! Which frames have the source address of those that came through memory: what is believed without
//! a CRC.

use crate::common::shm::{clock, host, join, local, receive_until, send};
use crate::common::{contribution, datagram, encap};
use weft_io::fault::{Fault, FaultConfig, FaultRates};
use weft_io::memory::MemoryPort;
use weft_io::shm::{ShmConfig, ShmHost, ShmPort};
use weft_io::{Burst, Port, memory};
use weft_wire::MacAddr;

/// On a wire anybody may say so.
#[test]
fn a_frame_of_the_inner_port_cannot_claim_to_come_through_memory() {
    let addr = local(20_007);
    let mut ports = memory::hub(8, 1500, &["box", "peer"]);
    let mut peer = ports.pop().expect("two ports");
    let mut host = ShmHost::open(ports.pop().expect("two ports"), addr).expect("nobody is there");
    let mut rounds = |host: &mut ShmHost<MemoryPort>, rounds: u64| {
        let before = host.stats();
        // More than there are buffers: what is refused goes back.
        for _ in 0..rounds {
            let mut tx = Burst::new();
            for mac in [MacAddr::MEMORY, FAULTY, MacAddr::MEMORY] {
                let mut frame = datagram(&mut peer, &encap(local(9), addr), &contribution(1, 1));
                frame.as_mut()[6..12].copy_from_slice(&mac.0);
                tx.push(frame);
            }
            assert_eq!(peer.tx_burst(clock(), &mut tx), 3);
            receive_until(host, |host, rx| {
                assert!(rx.iter().all(|frame| frame.as_ref()[6..12] == FAULTY.0));
                let count = rx.len();
                host.free(rx);
                count == 1
            });
        }
        let (refused, after) = (3 * rounds - rounds, host.stats());
        assert_eq!(after.rx_errors - before.rx_errors, refused);
    };
    rounds(&mut host, 10);
    let own = local(20_008);
    let joining = std::thread::spawn(move || ShmPort::open(&ShmConfig::new(own, addr)));
    while !joining.is_finished() {
        host.rx_burst(clock(), &mut Burst::new());
    }
    let mut worker = joining.join().expect("it does not panic").expect("it is let in");
    rounds(&mut host, 10);
    send(&mut worker, own, addr, &contribution(1, 1));
    receive_until(&mut host, |_, rx| !rx.is_empty());
}

/// One that is like [`MacAddr::MEMORY`].
const FAULTY: MacAddr = MacAddr([6, b'W', b'E', b'F', b'T', 1]);

/// Whose source says that nothing changes on the way is believed without a CRC.
#[test]
fn a_port_over_memory_says_so_and_one_that_corrupts_does_not() {
    let (mut host, addr) = host();
    let own = local(20_006);
    let mut worker = join(&mut host, &ShmConfig::new(own, addr)).expect("it is let in");
    assert_eq!(worker.info().mac, MacAddr::MEMORY);
    assert_ne!(host.info().mac, MacAddr::MEMORY);
    let mut frame = datagram(&mut worker, &encap(own, addr), &contribution(1, 1));
    frame.as_mut()[6..12].copy_from_slice(&MacAddr::MEMORY.0);
    let mut tx = Burst::new();
    tx.push(frame);
    worker.tx_burst(clock(), &mut tx);
    let faulty = |corrupt| {
        let rates = FaultRates { duplicate: 1.0, corrupt, ..FaultRates::NONE };
        FaultConfig { rx: rates, ..FaultConfig::default() }
    };
    let worker = Fault::new(worker, &faulty(0.0));
    assert_eq!(worker.info().mac, MacAddr::MEMORY, "bits stay as they are");
    assert_ne!(Fault::new(worker, &faulty(1e-9)).info().mac, MacAddr::MEMORY);
    let mut host = Fault::new(host, &faulty(1e-9));
    let mut count = 0;
    receive_until(&mut host, |_, rx| {
        for frame in rx {
            assert_ne!(frame.as_ref()[6..12], MacAddr::MEMORY.0, "a box whose port corrupts");
            count += 1;
        }
        count == 2
    });
}
