//! The environment abstraction layer: one per process, up until [`Eal`] is dropped.
//!
//! Teardown unmaps all memory, so it happens only when nothing can refer to that memory any more:
//! ports, pools and registered threads hold an [`EalHandle`], and frames are counted by their
//! pools. If something is left when [`Eal`] is dropped, the memory stays mapped until the process
//! ends, which is safe; with [`Memory::Hugetlbfs`](crate::Memory::Hugetlbfs) it leaves files.

use crate::port::PortSummary;
use crate::{EalArgs, sys};
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic};

/// The running EAL. Dropped last, on the thread that started it, it gives all memory back.
#[derive(Debug)]
pub struct Eal {
    handle: EalHandle,
    _runtime: RuntimeDir,
    /// The thread that starts EAL is lcore 0 for good, so teardown belongs to it.
    _not_send: PhantomData<*mut ()>,
}

/// Proof that EAL is up, for other threads; cheap to clone.
#[derive(Clone, Debug)]
pub struct EalHandle {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    pools: Mutex<Vec<KnownPool>>,
    /// Numbers of the open ports. Held while devices come and go.
    open_ports: Mutex<Vec<u16>>,
}

#[derive(Debug)]
struct KnownPool {
    raw: NonNull<sys::Pool>,
    count: u32,
}

// SAFETY: pools are thread-safe, see `Mempool`.
unsafe impl Send for KnownPool {}

/// Why EAL, a pool or a thread's lcore could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EalError {
    /// EAL starts at most once per process, also when starting failed.
    #[error("starting EAL: it was started before, and DPDK starts it once per process only")]
    AlreadyStarted,
    /// An argument contains a NUL byte.
    #[error("starting EAL: argument {0:?} contains a NUL byte")]
    NulInArgument(String),
    /// `rte_eal_init` refused.
    #[error("starting EAL with `{args}`: {reason}; its own messages on stderr name the cause")]
    Start {
        /// The command line.
        args: String,
        /// DPDK's words.
        reason: String,
    },
    /// Not enough memory for a pool.
    #[error(
        "creating a pool of {count} buffers of {data_room_bytes} bytes: {reason}; \
         give EAL more memory (-m) or use fewer or smaller buffers"
    )]
    Pool {
        /// Buffers asked for.
        count: u32,
        /// Size asked for.
        data_room_bytes: u16,
        /// DPDK's words.
        reason: String,
    },
    /// The thread cannot be pinned.
    #[error("pinning a polling thread to CPU {cpu}: {reason}; see `taskset -p` for allowed CPUs")]
    Pin {
        /// CPU asked for.
        cpu: u32,
        /// The kernel's words.
        reason: String,
    },
    /// No lcore for the thread.
    #[error(
        "registering a polling thread with EAL: {0}; more than RTE_MAX_LCORE threads, or a \
         secondary process is attached"
    )]
    Register(String),
    /// A device cannot be created or taken over.
    #[error("probing device `{devargs}`: {reason}; see EAL's messages on stderr")]
    Probe {
        /// The device asked for.
        devargs: String,
        /// DPDK's words.
        reason: String,
    },
}

impl Eal {
    /// Starts EAL. Its log goes to stderr, and the calling thread's CPU affinity stays as it was.
    ///
    /// # Errors
    /// If EAL was started before in this process, or refuses its arguments.
    pub fn init(args: &EalArgs) -> Result<Self, EalError> {
        static STARTED: AtomicBool = AtomicBool::new(false);
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(EalError::AlreadyStarted);
        }
        // SAFETY: only reads this thread's affinity.
        let first_cpu = u32::try_from(unsafe { sys::weft_first_cpu() }).unwrap_or(0);
        let is_alone = args.is_alone();
        let args = args.to_args(first_cpu);
        let mut strings = vec![c"weft".to_owned()];
        for arg in &args {
            strings.push(
                CString::new(arg.as_str()).map_err(|_| EalError::NulInArgument(arg.clone()))?,
            );
        }
        // EAL permutes argv and keeps pointers into it, so it is never freed.
        let argv: Vec<*mut c_char> = strings.into_iter().map(CString::into_raw).collect();
        let argc = c_int::try_from(argv.len()).expect("fewer than 2^31 arguments");
        let argv = Vec::leak([argv, vec![std::ptr::null_mut()]].concat());
        // SAFETY: called once; argv has argc writable, NUL-terminated strings and a null, for ever.
        let rc = unsafe { sys::weft_eal_init(argc, argv.as_mut_ptr()) };
        let runtime = RuntimeDir::new(is_alone);
        if rc < 0 {
            return Err(EalError::Start { args: args.join(" "), reason: error_text(rc) });
        }
        Ok(Self {
            handle: EalHandle { shared: Arc::default() },
            _runtime: runtime,
            _not_send: PhantomData,
        })
    }
}

/// The folder that EAL makes for itself in every start and never removes; it goes with this handle
/// unless other processes look into it.
#[derive(Debug)]
struct RuntimeDir(Option<PathBuf>);

impl RuntimeDir {
    /// The folder of this process, after EAL has started or refused to.
    fn new(is_alone: bool) -> Self {
        // SAFETY: returns a static, NUL-terminated buffer, empty before EAL has made the folder.
        let path = unsafe { sys::weft_runtime_dir() };
        if path.is_null() || !is_alone {
            return Self(None);
        }
        // SAFETY: as above; EAL writes it in its start alone, which is over.
        let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
        Self((!path.is_empty()).then(|| path.into()))
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        // What stays does no harm; `dpdk` above it stays where others use it.
        let _ = fs::remove_dir_all(path);
        if let Some(parent) = path.parent().filter(|parent| parent.ends_with("dpdk")) {
            let _ = fs::remove_dir(parent);
        }
    }
}

impl std::ops::Deref for Eal {
    type Target = EalHandle;

    fn deref(&self) -> &EalHandle {
        &self.handle
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        // The only handle: no port, pool or registered thread is left, and none can come, so
        // frames that are still out cannot go through an lcore cache that we would not see.
        if Arc::strong_count(&self.handle.shared) != 1 {
            return;
        }
        atomic::fence(Ordering::Acquire);
        let pools = self.handle.pools();
        // SAFETY: pools live until the clean-up below.
        let whole =
            |pool: &KnownPool| unsafe { sys::weft_pool_available(pool.raw.as_ptr()) == pool.count };
        if pools.iter().all(whole) {
            atomic::fence(Ordering::Acquire);
            // SAFETY: nothing refers to EAL's memory, and EAL cannot be started again.
            unsafe { sys::weft_eal_cleanup() };
        }
    }
}

impl EalHandle {
    /// Makes the calling thread an lcore, which gives it pool caches, and pins it to `cpu` first.
    /// For the thread that started EAL, which is an lcore, this only pins.
    ///
    /// # Errors
    /// If the CPU is not allowed, or EAL has no lcore left.
    pub fn register_lcore(&self, cpu: Option<u32>) -> Result<Lcore, EalError> {
        if let Some(cpu) = cpu {
            // SAFETY: changes this thread's affinity only.
            let rc = unsafe { sys::weft_pin_thread(cpu) };
            if rc != 0 {
                return Err(EalError::Pin { cpu, reason: error_text(rc) });
            }
        }
        // SAFETY: reads a thread-local.
        let existing = unsafe { sys::weft_lcore_id() };
        if let Ok(id) = u32::try_from(existing) {
            return Ok(Lcore { id, unregister: false, _eal: self.clone(), _pinned: PhantomData });
        }
        // SAFETY: EAL is up (`self`), and this thread is not registered.
        let rc = unsafe { sys::weft_thread_register() };
        if rc != 0 {
            return Err(EalError::Register(error_text(rc)));
        }
        // SAFETY: as above.
        let id = u32::try_from(unsafe { sys::weft_lcore_id() }).unwrap_or(u32::MAX);
        Ok(Lcore { id, unregister: true, _eal: self.clone(), _pinned: PhantomData })
    }

    /// Creates or takes over the device that `devargs` describe, such as `net_null0,size=64`.
    ///
    /// # Errors
    /// If no driver takes it.
    pub fn probe(&self, devargs: &str) -> Result<(), EalError> {
        let failed = |reason| EalError::Probe { devargs: devargs.to_owned(), reason };
        let text = CString::new(devargs).map_err(|_| failed("contains a NUL byte".into()))?;
        let _alone = self.open_ports();
        // SAFETY: EAL is up, the string is NUL-terminated and copied.
        match unsafe { sys::weft_port_probe(text.as_ptr()) } {
            0 => Ok(()),
            rc => Err(failed(error_text(rc))),
        }
    }

    /// The Ethernet devices that EAL knows.
    #[must_use]
    pub fn ports(&self) -> Vec<PortSummary> {
        crate::port::summaries(self)
    }

    /// The NUMA socket of the calling thread; `None` if it is not an lcore or the machine has one.
    #[must_use]
    pub fn socket_id(&self) -> Option<u32> {
        // SAFETY: reads a thread-local.
        u32::try_from(unsafe { sys::weft_socket_id() }).ok()
    }

    /// The time stamp counter.
    #[must_use]
    pub fn tsc(&self) -> u64 {
        // SAFETY: reads a register.
        unsafe { sys::weft_tsc() }
    }

    /// The time stamp counter's frequency, as EAL calibrated it.
    #[must_use]
    pub fn tsc_hz(&self) -> u64 {
        // SAFETY: EAL is up.
        unsafe { sys::weft_tsc_hz() }
    }

    pub(crate) fn keep_pool(&self, raw: NonNull<sys::Pool>, count: u32) {
        self.pools().push(KnownPool { raw, count });
    }

    pub(crate) fn open_ports(&self) -> MutexGuard<'_, Vec<u16>> {
        self.shared.open_ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pools(&self) -> MutexGuard<'_, Vec<KnownPool>> {
        self.shared.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Membership of the calling thread among EAL's lcores; ends when dropped.
#[derive(Debug)]
pub struct Lcore {
    id: u32,
    unregister: bool,
    _eal: EalHandle,
    /// Belongs to the thread that registered.
    _pinned: PhantomData<*mut ()>,
}

impl Lcore {
    /// DPDK's number of this lcore.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Lcore {
    fn drop(&mut self) {
        if self.unregister {
            // SAFETY: this thread registered itself, since `Lcore` is not `Send`.
            unsafe { sys::weft_thread_unregister() }
        }
    }
}

/// The version of libdpdk that is in use, such as `DPDK 22.11.11`.
#[must_use]
pub fn rte_version() -> &'static str {
    // SAFETY: a static, NUL-terminated ASCII string.
    unsafe { CStr::from_ptr(sys::weft_version()) }.to_str().unwrap_or("DPDK")
}

/// DPDK's words for a negative errno that the shim returned.
pub(crate) fn error_text(rc: c_int) -> String {
    // SAFETY: returns a thread-local, NUL-terminated string, which is copied here.
    unsafe { CStr::from_ptr(sys::weft_strerror(-rc)) }.to_string_lossy().into_owned()
}
