"""Slots per second: the same frames to DPDK's SWX pipeline and to BMv2, two members, from captures.

    rate.py [--target swx|bmv2] [--elements N] [--slots N] [--window N]

The clock runs from the first answer that the target wrote to the last; every answer is counted, and
one that is missing is said.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pipeline
from run import enter

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import bmv2  # noqa: E402
from rig import Rig  # noqa: E402

MEMBERS = (0, 1)
IDLE_S = 3
PATIENCE_S = 30
RECORD_BYTES, FILE_BYTES = 16, 24


def rig_of(args: argparse.Namespace) -> Rig:
    """One lease of two members."""
    rig = Rig(elements=args.elements).base()
    rig.scope()
    rig.windowed(window=args.window, chunks=args.slots)
    return rig


def write_captures(folder: Path, rig: Rig, slots: int) -> dict[int, tuple[Path, Path]]:
    """What each member sends, and where its answers go, by port."""
    captures = {}
    for rank in MEMBERS:
        frames = [(index // 1000, rig.contribution(rank, index, 5)) for index in range(slots)]
        came = folder / f"p{rank}_in.pcap"
        came.write_bytes(bmv2.FILE_HEADER + bmv2.records(frames))
        captures[rank] = (came, folder / f"p{rank}_out.pcap")
    return captures


def watch(path: Path, record: int, slots: int) -> tuple[float, float]:
    """Answers that came, and answers a second."""
    first = last = None
    size, until = 0, time.monotonic() + PATIENCE_S
    while size < FILE_BYTES + slots * record:
        now, seen = time.monotonic(), path.stat().st_size if path.exists() else 0
        if seen > max(size, FILE_BYTES):
            first = first or (now, seen)
            last, size = (now, seen), seen
        elif last and now - last[0] > IDLE_S:
            break
        elif not last and now > until:
            raise SystemExit("nothing was answered")
        time.sleep(0.001)
    answers = (last[1] - first[1]) / record
    return (size - FILE_BYTES) / record, answers / max(last[0] - first[0], 1e-9)


def on_swx(args: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """On the pipeline, by net_pcap."""
    rig = rig_of(args)
    captures = write_captures(folder, rig, args.slots)
    spec = HERE.parent / f"build/weft-swx-{args.elements}.spec"
    target = pipeline.Pipeline(spec, args.elements, captures)
    try:
        enter(target, rig.entries)
        target.begin()
        return watch(captures[0][1], record_of(args), args.slots)
    finally:
        target.close()


def on_bmv2(args: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """On simple_switch, by its own captures, which it reads some seconds after its start."""
    rig = rig_of(args)
    captures = write_captures(folder, rig, args.slots)
    port = bmv2.free_port()
    command = ["simple_switch", "--use-files", "5", "--thrift-port", str(port), "-L", "off"]
    command += ["--notifications-addr", "inproc://notifications"]
    for rank in MEMBERS:
        command += ["-i", f"{rank}@{folder}/p{rank}"]
    command += [str(HERE.parent / f"build/weft-v1model-{args.elements}.json")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=folder, **quiet)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.02)
        bmv2.command(port, rig.entries)
        return watch(captures[0][1], record_of(args), args.slots)
    finally:
        process.kill()
        process.wait()


def record_of(args: argparse.Namespace) -> int:
    """Bytes of an answer in a capture."""
    return RECORD_BYTES + pipeline.HEADER_BYTES + 4 * args.elements


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description="slots per second of a target")
    parser.add_argument("--target", choices=["swx", "bmv2"], default="swx")
    parser.add_argument("--elements", type=int, default=32)
    parser.add_argument("--slots", type=int, default=20000)
    parser.add_argument("--window", type=int, default=512)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-rate-") as folder:
        run = on_swx if args.target == "swx" else on_bmv2
        answers, rate = run(args, Path(folder))
    print(
        f"{args.target}: {args.elements} elements, window {args.window}: "
        f"{answers:.0f} of {args.slots} slots answered, {rate:.0f} slots/s"
    )
    return int(answers != args.slots)


if __name__ == "__main__":
    sys.exit(main())
