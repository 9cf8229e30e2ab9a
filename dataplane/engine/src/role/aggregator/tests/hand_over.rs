//! A root that began anew, a leaf below it, and a worker of its own beside that: which sums come
//! back to the root, and from whom (SPEC#resync).

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{Header, Kind, Outcome};
use weft_wire::hello::{Hello, Phase as Step, Reason};
use weft_wire::{MacAddr, Members, Nanos};

use super::super::Phase;
use super::leaf::{Tree, configs, join, root_endpoint, step};
use super::rig::*;
use crate::drops::DropReason;
use crate::slot::State;
use crate::slot::counter::Transition;
use crate::table::{BoxConfig, MemberConfig};

/// The boxes, the leaf's two members and the root's own.
struct Site {
    tree: Tree,
    root: BoxConfig,
    group: Vec<Member>,
    own: Member,
}

impl Site {
    /// All sessions are open.
    fn new() -> Self {
        let (mut root, leaf) = configs();
        let addr = "10.0.9.2:7000".parse().unwrap();
        root.rows[0].members.push(MemberConfig { addr, weight: 1, is_box: false });
        root.rows[0].fan_in = 3;
        let local = Endpoint { mac: MacAddr([2, 0, 0, 0, 9, 2]), addr };
        let own = Member {
            encap: Encap::new(local, root_endpoint()).unwrap(),
            ..Member::new(&root.rows[0], 1, 50)
        };
        let group = [0, 1].map(|rank| Member::new(&leaf.rows[0], rank, 1 + u64::from(rank)));
        let mut site = Self { tree: Tree::of(root.clone(), leaf), root, group: group.into(), own };
        site.own.join(&mut site.tree.root, None);
        for _ in 0..2 {
            for member in &mut site.group {
                join(&mut site.tree, member, None);
            }
        }
        site.own.join(&mut site.tree.root, None);
        assert_ne!(site.own.session, 0);
        site
    }

    /// All contribute to a step, whose sum is 6; the answer as it leaves for the leaf.
    fn sum(&mut self, chunk: u32) -> Vec<u8> {
        step(&mut self.tree.leaf, self.group[0].contribution(chunk, 1));
        let up = step(&mut self.tree.leaf, self.group[1].contribution(chunk, 2));
        assert_eq!(step(&mut self.tree.root, up.unwrap()), None);
        let answer = step(&mut self.tree.root, self.own.contribution(chunk, 3)).unwrap();
        assert_eq!(read(&answer).values, [6; 4]);
        answer
    }

    /// The steps whose answers the leaf keeps.
    fn answered_at_leaf(&self) -> Vec<u32> {
        let steps = self.tree.leaf.leases().flat_map(|lease| {
            let answered = lease.slots().occupied().filter(|bank| bank.state() == State::Answered);
            answered.map(|bank| bank.step()).collect::<Vec<_>>()
        });
        steps.collect()
    }

    /// What the leaf sends up at a time, of which nothing arrives.
    fn lost_at(&mut self, now: Nanos) -> Vec<Header> {
        let mut buffer = vec![0; MAX_FRAME];
        let mut sent = Vec::new();
        while let Some(len) = self.tree.leaf.poll_transmit(now, &mut buffer) {
            sent.push(read(&buffer[..len]).header);
        }
        sent
    }

    /// The root begins anew, with a worker that holds just these of the first eight steps.
    fn restart_root(&mut self, held: u8) {
        self.tree.root = aggregator(self.root.clone(), 99);
        self.own.join(&mut self.tree.root, Some((0, &[held])));
        self.tree.wait();
        let welcome = self.own.join(&mut self.tree.root, Some((0, &[held])));
        assert_eq!(welcome.header.kind, Kind::Hello);
    }
}

/// Its partial sum of a step is no answer, whoever wants one.
#[test]
fn a_leaf_hands_over_the_answers_that_it_keeps_and_nothing_else() {
    let mut site = Site::new();
    // The leaf alone gets the first answer, and the root's own worker alone the second.
    let answer = site.sum(0);
    step(&mut site.tree.leaf, answer).expect("the answer goes to the members");
    site.sum(1);
    site.restart_root(0b0100_0000);
    assert_eq!(site.tree.root.stats().transitions.of(Transition::HandOver), 1);
    let again = site.tree.root.stats().drops.of(DropReason::Duplicate);
    assert_eq!(again, 0, "what the root has by now is not handed over again");
    let kept = send(&mut site.tree.root, site.own.status(0)).unwrap();
    assert_eq!((kept.header.kind, kept.values), (Kind::Answer, vec![6; 4]));
    let open = send(&mut site.tree.root, site.own.status(1)).unwrap();
    assert_eq!((open.header.kind, open.header.outcome), (Kind::State, Outcome::Have));
    assert_eq!(open.header.members, Members::EMPTY);
    // The worker brings what it alone holds, and the leaf gets it at last.
    let header = site.own.header(Kind::Answer, 1);
    let header = Header { members: Members(0b11), ..header };
    let answer = step(&mut site.tree.root, site.own.frame(&header, &payload(6)));
    step(&mut site.tree.leaf, answer.expect("all get what was handed over"));
    assert_eq!(site.answered_at_leaf(), [0, 1]);
}

/// It says that it holds them although an earlier one is still missing, and the root, which wants
/// the last alone, hands it on.
#[test]
fn a_leaf_holds_what_it_has_beyond_a_step_that_is_missing() {
    let mut site = Site::new();
    for chunk in [0, 1, 2, 4, 6] {
        let answer = site.sum(chunk);
        if chunk != 1 {
            step(&mut site.tree.leaf, answer).expect("the answer goes to the members");
        }
    }
    site.restart_root(0b1010_1000);
    assert_eq!(site.tree.root.stats().transitions.of(Transition::HandOver), 1);
    let kept = send(&mut site.tree.root, site.own.status(6)).unwrap();
    assert_eq!((kept.header.kind, kept.values), (Kind::Answer, vec![6; 4]));
}

#[test]
fn a_leaf_hands_over_one_after_the_other_and_then_waits() {
    let mut site = Site::new();
    for chunk in [0, 1] {
        let answer = site.sum(chunk);
        step(&mut site.tree.leaf, answer).expect("the answer goes to the members");
    }
    site.tree.root = aggregator(site.root.clone(), 99);
    site.own.join(&mut site.tree.root, Some((0, &[0])));
    let mut buffer = vec![0; MAX_FRAME];
    let handed_over = |sent: &[Header]| -> Vec<u32> {
        sent.iter().filter(|header| header.kind == Kind::Answer).map(|h| h.chunk.0).collect()
    };
    for millis in 0..1_000 {
        let now = Nanos::from_millis(millis);
        while let Some(len) = site.tree.leaf.poll_transmit(now, &mut buffer) {
            let sent = read(&buffer[..len]).header;
            if sent.kind == Kind::Answer {
                assert_eq!(sent.chunk.0, 0, "the rest follows");
                assert_eq!(handed_over(&site.lost_at(now)), [1], "and then a pause");
                assert_eq!(handed_over(&site.lost_at(Nanos::from_millis(millis + 1_000))), [0, 1]);
                return;
            }
            if let Some(answer) = step(&mut site.tree.root, buffer[..len].to_vec()) {
                step(&mut site.tree.leaf, answer);
            }
        }
    }
    panic!("nothing was handed over");
}

/// Its members may be waiting for the answer in silence, too.
#[test]
fn a_leaf_asks_for_a_sum_that_it_sent_up_before_all_others() {
    let mut site = Site::new();
    let answer = site.sum(0);
    step(&mut site.tree.leaf, answer).expect("the answer goes to the members");
    site.sum(1);
    site.tree.wait();
    assert_eq!(site.answered_at_leaf(), [0, 1]);
}

#[test]
fn a_session_that_broke_above_is_broken_below() {
    let mut site = Site::new();
    site.tree.root = aggregator(site.root.clone(), 99);
    let mut fresh = Member { life: 60, session: 0, ..site.own.clone() };
    fresh.join(&mut site.tree.root, None);
    site.tree.wait();
    assert_eq!(site.tree.leaf.stats().sessions_broken, 1);
    assert!(site.tree.leaf.leases().all(|lease| lease.phase() == Phase::Forming));
    let refused = join(&mut site.tree, &mut site.group[0], Some((0, &[0])));
    assert_eq!((refused.phase, refused.reason), (Step::Refused, Reason::MemberLost));
}

/// It may be configured any moment.
#[test]
fn a_root_that_does_not_know_the_row_yet_breaks_no_session() {
    let (mut root, leaf) = configs();
    root.rows[0].row = 4;
    let row = leaf.rows[0].clone();
    let mut tree = Tree::of(root, leaf);
    for rank in 0..2 {
        join(&mut tree, &mut Member::new(&row, rank, 1 + u64::from(rank)), None);
    }
    tree.wait();
    assert_eq!(tree.leaf.stats().sessions_broken, 0);
    assert!(tree.leaf.leases().all(|lease| lease.phase() == Phase::AwaitingRoot));
}

#[test]
fn a_leaf_is_closed_when_all_members_of_its_root_are() {
    let mut site = Site::new();
    let close = |member: &Member| {
        let body = Hello { cookie_up: member.cookie, ..Hello::new(Step::Close) };
        member.hello(body, &[])
    };
    for member in [0, 1, 1] {
        site.tree.deliver(close(&site.group[member]));
        assert_ne!(site.tree.last().header.members, Members(0b11));
    }
    step(&mut site.tree.root, close(&site.own)).expect("a CLOSED");
    site.tree.wait();
    site.tree.deliver(close(&site.group[1]));
    assert_eq!(site.tree.last().header.members, Members(0b11));
}

#[test]
fn members_of_a_leaf_are_told_that_another_member_of_its_root_differs() {
    let mut site = Site::new();
    for member in &site.group {
        site.tree.deliver(member.last(0, 3, 4));
    }
    let told = read(&step(&mut site.tree.root, site.own.last(0, 2, 4)).unwrap()).header;
    assert_eq!((told.outcome, told.count, told.members), (Outcome::MISMATCH, 3, Members(0b1)));
    // The rank that completed the step has the leaf send up again.
    site.tree.deliver(site.group[1].last(0, 3, 4));
    site.tree.deliver(site.group[0].status(0));
    let told = site.tree.last().header;
    assert_eq!((told.outcome, told.count, told.members), (Outcome::MISMATCH, 2, Members(0b11)));
}
