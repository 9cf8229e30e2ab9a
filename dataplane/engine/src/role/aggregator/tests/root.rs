//! What a leaf says to its root and when, and which of the root's words it takes.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{Flags, Header, Kind, Outcome};
use weft_wire::hello::Phase as Step;
use weft_wire::{Cookie, MacAddr, Nanos};

use super::super::{Aggregator, Phase};
use super::leaf::{Tree, awaiting_root, configs, join, open_tree, root_endpoint, step};
use super::rig::*;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::send::datagram::plain_header;
use crate::table::RowConfig;

/// A repeat goes up marked as one, and no more once the answer is here.
#[test]
fn a_sum_goes_up_again_only_while_its_answer_is_missing() {
    let (mut tree, group) = open_tree();
    let sent = |leaf: &mut Aggregator| {
        let mut buffer = vec![0; MAX_FRAME];
        let frames = core::iter::from_fn(|| {
            let len = leaf.poll_transmit(Nanos(0), &mut buffer)?;
            Some(read(&buffer[..len]).header)
        });
        frames.filter(|header| header.kind == Kind::Contrib).collect::<Vec<_>>()
    };
    step(&mut tree.leaf, group[0].contribution(0, 1));
    let up = step(&mut tree.leaf, group[1].contribution(0, 2)).unwrap();
    assert!(!read(&up).header.flags.contains(Flags::RETRANSMIT));
    step(&mut tree.leaf, group[1].status(0));
    step(&mut tree.leaf, group[1].status(0));
    let again = sent(&mut tree.leaf);
    assert_eq!(again.len(), 1, "once, however often it was asked");
    assert!(again[0].flags.contains(Flags::RETRANSMIT));
    step(&mut tree.leaf, group[1].status(0));
    let answer = step(&mut tree.root, up).unwrap();
    step(&mut tree.leaf, answer);
    assert_eq!(sent(&mut tree.leaf), []);
}

/// One that answers another cookie, or is damaged, is somebody else's.
#[test]
fn a_leaf_resumes_on_a_stale_of_its_root_alone() {
    let (mut tree, group) = open_tree();
    step(&mut tree.leaf, group[0].contribution(0, 1));
    let up = step(&mut tree.leaf, group[1].contribution(0, 2)).unwrap();
    let own = read(&up).header;
    let down = read(&step(&mut tree.root, up).unwrap()).header.cookie;
    let mut leaf_addr = box_endpoint().addr;
    leaf_addr.set_port(9000);
    let encap = Encap::new(root_endpoint(), Endpoint { addr: leaf_addr, ..box_endpoint() });
    let root = Member { encap: encap.unwrap(), ..group[0].clone() };
    let other = Cookie(own.cookie.0 ^ 1);
    let state = |outcome, cookie| {
        root.frame(&Header { kind: Kind::State, outcome, ..plain(&own, cookie) }, &[])
    };
    let mut damaged = state(Outcome::Stale, own.cookie);
    damaged[42 + 20] ^= 1;
    let is_open = |tree: &mut Tree| {
        let sums = [1, 2].map(|value| group[value - 1].contribution(1, 1));
        let [first, last] = sums;
        step(&mut tree.leaf, first);
        step(&mut tree.leaf, last).is_some_and(|out| read(&out).header.kind == Kind::Contrib)
    };
    for (frame, reason) in [
        (state(Outcome::Have, down), None),
        (state(Outcome::Have, other), Some(DropReason::BadCookie)),
        (state(Outcome::Have, own.cookie), Some(DropReason::BadCookie)),
        (state(Outcome::Stale, other), Some(DropReason::BadCookie)),
        (damaged, Some(DropReason::Integrity)),
    ] {
        let verdict = deliver(&mut tree.leaf, frame, Nanos(0)).0;
        assert_eq!(verdict, reason.map_or(Verdict::Hold, Verdict::Drop));
    }
    assert!(is_open(&mut tree));
    // Without a checksum it is as good: a root may have none.
    let mut plain = state(Outcome::Stale, own.cookie);
    plain[42 + 20..42 + 24].fill(0);
    for stale in [plain, state(Outcome::Stale, own.cookie)] {
        let (mut tree, _) = open_tree();
        assert_eq!(deliver(&mut tree.leaf, stale, Nanos(0)).0, Verdict::Hold);
        let mut buffer = vec![0; MAX_FRAME];
        let len = tree.leaf.poll_transmit(Nanos(0), &mut buffer).unwrap();
        assert_eq!(read(&buffer[..len]).hello.map(|hello| hello.phase), Some(Step::Hello));
    }
}

fn plain(of: &Header, cookie: Cookie) -> Header {
    let header = Header { cookie, ..plain_header(Kind::State, of.job, of.group, of.members) };
    Header { chunk: of.chunk, ..header }
}

#[test]
fn a_leaf_speaks_to_where_its_root_answered_from() {
    let (root, mut leaf) = configs();
    let parent = leaf.rows[0].parent.as_mut().unwrap();
    parent.endpoint.mac = MacAddr([0; 6]);
    let row = leaf.rows[0].clone();
    let mut tree = Tree::of(root, leaf);
    let mut group = [0, 1].map(|rank| Member::new(&row, rank, 1 + u64::from(rank)));
    for _ in 0..2 {
        for member in &mut group {
            join(&mut tree, member, None);
        }
    }
    step(&mut tree.leaf, group[0].contribution(0, 1));
    let up = step(&mut tree.leaf, group[1].contribution(0, 2)).unwrap();
    assert_eq!(up[..6], root_endpoint().mac.0);
}

#[test]
fn a_leaf_takes_no_terms_but_its_own() {
    let shapes: [fn(&mut RowConfig); 2] = [|row| row.window = 4, |row| row.elements = 8];
    for shape in shapes {
        let (mut root, leaf) = configs();
        shape(&mut root.rows[0]);
        let row = leaf.rows[0].clone();
        let mut tree = Tree::of(root, leaf);
        for rank in 0..2 {
            join(&mut tree, &mut Member::new(&row, rank, 1 + u64::from(rank)), None);
        }
        tree.wait();
        assert!(tree.leaf.leases().all(|lease| lease.phase() == Phase::AwaitingRoot));
        assert!(tree.leaf.stats().drops.of(DropReason::Handshake) > 0);
    }
}

#[test]
fn a_leaf_without_its_members_says_nothing_to_the_root() {
    let (mut tree, group) = open_tree();
    let mut fresh = Member { life: 40, session: 0, ..group[0].clone() };
    assert_eq!(join(&mut tree, &mut fresh, None).phase, Step::Waiting);
    let mut buffer = vec![0; MAX_FRAME];
    for millis in 0..1_000 {
        assert_eq!(tree.leaf.poll_transmit(Nanos::from_millis(millis), &mut buffer), None);
    }
}

#[test]
fn a_leaf_that_begins_says_that_it_holds_nothing() {
    let mut tree = awaiting_root();
    for phase in [Step::Hello, Step::Join] {
        let mut buffer = vec![0; MAX_FRAME];
        let len = tree.leaf.poll_transmit(Nanos(0), &mut buffer).unwrap();
        let hello = read(&buffer[..len]).hello.unwrap();
        assert_eq!((hello.phase, hello.step_bits), (phase, 0));
        let answer = step(&mut tree.root, buffer[..len].to_vec()).unwrap();
        step(&mut tree.leaf, answer);
    }
}

#[test]
fn only_the_port_that_a_leaf_sends_up_from_is_its_roots() {
    let (tree, _) = open_tree();
    let answered: Vec<u16> =
        (0..=u16::MAX).filter(|port| tree.leaf.roots.answer_to(*port)).collect();
    assert_eq!(answered, [9000]);
}
