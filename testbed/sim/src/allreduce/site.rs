//! A job as its users have it: boxes with the tables that the programs would have, on links with
//! rates, and members of the caller's. Frames keep their order and nobody lies.

use weft_engine::table::Table;
use weft_io::fault::FaultRates;
use weft_lane::LaneMap;
use weft_wire::Nanos;

use super::member::Member;
use super::node::BoxNode;
use super::scenario::Action;
use super::{Allreduce, Ended};
use crate::hash;
use crate::hostile::Enemy;
use crate::links::{HostLink, Links};
use crate::network::Network;
use crate::world::{Core, Cue, World as _};

/// The boxes and the network of a job.
#[derive(Clone, Debug)]
pub struct Site {
    /// Seed of faults and of what engines draw.
    pub seed: u64,
    /// The boxes, the root first, and which lane a frame belongs to.
    pub boxes: Vec<(Table, LaneMap)>,
    /// Links of the hosts: boxes, then members.
    pub links: Vec<HostLink>,
    /// What happens to the frames of members and those to them.
    pub rates: FaultRates,
    /// What is done to boxes, after so much progress of all members.
    pub cues: Vec<Cue<Action>>,
}

/// Runs a job to its end; `is_over` may end it before.
#[must_use]
pub fn run_members<M: Member>(
    site: &Site,
    members: Vec<M>,
    is_over: &mut dyn FnMut(Nanos, &[M]) -> bool,
) -> Ended<M> {
    let boxes: Vec<_> = (0..)
        .zip(&site.boxes)
        .map(|(index, (table, lanes))| {
            let seed = hash(&[site.seed, 1_000 + index]);
            BoxNode::of_table(table.clone(), seed, Some(lanes.clone()))
        })
        .collect();
    let network = Network::new(site.seed, site.rates, false).in_order();
    let enemy = Enemy::of_push(0, 0.0);
    let mut core = Core::new(boxes.len() + members.len(), &site.cues, network, enemy);
    core.links = Links::new(&site.links, &[]);
    let mut world = Allreduce::new(core, boxes, members, true, is_over);
    for index in 0..world.members.len() {
        world.begin(index, Nanos(0));
    }
    world.cue();
    world.run();
    world.finish()
}
