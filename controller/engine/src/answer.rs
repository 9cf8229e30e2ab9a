//! Decides what a policy's plan means: which of its groups are taken as they are, and what they
//! promise of the network.

use alloc::vec::Vec;

use weft_wire::{Members, Rank};

use weft_plan::case::{Case, HostId, Reservation, Segment, UpdateId};
use weft_plan::plan::Plan;

use super::job::{Planned, Ticket};

/// The groups of a plan, in order. An answer that names a host which is no aggregator of the job, a
/// direct group of several, or a group with two updates of a worker (who has one bit in it) is sent
/// direct, each update for itself.
pub(super) fn planned_groups(
    aggregators: &[(HostId, usize)],
    plan: &Plan,
    case: &Case,
    tickets: &[Ticket],
    rank_of: impl Fn(Ticket) -> Rank,
) -> Vec<Planned> {
    let mut groups = Vec::with_capacity(plan.groups.len());
    for (index, group) in plan.groups.iter().enumerate() {
        let segments = |id: &UpdateId| -> Option<(Ticket, Vec<Segment>)> {
            let transfer = plan.transfers.get(id.index())?.as_ref()?;
            Some((*tickets.get(id.index())?, transfer.segments.clone()))
        };
        let members: Vec<_> = group.members.iter().filter_map(segments).collect();
        let copies = plan.replicas.iter().flat_map(|replica| &replica.copies);
        let copy = copies
            .filter(|copy| copy.group as usize == index)
            .find_map(|copy| Some(copy.hop.as_ref()?.segments.clone()))
            .unwrap_or_default();
        let via = group.via.and_then(|host| {
            aggregators.iter().find(|(known, _)| *known == host).map(|(_, position)| *position)
        });
        let ranks = members.iter().map(|(ticket, _)| rank_of(*ticket).bit());
        let ranks = ranks.fold(Members::EMPTY, Members::union);
        match (via, &group.forward) {
            (Some(_), Some(forward)) if ranks.len() == members.len() => {
                let starts = members.iter().filter_map(|(_, own)| Some(own.first()?.from_ns));
                let start_ns = starts.min().unwrap_or(case.now_ns);
                let sum = forward.segments.clone();
                groups.push(Planned { members, via, sum, copy, start_ns });
            }
            _ => groups.extend(members.into_iter().map(|(ticket, own)| Planned {
                start_ns: own.first().map_or(case.now_ns, |first| first.from_ns),
                sum: own.clone(),
                members: vec![(ticket, own)],
                via: None,
                copy: copy.clone(),
            })),
        }
    }
    groups
}

pub(super) fn reserve(
    reservations: &mut Vec<Reservation>,
    from: HostId,
    to: HostId,
    segments: &[Segment],
) {
    let reserve =
        |segment: &Segment| Reservation { from: Some(from), to: Some(to), segment: *segment };
    reservations.extend(segments.iter().map(reserve));
}

/// Position of every ticket when all are sorted.
pub(super) fn by_ticket(tickets: &[Ticket]) -> Vec<u32> {
    let mut sorted: Vec<usize> = (0..tickets.len()).collect();
    sorted.sort_unstable_by_key(|i| tickets[*i]);
    let mut ranks = vec![0; tickets.len()];
    for (rank, i) in sorted.into_iter().enumerate() {
        ranks[i] = u32::try_from(rank).unwrap_or(u32::MAX);
    }
    ranks
}
