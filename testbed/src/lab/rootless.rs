//! Makes a lab possible without root: moves this process into an unprivileged user namespace, with
//! network and mount namespaces of its own, as `unshare -Urnm` does.
//!
//! Inside, `/run` and `/sys` are fresh, so that `ip netns` and what reads `/sys/class/net` work.
//! The lab then lives exactly as long as the process and its children.
//!
//! Invariant: either the process has every right that a lab needs, or a [`RootlessError`] says
//! which switch of which system forbids it, and nothing was changed for others.

use std::fs;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use super::netns::{self, ToolError};

/// How this process may build labs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Privilege {
    /// It had the rights already: labs outlive it.
    Native,
    /// It now runs in a user namespace of its own: labs end with it.
    UserNamespace,
}

/// Whether this process has the capabilities that a lab needs, in the user namespace it is in.
#[must_use]
pub fn is_privileged() -> bool {
    capabilities() & NEEDED == NEEDED
}

/// The effective capabilities of this process, one bit each.
#[must_use]
pub fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_capabilities(&status).unwrap_or(0)
}

/// Gives this process the rights for a lab. Must run before the first thread is started.
///
/// # Errors
/// Says what forbids it and how to allow it.
pub fn acquire() -> Result<Privilege, RootlessError> {
    if is_privileged() {
        try_namespace()?;
        return Ok(Privilege::Native);
    }
    let (uid, gid) = (geteuid(), getegid());
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    unshare(flags).map_err(|errno| diagnose(Step::Unshare, errno, &Limits::read()))?;
    let write = |path: &str, text: String| {
        fs::write(path, text).map_err(|error| {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
            diagnose(Step::MapIds, errno, &Limits::read())
        })
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    remount().map_err(|errno| diagnose(Step::Mount, errno, &Limits::read()))?;
    // Without a loopback that is up, nothing else in here can use 127.0.0.1.
    netns::ip_batch(None, &["link set lo up".to_owned()]).map_err(RootlessError::Namespace)?;
    try_namespace()?;
    Ok(Privilege::UserNamespace)
}

/// Makes and removes a namespace as a lab does. Capabilities are not enough: `ip` may be missing,
/// `/run` may be read-only, and `ip` cannot mount `/sys` in a chroot that is no mount point.
fn try_namespace() -> Result<(), RootlessError> {
    let name = format!("wf-probe-{}", std::process::id());
    let made = netns::ip_batch(None, &[format!("netns add {name}")]);
    let tried = made.and_then(|()| netns::ip_batch(Some(&name), &["link set lo up".to_owned()]));
    // Without the namespace there is nothing to remove, and the first error has the reason.
    let removed = netns::remove(&name);
    tried.and(removed).map_err(RootlessError::Namespace)
}

fn remount() -> Result<(), Errno> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), Some("mode=755"))?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
    fs::create_dir_all("/run/netns")
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

/// What the system allows, as far as it says so.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu 23.10 and later).
    pub apparmor_restrict: Option<u64>,
    /// `kernel.unprivileged_userns_clone` (older Debian).
    pub unprivileged_clone: Option<u64>,
}

impl Limits {
    /// Reads the limits of this machine.
    #[must_use]
    pub fn read() -> Self {
        let number = |path: &str| {
            fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?.trim().parse().ok()
        };
        Self {
            max_user_namespaces: number("user/max_user_namespaces"),
            apparmor_restrict: number("kernel/apparmor_restrict_unprivileged_userns"),
            unprivileged_clone: number("kernel/unprivileged_userns_clone"),
        }
    }

    /// The setting that forbids unprivileged user namespaces, and its fix.
    #[must_use]
    pub fn forbids(&self) -> Option<RootlessError> {
        if self.max_user_namespaces == Some(0) {
            return Some(RootlessError::Sysctl { setting: "user.max_user_namespaces=15000" });
        }
        if self.unprivileged_clone == Some(0) {
            return Some(RootlessError::Sysctl { setting: "kernel.unprivileged_userns_clone=1" });
        }
        if self.apparmor_restrict.is_some_and(|value| value != 0) {
            let setting = "kernel.apparmor_restrict_unprivileged_userns=0";
            return Some(RootlessError::Sysctl { setting });
        }
        None
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Unshare,
    MapIds,
    Mount,
}

/// Turns a refusal into what to do about it. A sysctl that forbids explains every refusal, for
/// AppArmor lets `unshare` pass and refuses what follows.
fn diagnose(step: Step, errno: Errno, limits: &Limits) -> RootlessError {
    if step == Step::Unshare && errno == Errno::EINVAL {
        return RootlessError::Threads;
    }
    limits.forbids().unwrap_or(match step {
        Step::Unshare | Step::MapIds => RootlessError::Container { errno },
        Step::Mount => RootlessError::Mount { errno },
    })
}

/// Why this process cannot have a lab.
#[derive(Debug, thiserror::Error)]
pub enum RootlessError {
    /// A kernel setting forbids user namespaces.
    #[error(
        "unprivileged user namespaces are forbidden; allow them with `sudo sysctl -w {setting}`, or run as root"
    )]
    Sysctl {
        /// The setting that allows them.
        setting: &'static str,
    },
    /// Something else forbids them.
    #[error(
        "this process may not create a user namespace ({errno}); a container's seccomp profile \
         usually forbids it: run as root, or start the container with \
         `--security-opt seccomp=unconfined` or `--privileged`"
    )]
    Container {
        /// The kernel's answer.
        errno: Errno,
    },
    /// `/run` or `/sys` cannot be mounted afresh.
    #[error(
        "cannot mount a fresh /run and /sys in a user namespace ({errno}); containers that mask \
         /sys forbid it: run as root, or start the container with `--privileged`"
    )]
    Mount {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The process has several threads.
    #[error("a user namespace must be entered before the first thread starts; call it in `main`")]
    Threads,
    /// `ip` is missing, or cannot make a namespace.
    #[error(
        "cannot make a network namespace: {0} (a chroot has to be a mount point: `mount --bind DIR \
         DIR` before entering it)"
    )]
    Namespace(ToolError),
}

/// Reads the line `CapEff:` of `/proc/self/status`.
fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// CAP_NET_ADMIN and CAP_SYS_ADMIN.
const NEEDED: u64 = 1 << 12 | 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_own_fix() {
        let open = Limits { max_user_namespaces: Some(9), ..Limits::default() };
        let none = Limits { max_user_namespaces: Some(0), ..Limits::default() };
        let debian = Limits { unprivileged_clone: Some(0), ..open.clone() };
        let ubuntu = Limits { apparmor_restrict: Some(1), ..open.clone() };
        let table = [
            (Step::Unshare, Errno::ENOSPC, &none, "user.max_user_namespaces"),
            (Step::Unshare, Errno::EPERM, &debian, "kernel.unprivileged_userns_clone=1"),
            (Step::MapIds, Errno::EPERM, &ubuntu, "apparmor_restrict_unprivileged_userns=0"),
            (Step::Mount, Errno::EACCES, &ubuntu, "apparmor_restrict_unprivileged_userns=0"),
            (Step::Unshare, Errno::EPERM, &open, "seccomp"),
            (Step::Mount, Errno::EPERM, &open, "/sys"),
            (Step::Unshare, Errno::EINVAL, &ubuntu, "first thread"),
        ];
        for (step, errno, limits, expected) in table {
            let message = diagnose(step, errno, limits).to_string();
            assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        }
        assert!(open.forbids().is_none());
    }

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t0000000000201000\n";
        assert_eq!(effective_capabilities(status), Some(NEEDED));
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
    }
}
