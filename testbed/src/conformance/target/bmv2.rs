//! BMv2's `simple_switch`, in a network namespace of its own with a veth for each port.
//!
//! The script's time is not the switch's: the program has no clock. Behind each frame go two that
//! close it off: one for the switch itself, which it echoes to the agent's port, and one for nobody
//! that it knows, which it floods to the others. Frames to a port leave in the order in which they
//! came in, so what a port sent before these two is all that the frame led to: no waiting, and no
//! frame that is late. The namespace has no name, and is gone with the switch.

mod cli;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use weft_engine::role::switch::{
    Counter, ETHERTYPE_OP, FLOOD_GROUP, Rendered, Rendered::Table, Write,
};
use weft_p4_interpreter::TableInfo;

use super::names::{Words, table_words, tables_of};
use super::switch::{Sent, Switch};
use super::{Refused, on_path};
use cli::Cli;
use wire::Wire;

/// The switch.
#[derive(Debug)]
pub struct Bmv2 {
    program: PathBuf,
    ports: Vec<u16>,
    /// The program's, whose order of keys and parameters the command line goes by.
    tables: Vec<TableInfo>,
    running: Running,
    /// The switch's numbers of entries.
    handles: BTreeMap<(String, Vec<u64>), String>,
    /// Ports of each group.
    groups: BTreeMap<u16, BTreeSet<u16>>,
    asked: u32,
}

/// Its processes, and the other ends of its veths.
#[derive(Debug)]
struct Running {
    switch: Process,
    cli: Cli,
    wires: Vec<(u16, Wire)>,
}

/// Ends with its owner.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// A namespace is a thread's; so a thread of its own makes it, and what is in it.
    fn start(program: &Path, ports: &[u16]) -> Result<Self, String> {
        thread::scope(|scope| {
            let made = scope.spawn(|| Self::start_in_namespace(program, ports)).join();
            made.expect("nothing in it panics")
        })
    }

    fn start_in_namespace(program: &Path, ports: &[u16]) -> Result<Self, String> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("a namespace: {error}"))?;
        ip(&["link", "set", "lo", "up"])?;
        let mut switch = Command::new(SWITCH);
        switch.args(["--log-console", "--log-level", "off", "--thrift-port", THRIFT_PORT]);
        switch.args(["--notifications-addr", NOTIFICATIONS]);
        let mut wires = Vec::new();
        for port in ports {
            let (own, far) = (format!("own{port}"), format!("far{port}"));
            ip(&["link", "add", &own, "type", "veth", "peer", "name", &far])?;
            // Nothing but the script's frames crosses it.
            for end in [&own, &far] {
                ip(&["link", "set", end, "addrgenmode", "none"])?;
                ip(&["link", "set", end, "up"])?;
            }
            switch.args(["-i", &format!("{port}@{far}")]);
            wires.push((*port, Wire::open(&own)?));
        }
        switch.arg(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let switch = switch.spawn().map_err(|error| format!("{SWITCH}: {error}"))?;
        let switch = Process(switch);
        let since = Instant::now();
        loop {
            match Cli::start(THRIFT_PORT) {
                Ok(cli) => return Ok(Self { switch, cli, wires }),
                Err(problem) if since.elapsed() > START_MAX => return Err(problem),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments:?}: {said}")) }
}

impl Bmv2 {
    /// Why there is none here, if there is none.
    pub(super) fn absence() -> Option<String> {
        let mut needed = [SWITCH, cli::PROGRAM, "ip"].into_iter();
        if let Some(needed) = needed.find(|needed| on_path(needed).is_none()) {
            return Some(format!("{needed} is not on PATH"));
        }
        let is_root = nix::unistd::geteuid().is_root();
        (!is_root).then(|| format!("a network namespace for {SWITCH} needs root"))
    }

    /// Waits until the switch takes frames.
    fn ready(&mut self) -> Result<(), String> {
        let since = Instant::now();
        while since.elapsed() < START_MAX {
            if self.closed_off(Duration::from_millis(100))?.is_some() {
                return Ok(());
            }
        }
        Err(format!("{SWITCH} does not echo"))
    }

    /// Sends the frames that close off what was sent before, and takes what leaves ahead of them;
    /// `None` where they do not come.
    fn closed_off(&mut self, patience: Duration) -> Result<Option<Sent>, String> {
        self.asked += 1;
        let (cpu_port, wire) = self.running.wires.last().expect("the agent's is the last");
        wire.send(&closing(ETHERTYPE_OP, self.asked))?;
        let mut open: BTreeSet<u16> = self.groups.get(&FLOOD_GROUP).cloned().unwrap_or_default();
        if !open.is_empty() {
            wire.send(&closing(ETHERTYPE_FLOODED, self.asked))?;
        }
        open.insert(*cpu_port);
        let (since, mut sent) = (Instant::now(), Sent::new());
        while !open.is_empty() {
            let mut is_idle = true;
            for (port, wire) in &self.running.wires {
                while let Some(frame) = wire.receive()? {
                    is_idle = false;
                    match closes(&frame) {
                        Some(asked) if asked == self.asked => _ = open.remove(port),
                        // Of one that was given up.
                        Some(asked) if asked < self.asked => {}
                        _ => sent.push((*port, frame)),
                    }
                }
            }
            if is_idle {
                if since.elapsed() > patience {
                    return Ok(None);
                }
                thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(Some(sent))
    }
}

/// A frame that closes off those before it: an ASK_LIFE for the switch, or one for nobody.
fn closing(ethertype: u16, asked: u32) -> Vec<u8> {
    let mut frame = vec![0; OP_LEN];
    frame[..6].copy_from_slice(&NOBODY);
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    frame[14] = ASK_LIFE;
    frame[OP_NONCE].copy_from_slice(&(NONCES + asked).to_be_bytes());
    frame
}

/// Which closing frame it is, if it is one.
fn closes(frame: &[u8]) -> Option<u32> {
    let ethertype = frame.get(12..14)?;
    let is_one =
        [ETHERTYPE_OP, ETHERTYPE_FLOODED].iter().any(|known| ethertype == known.to_be_bytes());
    let nonce = u32::from_be_bytes(frame.get(OP_NONCE)?.try_into().ok()?);
    is_one.then(|| nonce.checked_sub(NONCES)).flatten()
}

impl Switch for Bmv2 {
    fn start(program: PathBuf, ports: Vec<u16>) -> Result<Self, Refused> {
        if let Some(reason) = Self::absence() {
            return Err(Refused::Skipped(reason));
        }
        let tables = tables_of(&program).map_err(Refused::Failed)?;
        let running = Running::start(&program, &ports).map_err(Refused::Failed)?;
        let (handles, groups) = (BTreeMap::new(), BTreeMap::new());
        let mut made = Self { program, ports, tables, running, handles, groups, asked: 0 };
        made.ready().map_err(Refused::Failed)?;
        Ok(made)
    }

    fn write(&mut self, write: &Write) -> Result<(), String> {
        let cli = &mut self.running.cli;
        let is_delete = matches!(write, Write::Delete(_));
        let table = match write.entry().render() {
            Rendered::Group { id, nodes } => {
                if self.groups.remove(&id).is_some() {
                    cli.run(&format!("mc_mgrp_destroy {id}"))?;
                }
                if is_delete {
                    return Ok(());
                }
                cli.run(&format!("mc_mgrp_create {id}"))?;
                for (port, instance) in nodes {
                    let node = cli.handle(&format!("mc_node_create {instance} {port}"))?;
                    cli.run(&format!("mc_node_associate {id} {node}"))?;
                }
                self.groups.insert(id, nodes.iter().map(|(port, _)| *port).collect());
                return Ok(());
            }
            // Meters count real time, which is none of a script's: they stay green.
            Rendered::Meter { .. } => return Ok(()),
            Table(table) => table,
        };
        let (name, action) = (table.table, table.action);
        let Words { keys, params } = table_words(&self.tables, &table)?;
        let values = table.keys.iter().map(|field| field.value);
        let key = (name.to_owned(), values.collect::<Vec<u64>>());
        let known = self.handles.get(&key).cloned();
        match (write, known) {
            (Write::Insert(_), _) => {
                let handle =
                    cli.handle(&format!("table_add {name} {action} {keys} => {params}"))?;
                self.handles.insert(key, handle);
            }
            (_, None) => return Err("there is no such entry".to_owned()),
            (Write::Modify(_), Some(handle)) => {
                cli.run(&format!("table_modify {name} {action} {handle} {params}"))?;
            }
            (Write::Delete(_), Some(handle)) => {
                cli.run(&format!("table_delete {name} {handle}"))?;
                self.handles.remove(&key);
            }
        }
        Ok(())
    }

    fn pass(&mut self, port: u16, frame: &[u8]) -> Result<Sent, String> {
        let found = self.running.wires.iter().find(|(number, _)| *number == port);
        found.ok_or_else(|| format!("no port {port}"))?.1.send(frame)?;
        if let Some(sent) = self.closed_off(PATIENCE)? {
            return Ok(sent);
        }
        let ended = self.running.switch.0.try_wait().ok().flatten();
        Err(ended.map_or_else(
            || "simple_switch does not echo any more".to_owned(),
            |status| format!("simple_switch ended: {status}"),
        ))
    }

    fn read(&mut self, counter: Counter, cells: Range<u32>) -> Result<Vec<u64>, String> {
        let name = counter.name();
        let lines: Vec<_> = cells.map(|cell| format!("counter_read {name} {cell}")).collect();
        let said = self.running.cli.run_all(&lines)?;
        let packets = |said: &String| {
            let number = said.split(" bytes, ").nth(1)?.split(' ').next()?;
            number.parse().ok()
        };
        said.iter().map(|said| packets(said).ok_or_else(|| format!("no count: {said}"))).collect()
    }

    fn restart(&mut self) -> Result<(), String> {
        let _ = self.running.switch.0.kill();
        self.running = Running::start(&self.program, &self.ports)?;
        self.handles.clear();
        self.groups.clear();
        self.ready()
    }
}

const SWITCH: &str = "simple_switch";
/// In a namespace of its own every port is free.
const THRIFT_PORT: &str = "9090";
/// Its default is a socket in /tmp, which two switches cannot both have.
const NOTIFICATIONS: &str = "inproc://notifications";
const OP_LEN: usize = 54;
const OP_NONCE: Range<usize> = 22..26;
const ASK_LIFE: u8 = 2;
/// An address that no entry of a script has.
const NOBODY: [u8; 6] = [0x0a, 0, 0, 0, 0xff, 0xff];
/// The other of the two for local experiments.
const ETHERTYPE_FLOODED: u16 = 0x88b6;
/// Nonces of closing frames, which an agent hardly draws.
const NONCES: u32 = 0xba00_0000;
const START_MAX: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(5);
