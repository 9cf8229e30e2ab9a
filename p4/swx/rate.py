"""Slots per second: the same frames to DPDK's SWX pipeline, to BMv2 and to Weft's engine, from
captures of two members.

    rate.py [--target swx|bmv2|weft] [--elements N] [--slots N] [--window N]

The clock of a switch runs from the first answer that it wrote to the last; every answer is counted,
and one that is missing is said. The engine's figure is that of `weft replay` (WEFT names the
program, else it is looked for on PATH): reading and comparing the frames is in it.

SWX's port writes whole bursts and keeps what is left over, so slots come in bursts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
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
# BMv2 drops a frame that finds its port's queue full.
QUEUE_DEPTH = 1_000_000


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
        # A time for each slot: BMv2 reads captures in the order of their times, and waits for none.
        frames = [(index, rig.contribution(rank, index, 5)) for index in range(slots)]
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
    """On simple_switch, by its own captures: it reads the last one from a pipe, and none before
    that has begun, so that nothing comes before the tables are written."""
    rig = rig_of(args)
    captures = write_captures(folder, rig, args.slots)
    port = bmv2.free_port()
    held = captures[MEMBERS[-1]][0]
    frames = held.read_bytes()
    held.unlink()
    os.mkfifo(held)
    may_begin = threading.Event()

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError), open(held, "wb", buffering=0) as file:
            file.write(frames[:FILE_BYTES])
            may_begin.wait()
            file.write(frames[FILE_BYTES:])

    threading.Thread(target=feed, daemon=True).start()
    command = ["simple_switch", "--use-files", "0", "--thrift-port", str(port), "-L", "off"]
    command += ["--notifications-addr", "inproc://notifications"]
    for rank in MEMBERS:
        command += ["-i", f"{rank}@{folder}/p{rank}"]
    command += [str(HERE.parent / f"build/weft-v1model-{args.elements}.json")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=folder, **quiet)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.02)
        bmv2.command(port, [f"set_queue_depth {QUEUE_DEPTH}", *rig.entries])
        may_begin.set()
        return watch(captures[0][1], record_of(args), args.slots)
    finally:
        process.kill()
        process.wait()


WEFT_TOML = """
[port]
io = "udp"
ip = "10.0.0.100/24"
[[job]]
id = 0
[[row]]
row = 0
job = 0
elements = {elements}
window = {window}
integrity = "checksum16"
members = ["10.0.0.1:22500", "10.0.0.2:22500"]
"""


def on_weft(args: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """In Weft's engine, by `weft replay` of the same captures."""
    captures = write_captures(folder, rig_of(args), args.slots)
    config = folder / "node.toml"
    config.write_text(WEFT_TOML.format(elements=args.elements, window=args.window))
    weft = os.environ.get("WEFT", "weft")
    command = [weft, "replay", "--format", "json", "--config", str(config)]
    command += [str(came) for came, _ in captures.values()]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    told = json.loads(done.stdout)
    frames = told["packets_in"] + told["packets_out"]
    answers = told["packets_out"] / len(MEMBERS)
    return answers, told["packets_per_second"] * answers / frames


def record_of(args: argparse.Namespace) -> int:
    """Bytes of an answer in a capture."""
    return RECORD_BYTES + pipeline.HEADER_BYTES + 4 * args.elements


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description="slots per second of a target")
    parser.add_argument("--target", choices=["swx", "bmv2", "weft"], default="swx")
    parser.add_argument("--elements", type=int, default=32)
    parser.add_argument("--slots", type=int, default=20000)
    parser.add_argument("--window", type=int, default=512)
    args = parser.parse_args()
    if args.target == "swx" and args.slots % pipeline.BURST:
        parser.error(f"--slots: a multiple of {pipeline.BURST}")
    with tempfile.TemporaryDirectory(prefix="weft-rate-") as folder:
        run = {"swx": on_swx, "bmv2": on_bmv2, "weft": on_weft}[args.target]
        answers, rate = run(args, Path(folder))
    print(
        f"{args.target}: {args.elements} elements, window {args.window}: "
        f"{answers:.0f} of {args.slots} slots answered, {rate:.0f} slots/s"
    )
    return int(answers != args.slots)


if __name__ == "__main__":
    sys.exit(main())
