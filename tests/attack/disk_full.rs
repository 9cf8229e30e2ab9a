//! A server whose disk is full (README, SPEC's "Durable"): it ends with an error that names the
//! file and says what to do, nobody was told of what is not kept, and with room again it goes on.
//!
//! Needs a small file system: a tmpfs in a mount namespace of its own, made as root or in a user
//! namespace.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use weft_tests::live::durable::{Ended, Job, scale, wait_for};
use weft_tests::live::skip;

const WORKERS: u8 = 3;

/// A tmpfs that lives as long as this.
struct SmallDisk {
    holder: Child,
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk in a namespace of its own.
    fn mount(at: &Path, kib: u32) -> Result<Self, String> {
        let script = format!(
            "mount -t tmpfs -o size={kib}k tmpfs {at} && echo mounted && while read kib; do mount \
             -o remount,size=${{kib}}k {at} && echo mounted; done",
            at = at.display()
        );
        let mut why = String::new();
        for namespaces in ["-m", "-Urm"] {
            let holder = Command::new("unshare")
                .args([namespaces, "sh", "-c", &script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|error| format!("no unshare: {error}"))?;
            let path = PathBuf::from(format!("/proc/{}/root{}", holder.id(), at.display()));
            let mut disk = Self { holder, path };
            if disk.is_mounted() && std::fs::write(disk.path.join("try"), "").is_ok() {
                return Ok(disk);
            }
            let _ = disk.holder.kill();
            let output = disk.holder.stderr.take();
            let lines = output.map(|pipe| BufReader::new(pipe).lines().map_while(Result::ok));
            why = lines.into_iter().flatten().collect::<Vec<_>>().join("; ");
        }
        Err(why)
    }

    fn is_mounted(&mut self) -> bool {
        let mut line = String::new();
        let stdout = self.holder.stdout.as_mut().expect("piped");
        // A line at a time: the shell says nothing before it is asked again.
        let mut byte = [0];
        while std::io::Read::read(stdout, &mut byte).is_ok_and(|len| len == 1) && byte[0] != b'\n' {
            line.push(char::from(byte[0]));
        }
        line == "mounted"
    }

    fn resize(&mut self, kib: u32) {
        let stdin = self.holder.stdin.as_mut().expect("piped");
        writeln!(stdin, "{kib}").expect("the shell reads");
        assert!(self.is_mounted(), "the disk gets {kib} KiB");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// One line, an exit status of 3, a file and what to do.
fn is_refusal(ended: &Ended) {
    assert_eq!(ended.status, Some(3), "{}", ended.stderr);
    let words = ended.stderr.lines().last().unwrap_or_default();
    assert!(words.contains("the state in ") && words.contains("/job-0/"), "{words}");
    assert!(words.contains("cannot be written") && words.contains("make room"), "{words}");
}

#[test]
fn a_server_whose_disk_is_full_ends_by_name_and_goes_on_when_there_is_room() {
    let job = Job::new(WORKERS);
    let mount = job.directory().join("disk");
    std::fs::create_dir(&mount).expect("a directory");
    let mut kib = 200;
    let mut disk = match SmallDisk::mount(&mount, kib) {
        Ok(disk) => disk,
        Err(why) => {
            let test = "a_server_whose_disk_is_full_ends_by_name_and_goes_on_when_there_is_room";
            return skip(test, &format!("needs a tmpfs of its own, as root or rootless: {why}"));
        }
    };
    let (stop, told) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // The journal grows until there is no room.
        let config = job.config(&disk.path, None);
        let mut server = job.start(&config).expect("there is room for a start");
        let train = |rank| job.train(rank, &stop, &told).expect("the job goes on");
        let workers: Vec<_> = (0..WORKERS).map(|rank| scope.spawn(move || train(rank))).collect();
        let (mut at_work, mut at_start) = (0, 0);
        while at_work < 3 * scale() {
            is_refusal(&server.ended());
            at_work += 1;
            // What is left may not do for a start either.
            server = loop {
                match job.start(&config) {
                    Ok(server) => break server,
                    Err(ended) => {
                        is_refusal(&ended);
                        at_start += 1;
                        kib += 40;
                        disk.resize(kib);
                    }
                }
            };
        }
        println!("full while it worked {at_work} times, while it began {at_start} times");
        let _ = server.end(Signal::SIGKILL);
        disk.resize(100_000);
        let server = match job.start(&config) {
            Ok(server) => server,
            Err(ended) => panic!("there is room: {}", ended.stderr),
        };
        wait_for(&told, told.load(Ordering::Relaxed) + 20);
        stop.store(true, Ordering::Relaxed);
        let counts: Vec<_> =
            workers.into_iter().map(|w| w.join().expect("it trains").len() as u64).collect();
        let ended = server.end(Signal::SIGTERM);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        assert_eq!(job.updates(), counts, "what was told is kept, and nothing else");
        assert_eq!(ended.report["servers"][0]["version"], counts.iter().sum::<u64>());
    });
}
