//! What a cluster has: switches with nodes with GPUs, all nodes alike.

/// A cluster of equal nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cluster {
    /// Switches, each with as many nodes.
    pub switches: u32,
    /// Nodes of one switch.
    pub nodes_per_switch: u32,
    /// GPUs of one node.
    pub gpus_per_node: u32,
    /// Processor cores of one node.
    pub cpus_per_node: u32,
    /// Memory of one node, in GB.
    pub mem_per_node_gb: u32,
}

impl Cluster {
    /// A cluster of one switch, with room for processors and memory as the public traces have it.
    #[must_use]
    pub const fn of_nodes(nodes: u32, gpus_per_node: u32) -> Self {
        Self {
            switches: 1,
            nodes_per_switch: nodes,
            gpus_per_node,
            cpus_per_node: 128,
            mem_per_node_gb: 256,
        }
    }

    /// Nodes of all switches.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.switches.saturating_mul(self.nodes_per_switch)
    }

    /// GPUs of all nodes.
    #[must_use]
    pub const fn gpus(&self) -> u32 {
        self.nodes().saturating_mul(self.gpus_per_node)
    }

    /// The switch of a node.
    #[must_use]
    pub const fn switch_of(&self, node: u32) -> u32 {
        node / self.nodes_per_switch
    }
}
