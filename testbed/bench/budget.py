#!/usr/bin/env python3
"""Where the CPU time of a sum goes: `weft bench allreduce` under `perf record`, stage by stage.

    testbed/bench/budget.py [--weft TARGET/release/weft] [--workers 4] [--bytes 64M] [--mtu 1500]
        [--rate-mbit 0] [--io udp_offload] [--rounds 3] [--iters 3]

Samples of the workers (`weft`) and of the box (`weft-node`) are sorted into stages by the name of
the function that ran, so a function that was inlined counts for the one that holds it. What the
bench itself does between the sums, numbers to sum and to compare, is left out. Shares are scaled to
the CPU time of one sum that the bench counted in the same run. Needs perf and root (a lab of
namespaces). Output: Markdown; exit 1 if a sum was wrong or nothing was sampled.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# The first that matches; where it ran (k: the kernel, u: a program) and a pattern.
STAGES = [
    ("bench", "u", r"weft_testbed::|weft_process::|serde|core::fmt|clap"),
    ("bench", "k", r"clear_page|page_fault|do_anonymous_page|handle_mm_fault|__memcg|memcg1|unmap_|"
                   r"zap_|mas_|vma|mmap|exit_mm|folio|lruvec|execve|elf|filemap|do_fault"),
    ("copies", "k", r"_copy_to_iter|_copy_from_iter|copy_user|rep_movs|memcpy|skb_copy_bits"),
    ("copies", "u", r"memmove|memcpy|memset"),
    ("wake-ups and switches", "k", r"wake|_raw_spin_unlock_irqrestore|finish_task_switch|schedule|"
     r"sched_|pick_|queue_task|update_|enqueue_|dequeue_|switch_|reweight|place_entity|yield|poll|"
     r"hrtimer|timerqueue|sock_def_readable|native_write_msr|ipi|smp_|idle|cpuidle|select_task"),
    ("system calls", "k", r"entry_|syscall|iovec|msghdr|fdget|fput|sys_|cmsg|irqentry|move_addr|"
     r"_copy_from_user|_copy_to_user|__get_user|sockfd|security_"),
    ("network stack", "k", r""),
    ("byte order, quantising", "u", r"weft_kernel.*(emit|store|quantise)"),
    ("sums", "u", r"weft_kernel.*(add|max|fold|run)"),
    ("CRC", "u", r"weft_kernel::crc"),
    ("engine", "u", r"weft_engine|weft_wire|weft_client|weft_lane|weft_node"),
    ("port", "u", r"weft_io|sendmmsg|recvmsg|recvmmsg|ppoll|arrayvec|nix::"),
    ("rest", "u", r""),
]
LEFT_OUT = "bench"
ORDER = [
    "network stack", "wake-ups and switches", "system calls", "copies", "byte order, quantising",
    "sums", "CRC", "engine", "port", "rest",
]


def stage(dso, symbol):
    where = "k" if "kernel" in dso else "u"
    return next(name for name, place, words in STAGES
                if place == where and re.search(words, symbol))


def samples(data):
    """Shares of all samples by program and stage."""
    report = subprocess.run(
        ["perf", "report", "-i", data, "--no-children", "-g", "none", "--stdio", "--percent-limit",
         "0", "--sort", "comm,dso,symbol", "--field-separator", "\t"],
        capture_output=True, text=True, check=True)
    found = {}
    for line in report.stdout.splitlines():
        fields = [field.strip() for field in line.split("\t")]
        if line.startswith("#") or len(fields) < 4 or fields[1] not in ("weft", "weft-node"):
            continue
        key = (fields[1], stage(fields[2], fields[3]))
        found[key] = found.get(key, 0.0) + float(fields[0].rstrip("%"))
    return found


def missing(weft):
    """Ends with what is to be had first, if something is not there."""
    if shutil.which(weft) is None:
        sys.exit(f"budget: there is no program {weft}: `cargo build --release -p weft-testbed "
                 "-p weft-node`, or name it with --weft")
    if shutil.which("perf") is None:
        sys.exit("budget: perf is not on PATH: on Debian it is in the package linux-perf")
    if os.geteuid() != 0:
        sys.exit("budget: needs root, for perf's samples of the kernel and a lab of namespaces")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--weft", default=f"{target}/release/weft",
                        help="default: of CARGO_TARGET_DIR, or of target")
    parser.add_argument("--workers", default="4")
    parser.add_argument("--bytes", default="64M")
    parser.add_argument("--mtu", default="1500")
    parser.add_argument("--rate-mbit", default="0")
    parser.add_argument("--io", default="udp_offload", help="udp, udp_offload, af_packet")
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--iters", default="3", help="timed sums of a round")
    options = parser.parse_args()
    missing(options.weft)
    only = {"udp": "weft", "udp_offload": "weft_offload",
            "udp_multicast": "weft_multicast", "af_packet": "weft_af_packet"}[options.io]
    with tempfile.TemporaryDirectory() as folder:
        data = str(pathlib.Path(folder) / "perf.data")
        bench = [options.weft, "bench", "allreduce", "--peers", "--only", only, "--format", "json",
                 "-w", options.workers, "-b", options.bytes, "-e", options.bytes, "--mtus",
                 options.mtu, "--rates", options.rate_mbit, "--rounds", options.rounds, "-n",
                 options.iters]
        run = subprocess.run(["perf", "record", "-q", "-a", "-F", "5000", "-o", data, "--", *bench],
                             capture_output=True, text=True, check=False)
        if run.returncode != 0:
            reason = run.stderr.strip() or f"ended with status {run.returncode} and no word"
            sys.exit(f"budget: {' '.join(bench)}: {reason}")
        row = json.loads(run.stdout)[0]
        found = samples(data)
    total_ms = {"weft": (row["cpu_s"] - row["cpu_box_s"]) * 1e3, "weft-node": row["cpu_box_s"] * 1e3}
    counted = {program: sum(share for (who, name), share in found.items()
                            if who == program and name != LEFT_OUT) for program in total_ms}
    if row["wrong"] != 0 or not all(counted.values()):
        sys.exit("budget: a sum was wrong, or nothing was sampled")
    print(f"{options.workers} workers, {options.bytes} of f32, MTU {options.mtu}, {options.io}: "
          f"{row['time_us'] / 1e3:.1f} ms, CPU {row['cpu_s'] * 1e3:.0f} ms a sum\n")
    print("| stage | workers, ms | box, ms |\n| --- | ---: | ---: |")
    for name in ORDER:
        cells = [found.get((program, name), 0.0) / counted[program] * total_ms[program]
                 for program in ("weft", "weft-node")]
        print(f"| {name} | {cells[0]:.0f} | {cells[1]:.0f} |")
    print(f"| **all** | **{total_ms['weft']:.0f}** | **{total_ms['weft-node']:.0f}** |")


if __name__ == "__main__":
    main()
