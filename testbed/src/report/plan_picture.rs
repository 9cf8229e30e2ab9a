//! Decides what a plan's Gantt chart shows: a line for every sender, the sums of aggregators and
//! copies to replicas among them, and the servers' commits.

use weft_plan::case::{Case, HostId, Segment};
use weft_plan::plan::Plan;

use super::gantt::{Bar, Mark};

/// The bars and marks of a plan; colours tell groups apart.
#[must_use]
pub fn plan_picture(case: &Case, plan: &Plan) -> (Vec<Bar>, Vec<Mark>) {
    let mut bars = Vec::new();
    let mut marks = Vec::new();
    let host = |id: HostId| case.host(id).name.clone();
    let mut draw = |lane: String, label: String, class: usize, segments: &[Segment]| {
        bars.extend(segments.iter().map(|segment| Bar {
            lane: lane.clone(),
            label: label.clone(),
            class,
            from_ns: segment.from_ns,
            to_ns: segment.to_ns,
            bytes_per_sec: segment.bytes_per_sec,
        }));
    };
    for (class, group) in plan.groups.iter().enumerate() {
        for id in &group.members {
            let update = case.update(*id);
            if let Some(transfer) = &plan.transfers[id.index()] {
                draw(host(update.host), update.name.clone(), class, &transfer.segments);
            }
        }
    }
    for (class, group) in plan.groups.iter().enumerate() {
        if let (Some(via), Some(hop)) = (group.via, &group.forward) {
            let label = format!("sum of {}", group.members.len());
            draw(host(via), label, class, &hop.segments);
        }
        let lane = format!("{} commits", case.server(group.server).name);
        marks.push(Mark { lane, at_ns: group.commit_ns, class });
    }
    for copy in plan.replicas.iter().flat_map(|replica| &replica.copies) {
        let class = usize::try_from(copy.group).unwrap_or(usize::MAX);
        if let (Some(hop), Some(group)) = (&copy.hop, plan.groups.get(class)) {
            let sender = group.via.or_else(|| Some(case.update(*group.members.first()?).host));
            let Some(sender) = sender else { continue };
            draw(format!("{} copies", host(sender)), "copy".to_owned(), class, &hop.segments);
        }
    }
    (bars, marks)
}
