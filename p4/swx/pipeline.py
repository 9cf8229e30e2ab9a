"""The program on DPDK's SWX pipeline, without root or a network device: each port is a socket whose
other end this process holds, tables are written over the pipeline's command line.

DPDK's `pipeline` example and the headers of lib/pipeline, lib/table and lib/port are not part of
Weft: WEFT_SWX_PIPELINE names the program, WEFT_SWX_HEADERS the folder `lib` of DPDK's source.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tables import CPU_PORT, ECHO_SESSION, PORTS_COUNT, SINK_PORT, Refused, Tables
from tables import port_of, session_of

HERE = Path(__file__).resolve().parent
PROGRAM = os.environ.get("WEFT_SWX_PIPELINE", "")
HEADERS = os.environ.get("WEFT_SWX_HEADERS", "")
# The field that swx.p4 calls FRAME_BYTES.
LENGTH_FIELD = "local_metadata_copy_cookie"
FRAME_BYTES_MAX = 2048
HEADER_BYTES = 74
OP_BYTES = 54
PATIENCE_S = 20
# Frames of a capture that a port takes at once; one that writes keeps what is less.
BURST = 32
PROMPT = b"pipeline> "
ENABLE = "thread 1 pipeline P enable"
# An op frame of nobody's: whatever came before it is over when it has been echoed so many times.
# The target takes one frame of a port a round, and a frame has at most 72 passes (PASSES_MAX).
ASK = b"\2\xff\xff\xff\xff\2\2\xff\xff\xff\xff\1\x88\xb5\2" + bytes(39)
ECHO = ASK[:14] + b"\x82"
ASKS = 80
# What a meter that nobody set lets pass: everything.
FREE_RATE, FREE_BURST = 10**11, 10**9


class Failed(Exception):
    """The pipeline did not do its part; the argument says which."""


def missing() -> list[str]:
    """What is not here."""
    found = [] if Path(PROGRAM).is_file() else ["the program that WEFT_SWX_PIPELINE names"]
    if not (Path(HEADERS) / "pipeline").is_dir() or not HEADERS:
        found.append("the folder that WEFT_SWX_HEADERS names")
    return found + [name for name in ("gcc", "pkg-config") if not shutil.which(name)]


def tell_length(spec: str, code: str) -> str:
    """The generated code, with the length of a frame put where the program expects it. What runs
    first after reception is the first function."""
    start = spec.index("\nstruct meta_t {")
    offset = 0
    for bits, name in re.findall(r"bit<(\d+)> (\w+)", spec[start : spec.index("}", start)]):
        if name == LENGTH_FIELD:
            break
        offset += int(bits) // 8
    else:
        raise Failed(f"the program has no {LENGTH_FIELD}, where a frame's length goes")
    begins = re.search(r"pipeline_func_1\(.*?\n\{.*?p->thread_id\];\n", code, re.S)
    if not begins:
        raise Failed("the generated code has no first function")
    line = f"if (t->recirc_pass_id == 0) METADATA_WRITE(t, {offset}, 32, t->pkt.length);\n"
    return code[: begins.end()] + line + code[begins.end() :]


def library(spec: Path) -> Path:
    """The compiled program: made once for each text of the program."""
    known = hashlib.sha256(spec.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME", "/tmp")) / "weft-swx" / known
    made = folder / "program.so"
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    code, script = folder / "program.c", folder / "codegen.cli"
    script.write_text(f"pipeline codegen {spec.resolve()} {code}\n")
    port = free_port()
    process = start(folder, script, port, [], [])
    try:
        # The command line listens once the script is done.
        Console(port, process).close()
    finally:
        process.kill()
        process.wait()
    if not code.exists():
        raise Failed(f"no code was generated: {errors_of(folder)}")
    code.write_text(tell_length(spec.read_text(), code.read_text()))
    flags = subprocess.run(
        ["pkg-config", "--cflags", "libdpdk"], capture_output=True, text=True, check=True
    ).stdout.split()
    includes = [f"-I{HEADERS}/{part}" for part in ("pipeline", "table", "port")]
    # The target writes a field by 64 bits and sums a header by 32: gcc must not part the two.
    command = ["gcc", "-O3", "-fno-strict-aliasing", "-shared", "-fpic", "-w"]
    command += ["-o", f"{made}.new", str(code), *includes, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"gcc: {done.stderr.splitlines()[:1]}")
    Path(f"{made}.new").rename(made)
    return made


def free_port() -> int:
    """A TCP port for the pipeline's command line."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(folder: Path, script: Path, port: int, vdevs: list[str], fds: list[int]):
    """Starts the example with a script; its own name keeps it apart from other DPDK programs."""
    args = [PROGRAM, "--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "-l", "0-1"]
    args += ["--file-prefix", f"weft-swx-{port}"]
    for vdev in vdevs:
        args += ["--vdev", vdev]
    with open(folder / "pipeline.log", "wb") as log:
        return subprocess.Popen(
            [*args, "--", "-p", str(port), "-s", str(script)],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, pass_fds=fds,
        )


def errors_of(folder: Path) -> str:
    """The first line of the pipeline's log that tells of an error, or nothing."""
    said = (folder / "pipeline.log").read_text(errors="replace")
    wrong = re.search(r"^.*(?:[Ee]rror|Invalid|failed).*$", said, re.M)
    return wrong[0] if wrong else ""


class Console:
    """The pipeline's command line."""

    def __init__(self, port: int, process) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.link = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
                break
            except ConnectionRefusedError as error:
                if process.poll() is not None or time.monotonic() > until:
                    raise Failed("the pipeline does not start") from error
                time.sleep(0.02)
        self.answer()

    def answer(self) -> str:
        """What it says until it asks for more."""
        said = b""
        while not said.endswith(PROMPT):
            try:
                more = self.link.recv(65536)
            except TimeoutError as error:
                raise Failed("the pipeline's command line is silent") from error
            if not more:
                raise Failed("the pipeline has died")
            said += more
        return said[: -len(PROMPT)].decode(errors="replace").strip()

    def tell(self, command: str) -> str:
        """What it says to a command: nothing, where that is done."""
        self.link.sendall(command.encode() + b"\n")
        return self.answer()

    def do(self, command: str) -> None:
        """A command that is to say nothing."""
        said = self.tell(command)
        if said:
            raise Refused(f"{command}: {said.splitlines()[0]}")

    def close(self) -> None:
        """No more commands."""
        self.link.close()


def mirrors(elements: int) -> list[str]:
    """The mirror sessions of all ports (sizes.p4)."""
    lengths = (FRAME_BYTES_MAX, HEADER_BYTES + 4 * elements, HEADER_BYTES)
    found = [
        (session_of(port) + kind, port, length)
        for port in range(PORTS_COUNT)
        for kind, length in enumerate(lengths)
    ]
    return [
        f"pipeline P mirror session {session} port {port} clone slow truncate {length}"
        for session, port, length in [*found, (ECHO_SESSION, CPU_PORT, OP_BYTES)]
    ]


class Pipeline:
    """A running program: entries, frames and registers, one after the other."""

    def __init__(
        self, spec: Path, elements: int, captures: dict[int, tuple[Path, Path]] | None = None
    ) -> None:
        """`captures`: by port, net_pcap's files in and out; it then waits for `begin`."""
        captures = captures or {}
        made = library(spec)
        self.folder = Path(tempfile.mkdtemp(prefix="weft-swx-"))
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(PORTS_COUNT)]
        self.ends = [mine for mine, _ in pairs]
        fds = [theirs.fileno() for _, theirs in pairs]
        io = ["mirroring slots 1 sessions 64"]
        for port, (_, theirs) in enumerate(pairs):
            theirs.setblocking(False)
            fd = theirs.fileno()
            if port in captures:
                io.append(f"port in {port} ethdev net_pcap{port} rxq 0 bsz {BURST}")
                io.append(f"port out {port} ethdev net_pcap{port} txq 0 bsz {BURST}")
                continue
            io.append(f"port in {port} fd {fd} mtu {FRAME_BYTES_MAX} mempool M bsz 1")
            io.append(f"port out {port} fd {fd} bsz 1")
        io += [f"port out {SINK_PORT} sink file none", f"port out {SINK_PORT + 1} sink file none"]
        (self.folder / "ports.io").write_text("\n".join(io) + "\n")
        script = ["mempool M buffer 2304 pool 16K cache 256 cpu 0"]
        script += [
            f"ethdev net_pcap{port} rxq 1 512 M txq 1 512 promiscuous on" for port in captures
        ]
        script += [f"pipeline P build lib {made} io {self.folder}/ports.io numa 0"]
        script += mirrors(elements) + ([] if captures else [ENABLE])
        (self.folder / "weft.cli").write_text("\n".join(script) + "\n")
        port = free_port()
        devices = [
            f"net_pcap{port},rx_pcap={came},tx_pcap={went}"
            for port, (came, went) in captures.items()
        ]
        self.process = start(self.folder, self.folder / "weft.cli", port, devices, fds)
        for _, theirs in pairs:
            theirs.close()
        self.tables = Tables(spec.read_text())
        self.profiles: set[str] = set()
        try:
            self.console = Console(port, self.process)
            if errors_of(self.folder):
                raise Failed(errors_of(self.folder))
            self.meter("job_meter", 0, FREE_RATE, FREE_BURST, last=63)
            self.meter("cpu_meter", 0, FREE_RATE, FREE_BURST)
            self.commit()
        except Exception:
            self.close()
            raise

    def begin(self) -> None:
        """Lets the frames of captures in."""
        self.console.do(ENABLE)

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, how: str, table: str, action: str, keys: list, values: list) -> None:
        """One entry."""
        self.tables.write(how, table, action, keys, values)
        self.commit()

    def group(self, number: int, nodes: list[tuple[int, int]]) -> None:
        """One multicast group."""
        self.tables.group(number, nodes)
        self.commit()

    def commit(self) -> None:
        """Tells the target what has changed: all of it, or nothing."""
        changes, self.tables.changes = self.tables.changes, []
        path = self.folder / "entries.txt"
        try:
            for how, table, line in changes:
                path.write_text(line + "\n")
                self.console.do(f"pipeline P table {table} {how} {path}")
            if changes:
                self.console.do("pipeline P commit")
        except Refused:
            self.console.tell("pipeline P abort")
            raise

    def meter(self, name: str, index: int, rate: int, burst: int, last: int | None = None) -> None:
        """A bucket of so many bytes, refilled by so many a second."""
        profile = f"r{rate}b{burst}"
        if profile not in self.profiles:
            rates = f"cir {rate} pir {rate} cbs {burst} pbs {burst}"
            self.console.do(f"pipeline P meter profile {profile} add {rates}")
            self.profiles.add(profile)
        to = index if last is None else last
        self.console.do(
            f"pipeline P meter {name} set profile {profile} index from {index} to {to}"
        )

    def register(self, name: str, index: int) -> int:
        """What a register holds, counters among them."""
        said = self.console.tell(f"pipeline P regrd {name} index {index}")
        if not said.startswith("0x"):
            raise Refused(f"{name} {index}: {said.splitlines()[:1]}")
        return int(said, 16)

    def frame(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """Sends a frame and waits until it is over; the frames that came of it, by port."""
        if len(data) > FRAME_BYTES_MAX:
            raise Refused(f"a frame of {len(data)} bytes: {FRAME_BYTES_MAX} at most")
        if not data:
            raise Refused("a frame without bytes: a port of the target has none")
        self.ends[port_of(port)].send(data)
        came: list[tuple[int, bytes]] = []
        for _ in range(ASKS):
            self.ends[CPU_PORT].send(ASK)
        for _ in range(ASKS):
            self.wait_for_echo(came)
        # What an earlier frame sent lies in the sockets by now.
        self.take(came)
        return [(255 if port == CPU_PORT else port, data) for port, data in came]

    def wait_for_echo(self, came: list[tuple[int, bytes]]) -> None:
        """Takes the agent's frames until the echo is there."""
        end = self.ends[CPU_PORT]
        while True:
            if not select.select([end], [], [], PATIENCE_S)[0]:
                raise Failed("the pipeline is silent")
            data = end.recv(FRAME_BYTES_MAX)
            if not data:
                raise Failed(f"the pipeline has died ({self.process.wait()})")
            if data.startswith(ECHO):
                return
            came.append((CPU_PORT, data))

    def take(self, came: list[tuple[int, bytes]]) -> None:
        """Takes what is there on all ports."""
        for port, end in enumerate(self.ends):
            while select.select([end], [], [], 0)[0]:
                data = end.recv(FRAME_BYTES_MAX)
                if not data:
                    break
                came.append((port, data))
