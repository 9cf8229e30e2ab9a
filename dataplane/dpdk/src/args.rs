//! EAL arguments from typed settings.
//!
//! Decides the command line that EAL sees; starts nothing. The defaults need neither root, nor
//! hugepages, nor a writable runtime folder: `--no-huge --no-shconf --no-pci --no-telemetry`, one
//! lcore. What is not covered goes through [`EalArgs::arg`], behind the generated arguments.

/// Where EAL takes its memory from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Memory {
    /// Plain pages (`--no-huge`). No NIC can reach them by DMA; virtual devices can.
    #[default]
    NoHuge,
    /// Hugepages without files (`--in-memory`): nothing to clean up, no second process.
    InMemory,
    /// Hugepages of a hugetlbfs mount; `None` takes the first that EAL finds.
    Hugetlbfs(Option<String>),
}

/// EAL arguments. Each method replaces or appends to a setting and returns the builder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EalArgs {
    memory: Memory,
    memory_mib: Option<u32>,
    lcores: Option<String>,
    file_prefix: Option<String>,
    shared_config: bool,
    pci: bool,
    telemetry: bool,
    log_level: Option<String>,
    allow: Vec<String>,
    vdevs: Vec<String>,
    extra: Vec<String>,
}

impl Default for EalArgs {
    fn default() -> Self {
        Self {
            memory: Memory::default(),
            memory_mib: None,
            lcores: None,
            file_prefix: None,
            shared_config: false,
            pci: false,
            telemetry: false,
            log_level: Some("notice".into()),
            allow: Vec::new(),
            vdevs: Vec::new(),
            extra: Vec::new(),
        }
    }
}

impl EalArgs {
    /// The defaults of the module's documentation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing but `args`: for a command line that names its EAL arguments before `--`.
    #[must_use]
    pub fn from_raw<S: Into<String>>(args: impl IntoIterator<Item = S>) -> Self {
        Self {
            memory: Memory::Hugetlbfs(None),
            shared_config: true,
            pci: true,
            telemetry: true,
            log_level: None,
            extra: args.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Where memory comes from; default [`Memory::NoHuge`].
    #[must_use]
    pub fn memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// Memory in MiB (`-m`); default: EAL's, which is 64 without hugepages.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = Some(mib);
        self
    }

    /// EAL's own lcores (`--lcores`); default: lcore 0 on the first CPU that this process may use.
    /// Polling threads need none: they register (see [`EalHandle::register_lcore`]).
    ///
    /// [`EalHandle::register_lcore`]: crate::EalHandle::register_lcore
    #[must_use]
    pub fn lcores(mut self, map: impl Into<String>) -> Self {
        self.lcores = Some(map.into());
        self
    }

    /// Name of this process's files (`--file-prefix`); two running processes must differ when they
    /// use hugetlbfs or a shared configuration.
    #[must_use]
    pub fn file_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.file_prefix = Some(prefix.into());
        self
    }

    /// Keeps the configuration in a file for secondary processes; default off.
    #[must_use]
    pub fn shared_config(mut self, on: bool) -> Self {
        self.shared_config = on;
        self
    }

    /// Scans the PCI bus, which real NICs need; default off.
    #[must_use]
    pub fn pci(mut self, on: bool) -> Self {
        self.pci = on;
        self
    }

    /// Opens DPDK's telemetry socket; default off.
    #[must_use]
    pub fn telemetry(mut self, on: bool) -> Self {
        self.telemetry = on;
        self
    }

    /// EAL's log level (`--log-level`), to stderr; default `notice`.
    #[must_use]
    pub fn log_level(mut self, level: impl Into<String>) -> Self {
        self.log_level = Some(level.into());
        self
    }

    /// Uses this PCI device, such as `0000:01:00.0` (`-a`), and turns the PCI bus on.
    #[must_use]
    pub fn allow(mut self, device: impl Into<String>) -> Self {
        self.allow.push(device.into());
        self.pci = true;
        self
    }

    /// Creates a virtual device, such as `net_ring0` (`--vdev`).
    #[must_use]
    pub fn vdev(mut self, devargs: impl Into<String>) -> Self {
        self.vdevs.push(devargs.into());
        self
    }

    /// Passes `arg` to EAL as it is, behind the generated arguments.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.extra.push(arg.into());
        self
    }

    /// Whether what EAL writes down for itself is of no use to another process.
    pub(crate) fn is_alone(&self) -> bool {
        !self.shared_config && !self.extra.iter().any(|arg| arg.starts_with("--proc-type"))
    }

    /// The command line, without the program's name. `first_cpu` is where lcore 0 goes by default.
    #[must_use]
    pub fn to_args(&self, first_cpu: u32) -> Vec<String> {
        let mut args = Vec::new();
        match &self.memory {
            Memory::NoHuge => args.push("--no-huge".to_owned()),
            Memory::InMemory => args.push("--in-memory".to_owned()),
            Memory::Hugetlbfs(None) => {}
            Memory::Hugetlbfs(Some(folder)) => args.push(format!("--huge-dir={folder}")),
        }
        if let Some(mib) = self.memory_mib {
            args.extend(["-m".to_owned(), mib.to_string()]);
        }
        if let Some(map) = &self.lcores {
            args.push(format!("--lcores={map}"));
        } else if !self.extra.iter().any(|arg| names_lcores(arg)) {
            args.push(format!("--lcores=0@{first_cpu}"));
        }
        if let Some(prefix) = &self.file_prefix {
            args.push(format!("--file-prefix={prefix}"));
        }
        // --in-memory implies --no-shconf.
        if !self.shared_config && self.memory != Memory::InMemory {
            args.push("--no-shconf".to_owned());
        }
        if !self.pci {
            args.push("--no-pci".to_owned());
        }
        if !self.telemetry {
            args.push("--no-telemetry".to_owned());
        }
        if let Some(level) = &self.log_level {
            args.push(format!("--log-level={level}"));
        }
        args.extend(self.allow.iter().map(|device| format!("--allow={device}")));
        args.extend(self.vdevs.iter().map(|devargs| format!("--vdev={devargs}")));
        args.extend(self.extra.iter().cloned());
        args
    }
}

/// True for the options that say which lcores EAL uses; EAL takes one of them at most.
fn names_lcores(arg: &str) -> bool {
    arg.starts_with("--lcores")
        || (!arg.starts_with("--") && (arg.starts_with("-l") || arg.starts_with("-c")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_need_no_root_no_hugepages_and_no_files() {
        assert_eq!(
            EalArgs::new().vdev("net_ring0").memory_mib(128).to_args(3),
            [
                "--no-huge",
                "-m",
                "128",
                "--lcores=0@3",
                "--no-shconf",
                "--no-pci",
                "--no-telemetry",
                "--log-level=notice",
                "--vdev=net_ring0"
            ]
        );
    }

    #[test]
    fn raw_arguments_stay_as_they_are() {
        let raw = ["-l", "0,1", "-a", "0000:01:00.0"];
        assert_eq!(EalArgs::from_raw(raw).to_args(0), raw);
        assert_eq!(
            EalArgs::from_raw(["--vdev=net_null0"]).to_args(1),
            ["--lcores=0@1", "--vdev=net_null0"]
        );
    }

    #[test]
    fn an_allowed_device_turns_the_bus_on() {
        let args = EalArgs::new().memory(Memory::InMemory).allow("0000:01:00.0").to_args(0);
        assert!(!args.iter().any(|arg| arg == "--no-pci"));
        assert!(!args.iter().any(|arg| arg == "--no-shconf"));
    }
}
