//! A topology as the text that [`Topology::from_json`] reads: for Mininet, and for whoever draws
//! it.

use serde_json::{Map, Value, json};

use super::{Link, LinkEnd, Shape, Topology};
use crate::lab::tc::Shaper;

impl Topology {
    /// The Mininet-style `topology.json`. What a file cannot say is left out: which addresses a
    /// userspace port owns, and further addresses for control traffic.
    #[must_use]
    pub fn to_json(&self) -> String {
        let hosts: Map<String, Value> = self
            .hosts
            .iter()
            .map(|host| {
                let mut fields = Map::new();
                let ip = host.ip.map(|ip| ip.to_string());
                let mac = host.mac.map(|mac| mac.to_string());
                for (name, value) in [("ip", ip), ("mac", mac)] {
                    fields.extend(value.map(|value| (name.to_owned(), json!(value))));
                }
                if !host.commands.is_empty() {
                    fields.insert("commands".to_owned(), json!(host.commands));
                }
                (host.name.clone(), Value::Object(fields))
            })
            .collect();
        let switches: Map<String, Value> =
            self.switches.iter().map(|name| (name.clone(), json!({}))).collect();
        let links: Vec<Value> = self.links.iter().map(|link| self.link(link)).collect();
        let file = json!({ "hosts": hosts, "switches": switches, "links": links, "mtu": self.mtu });
        format!("{file:#}\n")
    }

    fn link(&self, link: &Link) -> Value {
        // A rate of the way back alone can be written; of the way there alone, it cannot.
        let is_turned = link.shapes[0].is_some() && link.shapes[1].is_none();
        let ([first, second], [forward, reverse]) = match (&link.ends, link.shapes) {
            ([a, b], [there, back]) if is_turned => ([b, a], [back, there]),
            ([a, b], shapes) => ([a, b], shapes),
        };
        let mut options = Map::new();
        if let Some(Shape { rate, shaper, queue_packets }) = forward {
            options.insert("bw".to_owned(), json!(rate.mbit()));
            options.insert("max_queue_size".to_owned(), json!(queue_packets));
            if shaper == Shaper::Tbf {
                options.insert("use_tbf".to_owned(), json!(true));
            }
        }
        if let Some(shape) = reverse.filter(|_| reverse != forward) {
            options.insert("bw_reverse".to_owned(), json!(shape.rate.mbit()));
        }
        if !link.delay.is_zero() {
            options.insert("delay".to_owned(), json!(format!("{}us", link.delay.as_micros())));
        }
        json!([self.end(first), self.end(second), options])
    }

    /// A host by its name, a switch with its port.
    fn end<'a>(&self, end: &'a LinkEnd) -> &'a str {
        if self.host(&end.node).is_some() { &end.node } else { &end.interface }
    }
}
