//! The configurations of the aggregators of an allreduce. Pure.

use weft_config::node::{JobSection, MemberSection, NodeConfig, ParentSection, RowSection};
use weft_wire::header::Operation;
use weft_wire::hello::Overflow;

use crate::run::plan::{Io, Layout, Place, box_config};
use crate::scenario::ScaleExponent;

/// Row of a job's gradients, and of its block exponents.
pub(in crate::run) const fn rows_of(job: u16) -> [u16; 2] {
    [2 * job, 2 * job + 1]
}

/// Those of a job alone.
pub(in crate::run) const ROWS: [u16; 2] = rows_of(0);

/// Slots of a lease in BMv2.
const SWITCH_WINDOW: u16 = 16;

/// A box's `node.toml`.
pub(in crate::run) fn node(layout: &Layout<'_>, index: usize, name: &str) -> NodeConfig {
    let (addr, mtu) = (layout.box_addr(name), layout.scenario.lab.mtu);
    let mut config = box_config(name, layout.io, addr, mtu, layout.interface(name));
    if let Place::Memif { socket, .. } = layout.place {
        config.port.device = Some("net_memif0".to_owned());
        config.dpdk.memory_mib = 128;
        config.dpdk.vdev = vec![format!(
            "net_memif0,role=server,id=0,socket={socket},socket-abstract=no,bsize=2048,rsize=10"
        )];
    }
    if layout.io == Io::Bmv2 {
        config.switch = Some(layout.switch());
    }
    config.lcores.shards = layout.scenario.aggregation.lanes;
    let (job, name) = (layout.site.job, layout.job_name().to_owned());
    config.job = vec![JobSection { name: Some(name), ..JobSection::new(job) }];
    config.row = vec![row(layout, index, 0)];
    if layout.scenario.job.scale_exponent == ScaleExponent::Auto {
        config.row.push(row(layout, index, 1));
    }
    config
}

/// Row 0 sums gradients, row 1 agrees on exponents.
fn row(layout: &Layout<'_>, index: usize, row: usize) -> RowSection {
    let (workers, leaves) = (layout.scenario.job.workers, layout.scenario.aggregation.leaves);
    let rows = rows_of(layout.site.job);
    let members = if leaves > 0 && index == 0 {
        let leaf = |name: &String| MemberSection {
            addr: layout.box_addr(name),
            weight: (workers / leaves).into(),
            is_box: true,
        };
        layout.names[1..].iter().map(leaf).collect()
    } else {
        let own = (0..workers).filter(|rank| layout.box_of(*rank).0 == layout.names[index]);
        own.map(|rank| layout.worker_addr(rank).into()).collect()
    };
    let (operation, exponent) = match layout.scenario.job.scale_exponent {
        _ if row == 1 => (Operation::Max, Some(0)),
        ScaleExponent::Fixed(exponent) => (Operation::Sum, Some(exponent)),
        ScaleExponent::Auto => (Operation::Sum, None),
    };
    let parent = (index > 0).then(|| ParentSection {
        addr: layout.box_addr(&layout.names[0]),
        row: rows[row],
        rank: u8::try_from(index - 1).expect("few boxes"),
        source_port: None,
        mac: None,
    });
    // What a switch can do; workers limit what they send whatever the box does.
    let is_switch = layout.io == Io::Bmv2;
    let overflow = if is_switch { Overflow::Wrap } else { Overflow::Clamp };
    let window = layout.scenario.aggregation.window;
    RowSection {
        operation,
        overflow,
        integrity: layout.integrity(),
        elements: layout.elements().into(),
        // BMv2's queues are short.
        window: if is_switch { window.min(SWITCH_WINDOW) } else { window },
        exponent,
        fan_in: Some(workers.into()),
        parent,
        ..RowSection::new(rows[row], layout.site.job, members)
    }
}
