//! One frame through a switch: parser, ingress, replication, and egress once for each copy. Source:
//! `simple_switch.cpp`, `ingress_thread` and `egress_thread`.

mod deparse;
mod eval;
mod execute;
mod packet;
mod parse;

use crate::fault::{Fault, FaultKind, Place, STEPS_MAX};
use crate::program::{Next, Node, Pipeline, Program};
use crate::state::Machine;
use crate::value::Value;

use packet::Packet;

/// A frame and the port that it leaves by.
pub(crate) type Sent = (u16, Vec<u8>);

type Ran<T> = Result<T, Fault>;

pub(crate) fn process(
    program: &Program,
    machine: &mut Machine,
    port: u16,
    frame: &[u8],
) -> Ran<Vec<Sent>> {
    let mut run = Run { program, machine };
    let standard = &program.standard;
    let mut packet = Packet::new(program, frame);
    packet.put(program, standard.ingress_port, u64::from(port));
    packet.put(program, standard.packet_length, frame.len() as u64);
    run.parse(&mut packet)?;
    run.verify(&mut packet)?;
    run.pipeline(&program.ingress, &mut packet)?;
    let group = packet.number(standard.mcast_grp);
    let target = packet.number(standard.egress_spec);
    let mut copies = Vec::new();
    if group != 0 {
        let nodes = u16::try_from(group).ok().and_then(|group| run.machine.groups.get(&group));
        for (port, id) in nodes.cloned().unwrap_or_default() {
            let mut copy = packet.clone();
            copy.put(program, standard.egress_rid, u64::from(id));
            copy.put(program, standard.instance_type, REPLICATION);
            copies.push((port, copy));
        }
    } else if target != DROP_PORT {
        copies.push((u16::try_from(target).unwrap_or(u16::MAX), packet));
    }
    let mut out = Vec::new();
    for (port, copy) in copies {
        out.extend(run.egress(port, copy)?.map(|frame| (port, frame)));
    }
    Ok(out)
}

/// A program at work on its state.
struct Run<'a> {
    program: &'a Program,
    machine: &'a mut Machine,
}

impl Run<'_> {
    fn egress(&mut self, port: u16, mut packet: Packet<'_>) -> Ran<Option<Vec<u8>>> {
        let standard = &self.program.standard;
        packet.has_exited = false;
        packet.put(self.program, standard.egress_port, u64::from(port));
        packet.put(self.program, standard.egress_spec, 0);
        packet.put(self.program, standard.packet_length, packet.len as u64);
        self.pipeline(&self.program.egress, &mut packet)?;
        if packet.number(standard.egress_spec) == DROP_PORT {
            return Ok(None);
        }
        self.deparse(packet).map(Some)
    }

    fn pipeline(&mut self, pipeline: &Pipeline, packet: &mut Packet<'_>) -> Ran<()> {
        let mut node = pipeline.first;
        for _ in 0..STEPS_MAX {
            let Some(at) = node else { return Ok(()) };
            if packet.has_exited {
                return Ok(());
            }
            node = match at {
                Node::Conditional(index) => {
                    let conditional = &pipeline.conditionals[index];
                    let is_true = self.test(&conditional.cond, packet, &[]);
                    if is_true.map_err(|kind| at_place(kind, &conditional.place))? {
                        conditional.if_true
                    } else {
                        conditional.if_false
                    }
                }
                Node::Table(index) => self.table(index, packet)?,
            };
        }
        Err(at_place(FaultKind::Endless, &Place { name: "pipeline".to_owned(), line: None }))
    }

    fn table(&mut self, index: usize, packet: &mut Packet<'_>) -> Ran<Option<Node>> {
        let table = &self.program.tables[index];
        let mut key = Vec::with_capacity(table.key.len());
        for part in &table.key {
            let value = self.key(part, packet).map_err(|kind| at_place(kind, &table.place))?;
            key.push(value);
        }
        // An entry is small; the copy lets the action write to the state.
        let found =
            if key.is_empty() { None } else { self.machine.tables[index].get(&key).cloned() };
        let is_hit = found.is_some();
        let (action, data) = match &found {
            Some(entry) => (entry.action, &entry.data[..]),
            None => (table.default.0, &table.default.1[..]),
        };
        self.action(&self.program.actions[action], packet, data)?;
        Ok(match &table.next {
            Next::ByHit { hit, .. } if is_hit => *hit,
            Next::ByHit { miss, .. } => *miss,
            Next::ByAction(nodes) => {
                nodes.iter().find(|(id, _)| *id == action).and_then(|(_, node)| *node)
            }
        })
    }
}

fn at_place(kind: FaultKind, place: &Place) -> Fault {
    Fault { kind, place: place.clone() }
}

fn low(value: &Value) -> usize {
    usize::try_from(value.low_u64()).unwrap_or(usize::MAX)
}

/// The port of what is dropped, in `simple_switch` as it comes.
const DROP_PORT: u64 = 511;
/// `PKT_INSTANCE_TYPE_REPLICATION`.
const REPLICATION: u64 = 5;
