//! Which places of an allreduce job a cohort gets. Pure.
//!
//! A host's room is what it has slots for, and at most the job's places there. Which hosts come
//! first is decided by the placements of the simulator of jobs (`weft_jobs::place`): few hosts, for
//! a model of which one tensor holds the others up, or what others left over (Tiresias, NSDI'19,
//! section 3.4). Invariant: places are distinct and in order, and no host gets more workers than it
//! has room for.

use alloc::vec::Vec;

use weft_config::controller::{Placement, ReduceConfig};
use weft_jobs::cluster::Cluster;
use weft_jobs::place::{Nodes, Share, skew};

use crate::steered::SteerError;

/// Places for so many workers. `free`: slots that others leave on a host; none: as many as there
/// are. `skew`: the largest tensor's part of all, if it is known.
pub(super) fn choose(
    config: &ReduceConfig,
    workers: u16,
    skew: Option<f64>,
    free: impl Fn(&str) -> Option<usize>,
) -> Result<Vec<u16>, SteerError> {
    if workers == 0 || usize::from(workers) > config.places.len() {
        return Err(SteerError::Places { wanted: workers.into(), places: config.places.len() });
    }
    let is_packed = match config.placement {
        Placement::Order => return in_order(config, workers, free),
        Placement::Consolidate => true,
        Placement::Fragments => false,
        Placement::Skew => skew::is_above(skew, config.pack_limit),
    };
    let hosts = hosts(config, free);
    let room = |(places, free): &(Vec<u16>, usize)| u32::try_from(places.len().min(*free)).ok();
    let rooms: Vec<u32> = hosts.iter().map(|host| room(host).unwrap_or(0)).collect();
    let most = rooms.iter().copied().max().unwrap_or(0);
    let mut nodes = Nodes::new(&Cluster::of_nodes(u32::try_from(rooms.len()).unwrap_or(0), most));
    for (room, node) in rooms.iter().zip(0..) {
        nodes.take(Share { node, gpus: most - room });
    }
    let free = nodes.free_all();
    let taken = match is_packed {
        true => nodes.take_packed(workers.into()),
        false => nodes.take_fragments(workers.into()),
    };
    let shares = taken.ok_or(SteerError::Room { wanted: workers, free })?;
    let mut chosen = Vec::with_capacity(usize::from(workers));
    for share in shares {
        let (places, _) = &hosts[share.node as usize];
        chosen.extend(places.iter().take(share.gpus as usize));
    }
    chosen.sort_unstable();
    Ok(chosen)
}

/// The first places, if their hosts have room.
fn in_order(
    config: &ReduceConfig,
    workers: u16,
    free: impl Fn(&str) -> Option<usize>,
) -> Result<Vec<u16>, SteerError> {
    let first = config.places.iter().take(usize::from(workers));
    for place in first.clone() {
        let Some(free) = free(&place.host) else { continue };
        let wanted = first.clone().filter(|other| other.host == place.host).count();
        if wanted > free {
            return Err(SteerError::Slots { host: place.host.clone(), wanted, free });
        }
    }
    Ok((0..workers).collect())
}

/// The job's hosts in the order of its places: the places on each, and its free slots.
fn hosts(config: &ReduceConfig, free: impl Fn(&str) -> Option<usize>) -> Vec<(Vec<u16>, usize)> {
    let mut hosts: Vec<(&str, Vec<u16>)> = Vec::new();
    for (place, index) in config.places.iter().zip(0..) {
        match hosts.iter_mut().find(|(host, _)| *host == place.host) {
            Some((_, places)) => places.push(index),
            None => hosts.push((&place.host, vec![index])),
        }
    }
    let with_room = |(host, places)| (places, free(host).unwrap_or(usize::MAX));
    hosts.into_iter().map(with_room).collect()
}
