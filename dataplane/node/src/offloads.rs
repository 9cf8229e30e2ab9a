//! Frames that an interface refuses for what their senders' kernels left to hardware: named once
//! for each reason, from the counters of the lanes. Decides nothing else; the reporter looks here.

use weft_config::node::NodeConfig;
use weft_engine::drops::DropReason;

use crate::stats::LaneSnapshot;

/// The reasons and complaints that the log has.
#[derive(Debug, Default)]
pub(crate) struct Offloads {
    named: Vec<DropReason>,
    has_complained: bool,
}

impl Offloads {
    /// The lines to write now, each once.
    pub(crate) fn look(&mut self, config: &NodeConfig, lanes: &[LaneSnapshot]) -> Vec<String> {
        let interface = lanes.first().and_then(|lane| interface(config, lane));
        // A fault port damages frames on purpose, which is no sender's fault.
        let Some(interface) = interface.filter(|_| config.faults.is_none()) else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        if !self.has_complained
            && let Some(complaint) = lanes.iter().find_map(|lane| lane.complaint.clone())
        {
            self.has_complained = true;
            lines.push(complaint);
        }
        for (reason, _) in DropReason::ALL {
            let frames: u64 = lanes.iter().map(|lane| lane.engine.drops.of(*reason)).sum();
            if frames > 0
                && !self.named.contains(reason)
                && let Some(remedy) = reason.remedy()
            {
                self.named.push(*reason);
                lines.push(format!("{interface} refuses frames for {remedy}"));
            }
        }
        lines
    }
}

/// The kernel's interface under a port that sees frames as they leave their senders' kernels.
fn interface(config: &NodeConfig, lane: &LaneSnapshot) -> Option<String> {
    let name = &lane.info.name;
    match lane.info.driver.as_str() {
        "af_packet" => Some(name.clone()),
        "net_af_packet" => {
            let of_file = config.dpdk.vdev.iter().find_map(|vdev| {
                let options = vdev.strip_prefix(name.as_str())?;
                options.split(',').find_map(|option| option.strip_prefix("iface="))
            });
            Some(of_file.unwrap_or(name).to_owned())
        }
        _ => None,
    }
}
