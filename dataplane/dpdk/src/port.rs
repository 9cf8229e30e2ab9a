//! Opening an Ethernet device.
//!
//! Decides a device's configuration and opens it once; what comes out is one [`DpdkQueue`] per
//! lcore. Offloads stay off, except that frames of several segments are enabled where copies may
//! share payloads. Every check that can fail is made here, so bursts cannot fail.

mod queue;

pub use queue::DpdkQueue;

use crate::eal::{EalHandle, error_text};
use crate::{EalError, Mempool, sys};
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_wire::MacAddr;

/// Which device to open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PortId {
    /// The device's name: `net_memif0`, or a PCI address.
    Name(String),
    /// Its number in EAL's list.
    Index(u16),
}

/// How to open a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PortConfig {
    /// The device.
    pub port: PortId,
    /// Largest IP packet in bytes; default 1500.
    pub mtu: u16,
    /// Receive queues; default 1.
    pub rx_queues: u16,
    /// Transmit queues, at least `rx_queues`, and one per lcore that sends; default 1.
    pub tx_queues: u16,
    /// Receive descriptors per queue, adjusted to what the device can do; default 512.
    pub rxd: u16,
    /// Transmit descriptors per queue, likewise; default 512.
    pub txd: u16,
    /// Buffers per queue handle; default 2048. Small pools stay in cache; a pool must exceed the
    /// descriptors of its queue.
    pub mbuf_count: u32,
    /// Bytes per buffer, 128 of them DPDK's headroom; default 2176. At least `mtu + 14 + 128`, and
    /// for net_af_packet at least its `framesz` + 128.
    pub mbuf_data_room_bytes: u16,
    /// Longest frame that [`copy`](weft_io::Port::copy) copies whole; longer ones share their
    /// payload, if the device sends frames of several segments. Default 4096: both ways cost the
    /// same near there on the CPU it was measured on (`examples/burst_cost.rs`).
    pub copy_break_bytes: usize,
    /// Receives frames for other addresses too, where the device filters at all; default off.
    pub promiscuous: bool,
}

impl PortConfig {
    /// The defaults for the device called `name`.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            port: PortId::Name(name.into()),
            mtu: 1500,
            rx_queues: 1,
            tx_queues: 1,
            rxd: 512,
            txd: 512,
            mbuf_count: 2048,
            mbuf_data_room_bytes: 2176,
            copy_break_bytes: 4096,
            promiscuous: false,
        }
    }
}

/// Who distributes frames over the receive queues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Steering {
    /// The device, by a hash of the UDP source port alone (`RTE_ETH_RSS_L4_SRC_ONLY`). Which port
    /// goes to which queue is the device's choice: learn it from test frames.
    SourcePort,
    /// Nobody: one queue, or a device that cannot hash so. Steer in software.
    Unsupported,
}

/// A device in EAL's list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PortSummary {
    /// Its number.
    pub index: u16,
    /// Its name.
    pub name: String,
    /// Its driver, such as `net_memif`.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: MacAddr,
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// No such device.
    #[error("opening port {port}: no such device; EAL knows {known}")]
    Unknown {
        /// The name or number asked for.
        port: String,
        /// Names of the devices that exist.
        known: String,
    },
    /// The configuration cannot work on this device.
    #[error("opening port {name}: {reason}")]
    Config {
        /// The device.
        name: String,
        /// What does not fit, with the limit.
        reason: String,
    },
    /// DPDK refused a step.
    #[error("opening port {name}: {step} failed: {reason}")]
    Refused {
        /// The device.
        name: String,
        /// The step.
        step: &'static str,
        /// DPDK's words.
        reason: String,
    },
    /// No memory for the buffers.
    #[error("opening port {name}")]
    Pool {
        /// The device.
        name: String,
        /// The cause.
        #[source]
        source: EalError,
    },
}

/// A device that was configured and started.
///
/// It closes when its last queue is dropped; DPDK then forgets it, and only
/// [`EalHandle::probe`] brings it back. A net_memif is stopped, and may be opened again.
#[derive(Debug)]
pub struct DpdkPort {
    index: u16,
    name: String,
    driver: String,
    mac: MacAddr,
    mtu: u16,
    rx_queues: u16,
    steering: Steering,
    started: bool,
    /// DPDK's control calls on one port must not overlap.
    control: Mutex<()>,
    eal: EalHandle,
}

impl DpdkPort {
    /// Opens a device: one handle per transmit queue, of which the first `rx_queues` receive.
    /// Each handle has its own pool and is meant for one lcore.
    ///
    /// # Errors
    /// If the device does not exist, cannot do what `config` asks, or memory is short.
    pub fn open(eal: &EalHandle, config: &PortConfig) -> Result<Vec<DpdkQueue>, PortError> {
        let mut open = eal.open_ports();
        let index = find(eal, &config.port)?;
        let info = device_info(index).map_err(|rc| PortError::Refused {
            name: format!("{index}"),
            step: "asking for the device's properties",
            reason: error_text(rc),
        })?;
        let name = text(&info.name);
        check(config, &info).map_err(|reason| PortError::Config { name: name.clone(), reason })?;

        if open.contains(&index) {
            let reason = "it is open already; open it once, with a transmit queue per lcore";
            return Err(PortError::Config { name, reason: reason.to_owned() });
        }

        let rss = config.rx_queues > 1 && info.rss_l4_src != 0;
        let longest = usize::from(config.mtu) + ETHERNET_HEADER_LEN;
        let share = info.tx_multi_segs != 0 && config.copy_break_bytes < longest;
        let mut port = Self {
            index,
            driver: text(&info.driver),
            mac: MacAddr(info.mac),
            mtu: config.mtu,
            rx_queues: config.rx_queues,
            steering: if rss { Steering::SourcePort } else { Steering::Unsupported },
            started: false,
            control: Mutex::new(()),
            eal: eal.clone(),
            name,
        };
        // From here on, dropping `port` closes the device.
        open.push(index);
        drop(open);
        port.configure(config, share)?;
        let mut pools = Vec::new();
        for _ in 0..config.tx_queues {
            pools.push(port.pools(eal, config, &info, share)?);
        }
        port.start(config, &pools)?;
        let port = Arc::new(port);
        Ok((0..config.tx_queues)
            .zip(pools)
            .map(|(queue, (pool, clones))| {
                DpdkQueue::new(Arc::clone(&port), queue, pool, clones, config.copy_break_bytes)
            })
            .collect())
    }

    fn configure(&self, config: &PortConfig, share: bool) -> Result<(), PortError> {
        let conf = sys::PortConf {
            rx_queues: config.rx_queues,
            tx_queues: config.tx_queues,
            mtu: config.mtu,
            tx_multi_segs: u8::from(share),
            rss_l4_src: u8::from(self.steering == Steering::SourcePort),
        };
        // SAFETY: the port exists, `conf` is read during the call.
        let rc = unsafe { sys::weft_port_configure(self.index, &raw const conf) };
        self.step("configuring queues and MTU", rc)
    }

    fn pools(
        &self,
        eal: &EalHandle,
        config: &PortConfig,
        info: &sys::PortInfo,
        share: bool,
    ) -> Result<(Mempool, Option<Mempool>), PortError> {
        let create = |data_room_bytes| {
            Mempool::new(eal, config.mbuf_count, data_room_bytes, i32::from(info.socket))
                .map_err(|source| PortError::Pool { name: self.name.clone(), source })
        };
        let clones = if share { Some(create(0)?) } else { None };
        Ok((create(config.mbuf_data_room_bytes)?, clones))
    }

    fn start(
        &mut self,
        config: &PortConfig,
        pools: &[(Mempool, Option<Mempool>)],
    ) -> Result<(), PortError> {
        for (queue, (pool, _)) in (0..config.tx_queues).zip(pools) {
            if queue < config.rx_queues {
                // SAFETY: the port is configured and stopped; pools live as long as the EAL.
                let rc =
                    unsafe { sys::weft_port_rx_queue(self.index, queue, config.rxd, pool.raw()) };
                self.step("setting up a receive queue", rc)?;
            }
            // SAFETY: as above.
            let rc = unsafe { sys::weft_port_tx_queue(self.index, queue, config.txd) };
            self.step("setting up a transmit queue", rc)?;
        }
        let promiscuous = c_int::from(config.promiscuous);
        // SAFETY: all queues are set up.
        let rc = unsafe { sys::weft_port_start(self.index, config.mtu, promiscuous) };
        self.started = rc == 0;
        self.step("setting the MTU and starting", rc)
    }

    fn control(&self) -> MutexGuard<'_, ()> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, step: &'static str, rc: c_int) -> Result<(), PortError> {
        if rc == 0 {
            return Ok(());
        }
        Err(PortError::Refused { name: self.name.clone(), step, reason: error_text(rc) })
    }
}

impl Drop for DpdkPort {
    fn drop(&mut self) {
        let mut open = self.eal.open_ports();
        open.retain(|index| *index != self.index);
        // A port that never started must not be polled, nor has it anything to free.
        let rx_queues = if self.started { self.rx_queues } else { 0 };
        // SAFETY: the port is ours to close, and no handle is left that could poll its queues.
        // Nobody can open it before the lock is released.
        unsafe { sys::weft_port_close(self.index, rx_queues) };
    }
}

/// Checks `config` against the device's limits; the error says what to change.
fn check(config: &PortConfig, info: &sys::PortInfo) -> Result<(), String> {
    // SAFETY: returns a constant.
    let headroom = usize::from(unsafe { sys::weft_headroom() });
    let needed = usize::from(config.mtu) + ETHERNET_HEADER_LEN + headroom;
    let pool_min = u32::from(config.rxd) + 2 * weft_io_burst();
    if config.mtu < info.min_mtu || config.mtu > info.max_mtu {
        return Err(format!(
            "mtu {} is outside {}..={} of {}",
            config.mtu,
            info.min_mtu,
            info.max_mtu,
            text(&info.driver)
        ));
    }
    if usize::from(config.mbuf_data_room_bytes) < needed {
        return Err(format!(
            "mbuf_data_room_bytes {} is too small for mtu {}: needs {needed} (14 bytes of \
             Ethernet header and {headroom} of headroom)",
            config.mbuf_data_room_bytes, config.mtu
        ));
    }
    if config.rx_queues == 0 || config.tx_queues < config.rx_queues {
        return Err(format!(
            "{} receive and {} transmit queues: needs at least one receive queue, and a transmit \
             queue for each",
            config.rx_queues, config.tx_queues
        ));
    }
    if config.rx_queues > info.max_rx_queues || config.tx_queues > info.max_tx_queues {
        return Err(format!(
            "{} receive and {} transmit queues: {} has {} and {} at most",
            config.rx_queues,
            config.tx_queues,
            text(&info.driver),
            info.max_rx_queues,
            info.max_tx_queues
        ));
    }
    if config.mbuf_count < pool_min {
        return Err(format!(
            "mbuf_count {} is too small: {} receive descriptors and two bursts need {pool_min}",
            config.mbuf_count, config.rxd
        ));
    }
    Ok(())
}

fn weft_io_burst() -> u32 {
    u32::from(crate::mbuf::burst_len(weft_io::BURST_MAX))
}

fn find(eal: &EalHandle, port: &PortId) -> Result<u16, PortError> {
    let known = summaries(eal);
    let found = known.iter().find(|summary| match port {
        PortId::Name(name) => summary.name == *name,
        PortId::Index(index) => summary.index == *index,
    });
    found.map(|summary| summary.index).ok_or_else(|| PortError::Unknown {
        port: match port {
            PortId::Name(name) => name.clone(),
            PortId::Index(index) => index.to_string(),
        },
        known: if known.is_empty() {
            "none: add --vdev=… or bind a NIC to vfio-pci".to_owned()
        } else {
            known.iter().map(|summary| summary.name.as_str()).collect::<Vec<_>>().join(", ")
        },
    })
}

pub(crate) fn summaries(_eal: &EalHandle) -> Vec<PortSummary> {
    let mut from = 0;
    let mut found = Vec::new();
    // SAFETY: EAL is up.
    while let Ok(index) = u16::try_from(unsafe { sys::weft_port_next(from) }) {
        if let Ok(info) = device_info(index) {
            found.push(PortSummary {
                index,
                name: text(&info.name),
                driver: text(&info.driver),
                mac: MacAddr(info.mac),
            });
        }
        from = index + 1;
    }
    found
}

fn device_info(index: u16) -> Result<sys::PortInfo, c_int> {
    let mut info = MaybeUninit::uninit();
    // SAFETY: writes `info` when it returns 0.
    match unsafe { sys::weft_port_info(index, info.as_mut_ptr()) } {
        // SAFETY: as above.
        0 => Ok(unsafe { info.assume_init() }),
        rc => Err(rc),
    }
}

/// A NUL-terminated array as a string.
fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| c.to_ne_bytes()[0]).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}

/// Destination, source and type of an Ethernet frame.
const ETHERNET_HEADER_LEN: usize = 14;
