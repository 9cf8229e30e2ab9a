//! Trains that transfers into the server begin with (SPEC#transfer-trains).

use weft_control::GroupDescriptor;
use weft_wire::header::{Kind, Outcome};
use weft_wire::{ChunkIndex, Members};

use super::rig::*;
use crate::role::model::ModelConfig;
use crate::role::server::ServerJobConfig;
use crate::send::datagram::plain_header;

const MANY: u32 = 400;
const TRAIN: u16 = 100;
/// 42 bytes of headers, Weft's 32, two elements.
const FRAME: u64 = 82;

fn rig() -> Rig {
    let dimension = usize::from(ELEMENTS) * MANY as usize;
    let model = ModelConfig { elements: ELEMENTS, exponent: 0, ..ModelConfig::new(JOB, dimension) };
    let bytes = 4 * u64::from(MANY) * 8;
    Rig::new(ServerJobConfig { model, staging_bytes_max: bytes, log_bytes_max: bytes, ..job() })
}

fn with_train(via_box: bool) -> GroupDescriptor {
    GroupDescriptor {
        chunks: MANY,
        rate_bytes_per_sec: Some(1000 * FRAME),
        train_chunks: TRAIN,
        ..descriptor(0, &[0], via_box)
    }
}

#[test]
fn a_trains_credits_are_given_at_once_and_paid_for() {
    let mut rig = rig();
    rig.install(with_train(false)).unwrap();
    let pulls = rig.pulls();
    assert_eq!(pulls.len(), usize::from(TRAIN), "whatever the window and the rate");
    for (_, chunk) in pulls {
        rig.now.0 += 10_000;
        rig.direct(1, group(0), chunk).unwrap();
    }
    let train = rig.server.poll_train().expect("all of it has come");
    assert_eq!((train.job, train.group, train.rank), (JOB, group(0), Some(rank(0))));
    let (first, last) = (train.arrivals[0], train.arrivals[usize::from(TRAIN) - 1]);
    assert_eq!(last.at_ns - first.at_ns, u64::from(TRAIN - 1) * 10_000);
    assert_eq!(last.rx_bytes - first.rx_bytes, u64::from(TRAIN - 1) * FRAME);
    // They were on the account: with what follows, no more leaves than a bucket of 16 KiB and the
    // rate since allow.
    let mut given = u64::from(TRAIN);
    loop {
        let pulls = rig.pulls();
        if pulls.is_empty() {
            break;
        }
        for (_, chunk) in pulls {
            given += 1;
            rig.now.0 += 10_000;
            rig.direct(1, group(0), chunk).unwrap();
        }
    }
    let allowed = (16 << 10) / FRAME + rig.now.0 / MS + 1;
    assert!((allowed - 3..=allowed).contains(&given), "{given} of {allowed}");
    assert!(rig.server.poll_train().is_none(), "one for each transfer");
}

#[test]
fn a_sum_that_waited_for_its_members_is_no_train() {
    let mut rig = rig();
    rig.install(with_train(true)).unwrap();
    assert_eq!(rig.pulls().len(), usize::from(TRAIN));
    rig.sum(group(0), 0, 1).unwrap();
    let state = plain_header(Kind::State, JOB, group(0), Members(0));
    let have = weft_wire::header::Header { chunk: ChunkIndex(1), outcome: Outcome::Have, ..state };
    let frame = rig.frame(50, &have, &[]);
    rig.send(&frame).unwrap();
    for chunk in 1..u32::from(TRAIN) {
        rig.sum(group(0), chunk, 1).unwrap();
    }
    assert!(rig.server.poll_train().is_none());
}
