//! What the slides of TensorLights say, and what is known of the machines that they speak of.

/// One placement of 21 parameter servers, and how long jobs took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Its number on the slides.
    pub number: u8,
    /// Parameter servers on each host that has some.
    pub servers_per_host: &'static [u32],
    /// Mean job completion time under FIFO, in seconds.
    pub fifo_jct_s: f64,
    /// That of One, over FIFO's; where published.
    pub one: Option<f64>,
    /// That of `RoundRobin`, over FIFO's; where published.
    pub round_robin: Option<f64>,
}

/// The slides' table. Which normalised row belongs to which placement is inferred from the order
/// in which the slides build up.
pub const PLACEMENTS: [Placement; 8] = [
    placement(1, &[21], 1830.0, Some(0.73), Some(0.84)),
    placement(2, &[5, 16], 1471.0, Some(0.81), Some(0.87)),
    placement(3, &[10, 11], 1213.0, Some(0.98), Some(1.01)),
    placement(4, &[7; 3], 1153.0, Some(1.01), Some(1.00)),
    placement(5, &[5, 5, 5, 6], 1110.0, None, None),
    placement(6, &[4, 4, 4, 4, 5], 1092.0, None, None),
    placement(7, &[3; 7], 1078.0, None, None),
    placement(8, &[1; 21], 1045.0, None, None),
];

/// Cores of a host: `global_variables.py`, "each machine has 6 real CPU cores".
pub(super) const CORES: u32 = 6;

/// Of `ResNet-32` for CIFAR-10: 464,154 parameters of 4 bytes.
pub(super) const MODEL_BYTES: f64 = 464_154.0 * 4.0;

/// What TCP has of 10 Gb/s with frames of 1500 bytes: 1448 bytes of each 1538 on the wire.
pub(super) const GOODPUT_BYTES_PER_SEC: f64 = 1.25e9 * 1448.0 / 1538.0;

const fn placement(
    number: u8,
    servers_per_host: &'static [u32],
    fifo_jct_s: f64,
    one: Option<f64>,
    round_robin: Option<f64>,
) -> Placement {
    Placement { number, servers_per_host, fifo_jct_s, one, round_robin }
}
