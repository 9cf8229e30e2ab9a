//! Configurations of the boxes that are recorded.

pub(super) const TWO_MEMBERS: &str = r#"
[port]
io = "udp"
ip = "10.0.0.100/24"
udp_port = 22341
mac = "02:00:00:00:00:64"
[[job]]
id = 0
[[row]]
row = 0
job = 0
elements = 8
window = 4
exponent = -8
members = [ { addr = "10.0.0.1:7000" }, { addr = "10.0.0.2:7000" } ]
[strangers]
rate_bytes_per_sec = 1000000
burst_bytes = 4096
"#;

pub(super) const TWO_JOBS: &str = r#"
[port]
io = "udp"
ip = "10.0.0.100/24"
udp_port = 22341
mac = "02:00:00:00:00:64"
[[job]]
id = 0
rate_bytes_per_sec = 100000
burst_bytes = 64000
[[job]]
id = 1
[[row]]
row = 0
job = 0
elements = 8
window = 4
exponent = -8
members = [ { addr = "10.0.0.1:7000" }, { addr = "10.0.0.2:7000" } ]
[[row]]
row = 1
job = 1
elements = 8
window = 4
exponent = -8
members = [ { addr = "10.0.0.3:7000" }, { addr = "10.0.0.4:7000" } ]
"#;

pub(super) const ONE_MEMBER: &str = r#"
[port]
io = "udp"
ip = "10.0.0.100/24"
udp_port = 22341
mac = "02:00:00:00:00:64"
[[job]]
id = 0
[[row]]
row = 0
job = 0
element_type = "f32"
sum_order = "rank"
elements = 8
window = 4
members = [ { addr = "10.0.0.1:7000" } ]
"#;

pub(super) const MULTICAST: &str = r#"
[port]
io = "udp"
ip = "10.0.0.100/24"
udp_port = 22341
mac = "02:00:00:00:00:64"
multicast = "239.87.69.0"
[[job]]
id = 0
[[row]]
row = 0
job = 0
elements = 8
window = 4
exponent = -8
members = [ { addr = "10.0.0.1:7000" }, { addr = "10.0.0.2:7000" } ]
"#;

pub(super) const MEMORY: &str = r#"
[port]
io = "udp"
ip = "10.0.0.100/24"
udp_port = 22341
mac = "02:00:00:00:00:64"
shm = true
[[job]]
id = 0
[[row]]
row = 0
job = 0
elements = 8
window = 4
exponent = -8
members = [ { addr = "10.0.0.1:7000" }, { addr = "10.0.0.2:7000" } ]
"#;
