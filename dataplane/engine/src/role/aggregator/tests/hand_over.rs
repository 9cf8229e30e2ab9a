//! A root that began anew, a leaf below it, and a worker of its own beside that: which sums come
//! back to the root, and from whom (SPEC#resync).

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{Kind, Outcome};
use weft_wire::{MacAddr, Members};

use super::leaf::{Tree, configs, join, root_endpoint, step};
use super::rig::*;
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
    let kept = send(&mut site.tree.root, site.own.status(0)).unwrap();
    assert_eq!((kept.header.kind, kept.values), (Kind::Answer, vec![6; 4]));
    let open = send(&mut site.tree.root, site.own.status(1)).unwrap();
    assert_eq!((open.header.kind, open.header.outcome), (Kind::State, Outcome::Have));
    assert_eq!(open.header.members, Members::EMPTY);
    // The worker brings what it alone holds, and the leaf gets it at last.
    let header = site.own.header(Kind::Answer, 1);
    let header = weft_wire::header::Header { members: Members(0b11), ..header };
    let answer = step(&mut site.tree.root, site.own.frame(&header, &payload(6)));
    step(&mut site.tree.leaf, answer.expect("all get what was handed over"));
    let steps = site.tree.leaf.leases().flat_map(|lease| {
        let answered = lease.slots().occupied().filter(|bank| bank.state() == State::Answered);
        answered.map(|bank| bank.step()).collect::<Vec<_>>()
    });
    assert_eq!(steps.collect::<Vec<_>>(), [0, 1]);
}
