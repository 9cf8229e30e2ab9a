//! A checked case as JSON again: what a policy outside of this program is told.

use alloc::vec::Vec;

use super::{Case, HostId};
use crate::spec::{
    CaseSpec, HostSpec, LinksSpec, RackSpec, ReservationSpec, ServerSpec, UpdateSpec,
};

impl From<&Case> for CaseSpec {
    /// The same case in words. Updates in flight are counted in `version` already.
    fn from(case: &Case) -> Self {
        let host = |id: HostId| case.host(id).name.clone();
        let hosts = case.hosts.iter().map(|host| {
            let spec = HostSpec {
                up_bytes_per_sec: host.up_bytes_per_sec,
                down_bytes_per_sec: host.down_bytes_per_sec,
                rack: host.rack.map(|rack| case.racks[rack.index()].name.clone()),
            };
            (host.name.clone(), spec)
        });
        let racks = case.racks.iter().map(|rack| {
            let spec = RackSpec {
                up_bytes_per_sec: rack.up_bytes_per_sec,
                down_bytes_per_sec: rack.down_bytes_per_sec,
                hosts: Vec::new(),
            };
            (rack.name.clone(), spec)
        });
        let servers = case.servers.iter().map(|server| ServerSpec {
            name: server.name.clone(),
            host: host(server.host),
            version: server.version,
            tau_max: Some(server.tau_max),
            momentum: server.momentum,
            div_max: server.div_max,
            replica: server.replica.map(host),
            job: server.job.clone(),
            h_norm: server.h_norm,
            lag_norms: server.lag_norms.clone(),
            in_flight: 0,
            in_flight_until_ns: Some(server.commit_from_ns),
            workers: None,
        });
        let updates = case.updates.iter().map(|update| UpdateSpec {
            id: update.name.clone(),
            server: case.server(update.server).name.clone(),
            host: host(update.host),
            size_bytes: update.size_bytes,
            version: update.version,
            norm: Some(update.norm),
            job: case.server(update.server).job.clone(),
            dropped_before: update.dropped_before,
        });
        let reservations = case.reservations.iter().map(|reservation| ReservationSpec {
            from: reservation.from.map(host),
            to: reservation.to.map(host),
            from_ns: reservation.segment.from_ns,
            to_ns: reservation.segment.to_ns,
            bytes_per_sec: reservation.segment.bytes_per_sec,
        });
        Self {
            schema: 1,
            now_ns: case.now_ns,
            hosts: hosts.collect(),
            links: LinksSpec { racks: racks.collect() },
            servers: servers.collect(),
            aggregators: case.aggregators.iter().map(|id| host(*id)).collect(),
            updates: updates.collect(),
            reservations: reservations.collect(),
            options: case.options.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_survives_its_own_words() {
        let text = r#"{"now_ns":7,"hosts":{
            "a":{"up_bytes_per_sec":3,"down_bytes_per_sec":4,"rack":"r"},
            "s":{"up_bytes_per_sec":5,"down_bytes_per_sec":6},
            "b":{"up_bytes_per_sec":5,"down_bytes_per_sec":6}},
            "links":{"racks":{"r":{"up_bytes_per_sec":1,"down_bytes_per_sec":2}}},
            "servers":[{"name":"s0","host":"s","version":5,"in_flight":2,"in_flight_until_ns":90,
                "tau_max":6,"momentum":0.5,"div_max":3.5,"replica":"b","job":"j","h_norm":1.5,
                "lag_norms":[1,2]}],
            "aggregators":["b","a"],
            "updates":[{"id":"u","server":"s0","host":"a","size_bytes":9,"version":4,"norm":2.5,
                "dropped_before":true}],
            "reservations":[{"to":"s","from_ns":1,"to_ns":5,"bytes_per_sec":2}],
            "options":{"theta":2,"objective":"last"}}"#;
        let case = Case::from_json(text).unwrap();
        let words = serde_json::to_string(&CaseSpec::from(&case)).unwrap();
        assert_eq!(Case::from_json(&words).unwrap(), case);
    }
}
