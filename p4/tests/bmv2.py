"""One scenario on the real switch, without root: `simple_switch --use-files`, tables written by
simple_switch_CLI, frames in and out as captures.

The switch reads the agent's frames from a pipe, and the others only once those have begun, so that
nothing comes before the tables are written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from frames import ASK_LIFE, CPU_PORT, ECHO
from rig import REASONS, WHOLE, WINDOWED, Rig

PORTS = [0, 1, 2, 3, 8, 9, CPU_PORT]
FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
PATIENCE_S = 30
IDLE_S = 0.15
STARTS_MAX = 3


class Failed(Exception):
    """The switch did not do its part; the argument says which."""


class DidNotStart(Exception):
    """The switch ended before it served, as when another program has taken its port."""


def programs_missing() -> list[str]:
    """The programs that are not on PATH."""
    return [name for name in ("simple_switch", "simple_switch_CLI") if not shutil.which(name)]


def version() -> str:
    """The switch's."""
    done = subprocess.run(["simple_switch", "--version"], capture_output=True, text=True)
    return done.stdout.strip()


def records(frames: list[tuple[int, bytes]]) -> bytes:
    """Records of a capture: a time in milliseconds, and a frame."""
    return b"".join(
        struct.pack("<IIII", ms // 1000, ms % 1000 * 1000, len(data), len(data)) + data
        for ms, data in frames
    )


def read_capture(path: Path) -> list[bytes]:
    """The frames of a capture that may still be growing."""
    data, frames, at = path.read_bytes(), [], 24
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        if at + 16 + length > len(data):
            break
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return frames


def is_last(frame: bytes) -> bool:
    """The echo of the frame that `Rig.finish` sent."""
    is_echo = frame[12:15] == b"\x88\xb5" + bytes([ASK_LIFE | ECHO])
    return is_echo and frame[22:26] == b"\0\0\x0e\x4d"


def free_port() -> int:
    """A TCP port for the switch's own interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command(port: int, lines: list[str]) -> str:
    """What simple_switch_CLI says to these commands."""
    done = subprocess.run(
        ["simple_switch_CLI", "--thrift-port", str(port)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done.stdout + done.stderr


class Outcome:
    """What came of a run: frames by port, counters, or the reason why there are none."""

    def __init__(self) -> None:
        self.out: dict[int, list[bytes]] = {}
        self.drops: dict[str, int] = {}
        self.transitions: dict[tuple[int, str], int] = {}
        self.progress: dict[int, int] = {}
        self.has_died = False


def run(program: Path, rig: Rig) -> Outcome:
    """Runs the frames of a rig through the compiled program."""
    rig.finish()
    for _ in range(STARTS_MAX):
        with (
            contextlib.suppress(DidNotStart),
            tempfile.TemporaryDirectory(prefix="weft-p4-") as folder,
        ):
            return run_in(Path(folder), program, rig)
    raise Failed("simple_switch does not start")


def run_in(folder: Path, program: Path, rig: Rig) -> Outcome:
    """The same, with the captures in `folder`."""
    sent = list(enumerate(rig.sent, start=1))
    for port in PORTS:
        if port != CPU_PORT:
            mine = [(ms, data) for ms, (at, data) in sent if at == port]
            (folder / f"p{port}_in.pcap").write_bytes(FILE_HEADER + records(mine))
    pipe = folder / f"p{CPU_PORT}_in.pcap"
    os.mkfifo(pipe)
    may_begin = threading.Event()

    def feed() -> None:
        # A switch that has died reads no more.
        with contextlib.suppress(BrokenPipeError), open(pipe, "wb", buffering=0) as file:
            file.write(FILE_HEADER)
            may_begin.wait()
            file.write(records([(ms, data) for ms, (at, data) in sent if at == CPU_PORT]))

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    thrift = free_port()
    args = ["simple_switch", "--use-files", "0", "--thrift-port", str(thrift), "-L", "off"]
    # The default is a socket in /tmp, which the switches of a machine would share.
    args += ["--notifications-addr", "inproc://notifications"]
    for port in PORTS:
        args += ["-i", f"{port}@{folder}/p{port}"]
    process = subprocess.Popen(
        [*args, str(program)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    )
    try:
        return follow(folder, process, thrift, rig, may_begin)
    finally:
        process.kill()
        process.wait()
        may_begin.set()
        if feeder.is_alive():
            # Nobody may have opened the pipe.
            os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))


def follow(folder: Path, process, thrift: int, rig: Rig, may_begin) -> Outcome:
    """Writes the tables, lets the frames in, and takes what comes out."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", thrift)) == 0:
                break
        if process.poll() is not None:
            raise DidNotStart
        if time.monotonic() > until:
            raise Failed("simple_switch does not start")
        time.sleep(0.02)
    said = command(thrift, rig.entries)
    wrong = [line for line in said.splitlines() if "Error" in line or "Invalid" in line]
    if wrong:
        raise Failed(f"simple_switch_CLI: {wrong[0]}")
    may_begin.set()
    outcome = Outcome()
    last = folder / f"p{CPU_PORT}_out.pcap"
    while process.poll() is None and time.monotonic() < until:
        if any(map(is_last, read_capture(last))):
            break
        time.sleep(0.02)
    sizes, idle_from = None, time.monotonic()
    while time.monotonic() - idle_from < IDLE_S:
        now = [(folder / f"p{port}_out.pcap").stat().st_size for port in PORTS]
        if now != sizes:
            sizes, idle_from = now, time.monotonic()
        time.sleep(0.02)
    for port in PORTS:
        frames = read_capture(folder / f"p{port}_out.pcap")
        outcome.out[port] = [frame for frame in frames if not is_last(frame)]
    if process.poll() is not None:
        outcome.has_died = True
        return outcome
    read_counters(thrift, rig, outcome)
    return outcome


def read_counters(thrift: int, rig: Rig, outcome: Outcome) -> None:
    """Reads drops, transitions of the scopes that the rig names, and progress."""
    names = WINDOWED | WHOLE
    scopes = sorted({scope for scope, _ in rig.transitions} | {0})
    wanted = [(outcome.drops, name, f"drops {index}") for index, name in enumerate(REASONS)]
    wanted += [
        (outcome.transitions, (scope, name), f"transitions {scope * 32 + code}")
        for scope in scopes
        for name, code in names.items()
        if (scope, name) not in outcome.transitions
    ]
    wanted += [(outcome.progress, index, f"progress {index}") for index in rig.progress]
    said = command(thrift, [f"counter_read {what}" for _, _, what in wanted])
    counts = [
        int(line.rsplit(" packets)", 1)[0].rsplit(" ", 1)[1])
        for line in said.splitlines()
        if line.endswith(" packets)")
    ]
    if len(counts) != len(wanted):
        raise Failed(f"{len(wanted)} counters were asked for, {len(counts)} came")
    for (where, key, _), count in zip(wanted, counts):
        if count:
            where[key] = count
