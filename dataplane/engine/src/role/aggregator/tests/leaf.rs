//! A leaf between its members and a root, frame by frame.

use alloc::vec;
use alloc::vec::Vec;

use weft_control::{Command, HoldingCommand};
use weft_wire::frame::Endpoint;
use weft_wire::header::{Header, Kind, Outcome, Packet};
use weft_wire::hello::{Hello, Phase as Step, Reason};
use weft_wire::{JobId, MacAddr, Members, Nanos, Rank};

use super::super::{Aggregator, Phase};
use super::rig::*;
use crate::drops::DropReason;
use crate::role::Taken;
use crate::role::Verdict;
use crate::slot::counter::Transition;
use crate::table::{BoxConfig, MemberConfig, ParentConfig, RowConfig};

pub(super) fn root_endpoint() -> Endpoint {
    Endpoint { mac: MacAddr([2, 0, 0, 0, 0, 0xee]), addr: "10.0.0.200:22341".parse().unwrap() }
}

/// Root with one leaf, leaf with two members.
pub(super) fn configs() -> (BoxConfig, BoxConfig) {
    configs_of(2, |row| row)
}

/// The same with so many members, and rows of another shape.
fn configs_of(members: u8, shape: impl Fn(RowConfig) -> RowConfig) -> (BoxConfig, BoxConfig) {
    let mut leaf_row = shape(row(0, 0, members));
    leaf_row.parent = Some(ParentConfig {
        endpoint: root_endpoint(),
        row: 3,
        rank: Rank::new(0).unwrap(),
        source_port: 9000,
    });
    let mut leaf_addr = box_endpoint().addr;
    leaf_addr.set_port(9000);
    let root_row = RowConfig {
        members: vec![MemberConfig { addr: leaf_addr, weight: members.into(), is_box: true }],
        fan_in: members.into(),
        ..shape(row(3, 0, 1))
    };
    let mut root = config(vec![root_row]);
    root.local = root_endpoint();
    (root, config(vec![leaf_row]))
}

pub(super) struct Tree {
    pub(super) root: Aggregator,
    pub(super) leaf: Aggregator,
    /// Frames that the leaf sent to its members.
    down: Vec<Out>,
}

impl Tree {
    pub(super) fn of(root: BoxConfig, leaf: BoxConfig) -> Self {
        Self { root: aggregator(root, 5), leaf: aggregator(leaf, 6), down: Vec::new() }
    }

    /// Gives a frame to the leaf and lets leaf and root talk until both are silent.
    pub(super) fn deliver(&mut self, frame: Vec<u8>) {
        let mut at_leaf = vec![frame];
        loop {
            let mut at_root = Vec::new();
            for frame in at_leaf.drain(..) {
                if let Some(out) = self.at_leaf(frame) {
                    at_root.push(out);
                }
            }
            let mut buffer = vec![0; MAX_FRAME];
            while let Some(len) = self.leaf.poll_transmit(Nanos(0), &mut buffer) {
                at_root.push(buffer[..len].to_vec());
            }
            for frame in at_root {
                if let Some(out) = step(&mut self.root, frame) {
                    at_leaf.push(out);
                }
            }
            if at_leaf.is_empty() {
                return;
            }
        }
    }

    pub(super) fn at_leaf(&mut self, frame: Vec<u8>) -> Option<Vec<u8>> {
        let out = step(&mut self.leaf, frame)?;
        let read = read(&out);
        if read.target == root_endpoint().addr {
            return Some(out);
        }
        self.down.push(read);
        None
    }

    pub(super) fn last(&self) -> &Out {
        self.down.last().expect("the leaf said something")
    }
}

pub(super) fn step(aggregator: &mut Aggregator, frame: Vec<u8>) -> Option<Vec<u8>> {
    let len = frame.len();
    let mut buffer = frame;
    buffer.resize(MAX_FRAME, 0);
    match aggregator.handle_frame(Nanos(0), &mut buffer, len) {
        Verdict::Send { len } | Verdict::Multicast { len, .. } => Some(buffer[..len].to_vec()),
        _ => None,
    }
}

pub(super) fn join(tree: &mut Tree, member: &mut Member, held: Option<(u32, &[u8])>) -> Hello {
    tree.deliver(member.hello(Hello::new(Step::Hello), &[]));
    let mut body = Hello::new(Step::Join);
    body.token = tree.last().hello.unwrap().token;
    body.session = member.session;
    let mut bitmap: &[u8] = &[];
    if let Some((low, bytes)) = held {
        body.low_step = low;
        body.step_bits = u16::try_from(bytes.len() * 8).unwrap();
        bitmap = bytes;
    }
    tree.deliver(member.hello(body, bitmap));
    let out = tree.last().clone();
    let hello = out.hello.unwrap();
    if hello.phase == Step::Welcome {
        member.session = hello.session;
        member.cookie = hello.cookie_up;
        member.cookie_down = hello.cookie_down;
        member.group = out.header.group;
    }
    hello
}

pub(super) fn open_tree() -> (Tree, Vec<Member>) {
    open_tree_of(2, |row| row, &[])
}

/// The same with so many members, and rows of another shape; `held` says which steps each of them
/// brings from a session before.
pub(super) fn open_tree_of(
    members: u8,
    shape: impl Fn(RowConfig) -> RowConfig,
    held: &[(u32, u8)],
) -> (Tree, Vec<Member>) {
    let (root, leaf) = configs_of(members, shape);
    let row = leaf.rows[0].clone();
    let mut tree = Tree::of(root, leaf);
    let mut group: Vec<Member> =
        (0..members).map(|rank| Member::new(&row, rank, 1 + u64::from(rank))).collect();
    for _ in 0..2 {
        for (rank, member) in group.iter_mut().enumerate() {
            let bits = held.get(rank).map(|(low, bits)| (*low, [*bits]));
            if bits.is_some() {
                member.session = 777;
            }
            join(&mut tree, member, bits.as_ref().map(|(low, bits)| (*low, &bits[..])));
        }
    }
    assert_ne!(group[0].session, 0);
    (tree, group)
}

impl Tree {
    /// Lets the leaf's timers run for a second, with no word from its members.
    pub(super) fn wait(&mut self) {
        self.wait_from(0);
    }

    fn wait_from(&mut self, second: u64) {
        for millis in 1_000 * second..1_000 * (second + 1) {
            let mut buffer = vec![0; MAX_FRAME];
            while let Some(len) = self.leaf.poll_transmit(Nanos::from_millis(millis), &mut buffer) {
                if let Some(answer) = step(&mut self.root, buffer[..len].to_vec()) {
                    step(&mut self.leaf, answer);
                }
            }
        }
    }

    fn restart_root(&mut self) {
        self.root = aggregator(configs().0, 99);
    }

    fn root_is_open(&self) -> bool {
        self.root.leases().all(|lease| lease.phase() == Phase::Open)
    }
}

#[test]
fn a_leaf_whose_members_are_silent_learns_of_the_roots_restart() {
    let (mut tree, _) = open_tree();
    tree.restart_root();
    assert!(!tree.root_is_open());
    tree.wait();
    assert!(tree.root_is_open());
}

/// The leaf goes on asking, seldom, for the lease may come again; whose patience is over, the
/// members know (SPEC#two-levels).
#[test]
fn a_leaf_whose_roots_lease_is_removed_asks_seldom_and_says_that_it_waits() {
    let (mut tree, mut group) = open_tree();
    let (job, row) = (JobId(0), 3);
    let remove = HoldingCommand::RemoveLease { job, row };
    tree.root.handle_command(Command::Holding(remove.clone()));
    for (rank, value) in [(0, 1), (1, 2)] {
        tree.deliver(group[rank].contribution(0, value));
    }
    let sums_up = tree.root.stats().drops.of(DropReason::UnknownGroup);
    assert_eq!(sums_up, 1, "the leaf's sum finds no row");
    for second in 0..10 {
        tree.wait_from(second);
        // Members hear that all are there, so that it is the level above that is waited for.
        tree.deliver(group[1].status(0));
        let have = &tree.last().header;
        assert_eq!((have.outcome, have.members), (Outcome::Have, Members(0b11)));
    }
    let refused = tree.root.stats().drops.of(DropReason::UnknownGroup) - sums_up;
    assert!((80..130).contains(&refused), "it asks at most every 100 ms: {refused}");
    // Members that come anew wait too, and hear for whom.
    for member in &mut group {
        member.session = 0;
        member.life += 100;
        let waiting = join(&mut tree, member, None);
        assert_eq!(waiting.phase, Step::Waiting);
    }
    assert_eq!(tree.last().header.members, Members(0b11), "all are here");
    // When the lease comes again, they are let in, and sums are those of the new formation alone.
    let (root, _) = configs();
    let install = HoldingCommand::InstallLease(root.rows[0].clone());
    tree.root.handle_command(Command::Holding(install));
    tree.wait_from(10);
    assert!(tree.root_is_open());
    for member in &mut group {
        assert_eq!(join(&mut tree, member, None).phase, Step::Welcome);
    }
    tree.deliver(group[0].contribution(0, 30));
    tree.deliver(group[1].contribution(0, 40));
    assert_eq!(tree.last().values, vec![70; 4]);
    // And when it goes and comes at once, their session is over, and they are told.
    tree.root.handle_command(Command::Holding(remove));
    let install = HoldingCommand::InstallLease(root.rows[0].clone());
    tree.root.handle_command(Command::Holding(install));
    let broken = tree.leaf.stats().sessions_broken;
    tree.wait_from(11);
    assert_eq!(tree.leaf.stats().sessions_broken, broken + 1);
    let mut survivor = group[0].clone();
    survivor.life += 1;
    let refused = join(&mut tree, &mut survivor, Some((1, &[0])));
    assert_eq!((refused.phase, refused.reason), (Step::Refused, Reason::MemberLost));
}

/// A tree whose leaf has its members and not yet its root.
pub(super) fn awaiting_root() -> Tree {
    let (root, leaf) = configs();
    let row = leaf.rows[0].clone();
    let mut tree = Tree::of(root, leaf);
    for rank in 0..2 {
        let member = Member::new(&row, rank, 1 + u64::from(rank));
        let challenge = step(&mut tree.leaf, member.hello(Hello::new(Step::Hello), &[])).unwrap();
        let mut body = Hello::new(Step::Join);
        body.token = read(&challenge).hello.unwrap().token;
        step(&mut tree.leaf, member.hello(body, &[]));
    }
    tree
}

impl Tree {
    /// What the root answers to what the leaf sends next, at this millisecond or after.
    fn next_answer(&mut self, millis: u64) -> Option<Vec<u8>> {
        let mut buffer = vec![0; MAX_FRAME];
        let len = (millis..millis + 1_000)
            .find_map(|millis| self.leaf.poll_transmit(Nanos::from_millis(millis), &mut buffer));
        step(&mut self.root, buffer[..len.expect("the leaf asks")].to_vec())
    }
}

#[test]
fn a_leaf_with_a_token_of_the_roots_earlier_life_asks_for_another() {
    let mut tree = awaiting_root();
    let challenge = tree.next_answer(0).expect("a CHALLENGE");
    step(&mut tree.leaf, challenge);
    tree.restart_root();
    tree.wait();
    assert!(tree.root_is_open());
}

/// It would be open with cookies that the present root does not know.
#[test]
fn a_late_welcome_of_the_roots_earlier_life_opens_no_leaf() {
    let mut tree = awaiting_root();
    let challenge = tree.next_answer(0).expect("a CHALLENGE");
    step(&mut tree.leaf, challenge);
    let late = tree.next_answer(0).expect("a WELCOME");
    tree.restart_root();
    let challenge = (1..9).find_map(|_| tree.next_answer(1)).expect("another CHALLENGE");
    step(&mut tree.leaf, challenge);
    // It JOINs with the new token.
    let welcome = tree.next_answer(1).expect("a WELCOME");
    step(&mut tree.leaf, late);
    assert!(tree.leaf.leases().all(|lease| lease.phase() == Phase::AwaitingRoot));
    assert_eq!(tree.leaf.stats().drops.of(DropReason::Unsolicited), 1);
    step(&mut tree.leaf, welcome);
    assert!(tree.leaf.leases().all(|lease| lease.phase() == Phase::Open));
}

#[test]
fn a_leaf_takes_only_sums_of_all_from_the_root() {
    let (mut tree, group) = open_tree();
    tree.at_leaf(group[0].contribution(0, 1));
    let up = step(&mut tree.leaf, group[1].contribution(0, 2)).expect("the sum goes up");
    let mut answer = step(&mut tree.root, up).expect("the answer comes down");
    let mut packet = Packet::new_unchecked(&mut answer[42..]);
    let mut header = Header::parse(&packet).unwrap();
    header.members = Members(0);
    header.emit(&mut packet);
    packet.seal(weft_kernel::crc32c);
    assert_eq!(step(&mut tree.leaf, answer), None);
    assert_eq!(tree.leaf.stats().drops.of(DropReason::BadMembers), 1);
}

#[test]
fn sums_go_up_and_answers_come_down() {
    let (mut tree, group) = open_tree();
    tree.deliver(group[0].contribution(0, 1));
    tree.deliver(group[1].contribution(0, 2));
    assert_eq!((tree.last().header.kind, tree.last().values.clone()), (Kind::Answer, vec![3; 4]));
    assert_eq!(tree.last().header.cookie, group[0].cookie_down);
    assert_eq!(tree.leaf.stats().transitions.of(Transition::CompleteLeaf), 1);
    assert_eq!(tree.leaf.stats().transitions.of(Transition::AnswerFromRoot), 1);
    assert_eq!(tree.root.stats().transitions.of(Transition::CompleteRoot), 1);
    tree.deliver(group[0].status(0));
    assert_eq!(tree.last().values, vec![3; 4], "the leaf kept the answer");
}

#[test]
fn a_run_that_completes_a_step_goes_up() {
    let (mut tree, group) = open_tree();
    let mut run = [group[1].contribution(0, 5), group[0].contribution(0, 2)];
    let Taken::Wait(first) = tree.leaf.take(Nanos(0), &run[0]) else { panic!("the first waits") };
    assert_eq!(tree.leaf.take(Nanos(0), &run[1]), Taken::Sum(first));
    let Verdict::Send { len } = tree.leaf.sum_run(first, &mut run) else {
        panic!("two contributions to a step of two members are its sum");
    };
    let sum = read(&run[1][..len]);
    assert_eq!((sum.target, sum.values), (root_endpoint().addr, vec![7; 4]));
    assert_eq!(tree.leaf.stats().transitions.of(Transition::CompleteLeaf), 1);
}

#[test]
fn the_completing_rank_makes_the_leaf_send_up_again() {
    for [first, last] in [[0, 1], [1, 0]] {
        let (mut tree, group) = open_tree();
        tree.deliver(group[first].contribution(0, 1));
        // The leaf's sum is lost on its way up.
        let lost = step(&mut tree.leaf, group[last].contribution(0, 2)).unwrap();
        assert_eq!(read(&lost).target, root_endpoint().addr);
        tree.deliver(group[first].status(0));
        assert_eq!(tree.last().header.outcome, Outcome::Have, "rank {first} did not complete it");
        tree.deliver(group[last].status(0));
        assert_eq!(tree.last().values, vec![3; 4]);
    }
}

#[test]
fn a_restarted_leaf_rejoins_the_open_root() {
    let (mut tree, mut group) = open_tree();
    tree.deliver(group[0].contribution(0, 1));
    tree.deliver(group[1].contribution(0, 2));
    let (_, leaf) = configs();
    tree.leaf = aggregator(leaf, 77);
    // Both hold chunk 0 and nothing else.
    join(&mut tree, &mut group[0], Some((1, &[0])));
    join(&mut tree, &mut group[1], Some((1, &[0])));
    for member in &mut group {
        assert_eq!(join(&mut tree, member, None).phase, Step::Welcome);
    }
    assert_eq!(tree.root.stats().sessions_broken, 0, "a leaf has no data of its own");
    tree.deliver(group[0].contribution(2, 10));
    tree.deliver(group[1].contribution(2, 20));
    assert_eq!(tree.last().values, vec![30; 4]);
}

/// A leaf's life has its own cookie, and the short way knows the present one only.
#[test]
fn a_sum_of_a_leafs_earlier_life_is_refused_by_the_root() {
    let (mut tree, mut group) = open_tree();
    tree.deliver(group[0].contribution(0, 1));
    let old = step(&mut tree.leaf, group[1].contribution(0, 2)).unwrap();
    assert_eq!(read(&old).target, root_endpoint().addr);
    assert!(tree.root.is_ordinary(&old));
    tree.leaf = aggregator(configs().1, 77);
    for _ in 0..2 {
        for member in &mut group {
            join(&mut tree, member, Some((0, &[0])));
        }
    }
    let refused = tree.root.stats().drops.of(DropReason::BadCookie);
    let stale = step(&mut tree.root, old.clone()).map(|frame| read(&frame).header.outcome);
    assert_eq!(stale, Some(Outcome::Stale));
    assert!(!tree.root.is_ordinary(&old));
    assert_eq!(tree.root.stats().drops.of(DropReason::BadCookie), refused + 1);
    assert_eq!(snapshot(&tree.root), []);
    tree.deliver(group[0].contribution(0, 10));
    let new = step(&mut tree.leaf, group[1].contribution(0, 20)).unwrap();
    assert!(tree.root.is_ordinary(&new));
}

/// At the largest window that its MTU admits, a leaf's JOIN says all that it keeps.
#[test]
fn a_leaf_resumes_within_its_mtu() {
    let (mut root, mut leaf) = configs();
    for config in [&mut root, &mut leaf] {
        config.mtu = 576;
        config.jobs[0].slots_max = 512;
        config.rows[0].window = 512;
    }
    let mut tree = Tree::of(root.clone(), leaf.clone());
    let mut group = [0, 1].map(|rank| Member::new(&leaf.rows[0], rank, 1 + u64::from(rank)));
    for _ in 0..2 {
        for member in &mut group {
            join(&mut tree, member, None);
        }
    }
    tree.deliver(group[0].contribution(0, 1));
    tree.deliver(group[1].contribution(0, 2));
    tree.root = aggregator(root, 99);
    let mut longest = 0;
    let mut buffer = vec![0; crate::table::frame_len_max(576)];
    for millis in 0..1_000 {
        while let Some(len) = tree.leaf.poll_transmit(Nanos::from_millis(millis), &mut buffer) {
            longest = longest.max(len);
            if let Some(answer) = step(&mut tree.root, buffer[..len].to_vec()) {
                step(&mut tree.leaf, answer);
            }
        }
    }
    assert!(tree.root_is_open());
    assert_eq!(longest, 14 + 20 + 8 + 32 + 72 + 4 * 512 / 8, "a JOIN with its bitmap");
}

#[test]
fn a_leaf_resumes_with_a_restarted_root() {
    let (mut tree, group) = open_tree();
    tree.deliver(group[0].contribution(0, 1));
    tree.deliver(group[1].contribution(0, 2));
    let (root, _) = configs();
    tree.root = aggregator(root, 78);
    tree.deliver(group[0].contribution(2, 10));
    tree.deliver(group[1].contribution(2, 20));
    // The sum met a STALE; the leaf has resumed by now, and the rank's repeat sends it up again.
    tree.deliver(group[1].status(2));
    assert_eq!(tree.last().values, vec![30; 4]);
    assert_eq!(tree.root.stats().transitions.of(Transition::SeedResumed), 1);
}

#[test]
fn a_new_session_at_the_leaf_is_one_at_the_root() {
    let (mut tree, group) = open_tree();
    let (_, leaf) = configs();
    let mut fresh: Vec<Member> =
        (0..2).map(|rank| Member::new(&leaf.rows[0], rank, 40 + u64::from(rank))).collect();
    for _ in 0..2 {
        for member in &mut fresh {
            join(&mut tree, member, None);
        }
    }
    assert_ne!(fresh[0].session, group[0].session);
    tree.deliver(fresh[0].contribution(0, 3));
    tree.deliver(fresh[1].contribution(0, 4));
    assert_eq!(tree.last().values, vec![7; 4]);
}

#[test]
fn closing_waits_for_the_root() {
    let (mut tree, group) = open_tree();
    tree.deliver(group[0].hello(Hello::new(Step::Close), &[]));
    tree.deliver(group[1].hello(Hello::new(Step::Close), &[]));
    assert_eq!(tree.last().header.members, Members::EMPTY, "the root has not said so");
    tree.deliver(group[1].hello(Hello::new(Step::Close), &[]));
    assert_eq!(tree.last().hello.unwrap().phase, Step::Closed);
    assert_eq!(tree.last().header.members, tree.last().hello.unwrap().mask);
}
