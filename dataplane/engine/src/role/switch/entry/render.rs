//! Names, values and widths of what each entry has, in the order of the program.

use super::*;

impl Entry {
    /// How it is spelt.
    #[must_use]
    pub fn render(&self) -> Rendered<'_> {
        let (table, keys, action, params) = match self {
            Self::Group { id, nodes } => return Rendered::Group { id: *id, nodes },
            Self::Meter { name, index, rate_bytes_per_sec, burst_bytes } => {
                return Rendered::Meter {
                    name,
                    index: *index,
                    rate_bytes_per_sec: *rate_bytes_per_sec,
                    burst_bytes: *burst_bytes,
                };
            }
            Self::Local { ip, port } => {
                ("local", vec_of([ipv4("ip", *ip)]), "is_local", vec_of([wide("port", *port)]))
            }
            Self::Bridge { mac, port } => (
                "bridge",
                vec_of([ethernet("mac", *mac)]),
                "to_port",
                vec_of([field("port", u64::from(*port), 9)]),
            ),
            Self::Windowed { key, row, window, exponent } => {
                let own = [
                    field("window_mask", u64::from(window - 1), 32),
                    field("window", u64::from(*window), 32),
                    field("chunks", u64::from(row.chunks), 32),
                    field("type_op", u64::from(row.type_op), 8),
                    octet("exponent", exponent.unwrap_or(0)),
                    field("exponent_fixed", u64::from(exponent.is_some()), 8),
                ];
                ("rows", key.fields(), "windowed", row.fields(&own))
            }
            Self::Whole { key, row, exponent, row_index, replicate } => {
                let own = [
                    field("chunks", u64::from(row.chunks), 32),
                    field("type_op", u64::from(row.type_op), 8),
                    octet("exponent", *exponent),
                    wide("row_index", *row_index),
                    field("replicate", u64::from(*replicate), 8),
                ];
                ("rows", key.fields(), "whole", row.fields(&own))
            }
            Self::ReducedJob { job } => {
                ("jobs", vec_of([wide("job", job.0)]), "other_job", Vec::new())
            }
            Self::PushJob { job, scope } => {
                ("jobs", vec_of([wide("job", job.0)]), "push_job", vec_of([wide("scope", *scope)]))
            }
            Self::Member { scope, members, cookie, ip, port } => (
                "members",
                vec_of([wide("scope", *scope), field("members", members.0, 64)]),
                "member",
                vec_of([
                    field("rank", u64::from(members.0.trailing_zeros()), 8),
                    field("cookie", u64::from(cookie.0), 32),
                    ipv4("ip", *ip),
                    wide("port", *port),
                ]),
            ),
            Self::Server { scope, cookie, ip, port } => (
                "servers",
                vec_of([wide("scope", *scope)]),
                "server",
                vec_of([
                    field("cookie", u64::from(cookie.0), 32),
                    ipv4("ip", *ip),
                    wide("port", *port),
                ]),
            ),
            Self::Copy { scope, id, to } => (
                "copies",
                vec_of([wide("scope", *scope), wide("id", *id)]),
                "copy",
                vec_of([
                    field("bit_", to.bit.0, 64),
                    ethernet("dst_mac", to.dst_mac),
                    ethernet("src_mac", to.src_mac),
                    ipv4("dst_ip", to.dst_ip),
                    ipv4("src_ip", to.src_ip),
                    wide("dst_port", to.dst_port),
                    wide("src_port", to.src_port),
                    field("cookie", u64::from(to.cookie.0), 32),
                    field("flags", u64::from(to.flags.0), 8),
                ]),
            ),
            Self::Fault { kind, members, chunk, retransmit } => (
                "faults",
                vec_of([
                    field("kind", u64::from(*kind), 8),
                    field("members", members.0, 64),
                    field("chunk", u64::from(*chunk), 32),
                    field("retransmit", u64::from(*retransmit), 8),
                ]),
                "lose",
                Vec::new(),
            ),
            Self::FaultOut { kind, id, chunk, retransmit } => (
                "faults_out",
                vec_of([
                    field("kind", u64::from(*kind), 8),
                    wide("id", *id),
                    field("chunk", u64::from(*chunk), 32),
                    field("retransmit", u64::from(*retransmit), 8),
                ]),
                "lose_copy",
                Vec::new(),
            ),
        };
        Rendered::Table(TableEntry { table, keys, action, params })
    }
}

impl RowKey {
    fn fields(self) -> Vec<Field> {
        vec_of([wide("job", self.job.0), wide("row", self.row)])
    }
}

impl Row {
    /// The parameters that both actions begin with, and the action's own.
    fn fields(&self, own: &[Field]) -> Vec<Field> {
        let mut fields = vec_of([
            field("lease_epoch", u64::from(self.lease_epoch), 32),
            wide("generation", self.generation),
            wide("scope", self.scope),
            field("mask", self.mask.0, 64),
            field("base", u64::from(self.base), 32),
        ]);
        fields.extend_from_slice(own);
        fields
    }
}

pub(super) fn vec_of<T, const N: usize>(values: [T; N]) -> Vec<T> {
    Vec::from(values)
}

const fn field(name: &'static str, value: u64, bits: u16) -> Field {
    Field { name, value, bits }
}

fn wide(name: &'static str, value: u16) -> Field {
    field(name, u64::from(value), 16)
}

fn octet(name: &'static str, value: i8) -> Field {
    field(name, u64::from(value.cast_unsigned()), 8)
}

fn ipv4(name: &'static str, ip: Ipv4Addr) -> Field {
    field(name, u64::from(u32::from(ip)), 32)
}

fn ethernet(name: &'static str, mac: MacAddr) -> Field {
    let value = mac.0.iter().fold(0, |value, octet| value << 8 | u64::from(*octet));
    field(name, value, 48)
}
