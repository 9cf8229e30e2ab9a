"""Lies to a box, replays what it said, and floods it; compares what it sent with what is counted.

Written from proto/SPEC.md and the client in proto/clients/python, which must be on PYTHONPATH.
It is a stranger to the honest job (row 0) and both members of a job of its own (row 1). Each frame
that is refused must be counted under one reason, and nothing else may be. Where the reason is one
that honest members give cause for as well, at least as many must be counted.

The test that starts it restarts the box when a line RESTART is written, and then answers a line.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import random
import re
import socket
import struct
import sys
import time
import urllib.request
from pathlib import Path

from weft_client import wire
from weft_client.driver import udp_socket
from weft_client.lane import Lane, LaneConfig, State
from weft_client.steps import Contribution
from weft_client.wire import ElementType, Flags, Header, Hello, Kind, Operation, Phase

JOB, ROW, ELEMENTS = 1, 1, 64
CHUNKS_MAX = 4096
PATIENCE_S = 20
COUNTED_S = 20
# Three times the `metrics_period_ms` of the box's file.
SETTLED_S = 0.3
# What a socket buffer surely holds, beside what the honest members send.
BURST = 64
# Repeats of honest members are refused as these too.
SHARED = {"duplicate", "stale_step", "stale_epoch"}


class Box:
    """The box under attack: its address, and what it counts."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.addr = (args.ip, args.port)
        self._metrics = args.metrics
        self.shards: int = args.shards
        self.failures = 0

    def drops(self) -> dict[str, int]:
        """Refused frames by reason."""
        text = self._page()
        found = re.findall(r'^weft_drops_total\{reason="(\w+)"\} (\d+)', text, re.M)
        return {reason: int(count) for reason, count in found}

    def _page(self) -> str:
        """The box waits 0.2 s for a request, which may be too short on a busy machine."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=10) as page:
                    return page.read().decode()
            except (OSError, http.client.HTTPException):
                if time.monotonic() > end_s:
                    raise
                time.sleep(0.1)

    def lost(self) -> int:
        """Datagrams that came while the buffer of the box's socket was full."""
        own = "%08X:%04X" % (struct.unpack("=I", socket.inet_aton(self.addr[0]))[0], self.addr[1])
        rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()]
        return sum(int(row[-1]) for row in rows if row[1] == own)

    def settle(self) -> None:
        """Waits until all that was refused by now is counted."""
        time.sleep(SETTLED_S)

    def expect(
        self, what: str, reasons: set[str], count: int, before: dict[str, int], lost: int = 0
    ) -> None:
        """Waits until `count` more frames are refused for `reasons`, and none for any other.

        `lost`: how many of them may have been lost before the box.
        """
        end_s = time.monotonic() + COUNTED_S
        while True:
            after = self.drops()
            more = {r: n - before.get(r, 0) for r, n in after.items() if n != before.get(r, 0)}
            counted = sum(more.get(reason, 0) for reason in reasons)
            if counted >= count - lost or time.monotonic() > end_s:
                break
            time.sleep(0.02)
        others = more.keys() - reasons - SHARED
        enough = counted >= count - lost and (counted <= count or bool(reasons & SHARED))
        verdict = "ok" if enough and not others else "WRONG"
        print(f"{verdict:5} {what:44} sent {count:6} counted {more}", flush=True)
        self.failures += verdict != "ok"


class Member:
    """A member of the own job, in one lane, that speaks when and as it likes."""

    def __init__(self, box: Box, base: int, rank: int, lane: int) -> None:
        self._box = box
        self.socket = udp_socket((box.addr[0], base + 64 * rank + lane))
        config = LaneConfig(JOB, ROW, lane, rank, ElementType.I32, Operation.SUM)
        self.lane = Lane(config, random.SystemRandom(), time.monotonic_ns())
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        """Sends whatever it is."""
        self.socket.sendto(data, self._box.addr)

    def turn(self) -> None:
        """Keeps to the protocol for a moment."""
        while (data := self.lane.poll_transmit()) is not None:
            self.sent.append(data)
            self.send(data)
        try:
            while True:
                self.lane.handle_datagram(time.monotonic_ns(), self.socket.recv(2048))
        except BlockingIOError:
            pass
        due_ns = self.lane.poll_timeout()
        if due_ns is not None and due_ns <= time.monotonic_ns():
            self.lane.handle_timeout(time.monotonic_ns())
        if self.lane.error:
            raise self.lane.error

    def contribution(self, **changes: object) -> bytes:
        """A good one to step 1000 of the lease, which is too far ahead; or with `changes`."""
        lease, config = self.lane.lease, self.lane.config
        assert lease
        header = Header(
            Kind.CONTRIB,
            JOB,
            self.lane.group,
            1000 * lease.shards + config.lane,
            Flags(0),
            cookie=lease.cookie_up,
            element_type=ElementType.I32,
            operation=Operation.SUM,
            count=ELEMENTS,
            members=1 << config.rank,
        )
        payload = changes.pop("payload", None)
        header = dataclasses.replace(header, **changes)
        if payload is None:
            payload = bytes(header.count * header.element_type.size_bytes)
        return wire.encode(header, payload)

    def hello(self, phase: Phase, **fields: object) -> bytes:
        """A handshake datagram with the life of this member, or with `fields`."""
        rank, lane = self.lane.config.rank, self.lane.config.lane
        header = Header(Kind.HELLO, JOB, ROW << 16, lane, members=1 << rank)
        life = fields.pop("life", self.lane._life)
        return wire.encode_hello(header, Hello(phase, life, **fields))


def until(members: list[Member], done) -> None:
    """Turns all members until each is `done`."""
    end_s = time.monotonic() + PATIENCE_S
    while not all(done(member) for member in members):
        for member in members:
            member.turn()
        if time.monotonic() > end_s:
            raise SystemExit("hostile: the own job does not get on; is the box alive?")
        time.sleep(0.0005)


def seal(data: bytes | bytearray) -> bytes:
    """`data` with the CRC that it should have."""
    data = bytes(data)
    return data[:20] + struct.pack(">I", wire.datagram_crc(data)) + data[24:]


def patched(data: bytes, offset: int, value: int) -> bytes:
    """`data` with another byte, under a good CRC."""
    changed = bytearray(data)
    changed[offset] = value
    return seal(changed)


def lies(member: Member) -> list[tuple[str, str, bytes]]:
    """What a member may get wrong: what, the reason that it is refused for, the datagram."""
    good = member.contribution()
    lease = member.lane.lease
    assert lease
    cookie, lane = lease.cookie_up, member.lane.config.lane
    is_corrupt = bytearray(good)
    is_corrupt[-1] ^= 1
    return [
        ("31 bytes", "length", good[:31]),
        ("a payload that is a byte short", "length", good[:-1]),
        ("a payload that is a byte long", "length", seal(good + b"\0")),
        ("a STATUS with a payload", "length", member.contribution(kind=Kind.STATUS)),
        ("version 2", "version", patched(good, 0, 0x21)),
        ("kind 0", "kind", patched(good, 0, 0x10)),
        ("kind 8", "kind", patched(good, 0, 0x18)),
        ("an ACK", "kind", member.contribution(kind=Kind.ACK, payload=b"")),
        ("a PULL", "kind", member.contribution(kind=Kind.PULL, payload=b"")),
        ("exponent -128 in the header", "exponent", patched(good, 17, 0x80)),
        ("a job that is not served", "unknown_job", member.contribution(job=9)),
        ("a row that is not served", "unknown_group", member.contribution(group=77 << 16)),
        ("a row of another job", "unknown_group", member.contribution(group=0)),
        ("no bit", "bad_members", member.contribution(members=0)),
        ("two bits", "bad_members", member.contribution(members=3)),
        ("a bit outside the mask", "bad_members", member.contribution(members=1 << 40)),
        ("the bit of the other member", "bad_cookie", member.contribution(members=2)),
        ("a cookie that is off by one", "bad_cookie", member.contribution(cookie=cookie ^ 1)),
        (
            "a cookie of another epoch",
            "stale_epoch",
            member.contribution(cookie=cookie ^ 1 << 24),
        ),
        (
            "another generation",
            "stale_group",
            member.contribution(group=member.lane.group ^ 1),
        ),
        (
            "a chunk of the other lane",
            "wrong_shard",
            member.contribution(chunk=2 * lease.shards + 1 - lane),
        ),
        ("a chunk past the group", "chunk_out_of_range", member.contribution(chunk=CHUNKS_MAX)),
        ("chunk 2^32 - 2", "chunk_out_of_range", member.contribution(chunk=2**32 - 2)),
        ("one element less", "element_count", member.contribution(count=ELEMENTS - 1)),
        ("no element", "element_count", member.contribution(count=0)),
        ("f32", "element_type", member.contribution(element_type=ElementType.F32)),
        ("MAX", "operation", member.contribution(operation=Operation.MAX)),
        ("another exponent", "exponent", member.contribution(exponent=3)),
        ("a payload that is not the CRC's", "integrity", bytes(is_corrupt)),
        ("no CRC", "integrity", good[:20] + bytes(4) + good[24:]),
        ("a step too far ahead", "stale_step", good),
        (
            "a hand-over that nobody wants",
            "unwanted",
            member.contribution(kind=Kind.ANSWER, members=lease.mask),
        ),
        ("a JOIN with a token of its own", "token", member.hello(Phase.JOIN, token=1)),
        ("a CLOSE of another life", "stale_epoch", member.hello(Phase.CLOSE, life=5)),
        ("a WELCOME", "handshake", member.hello(Phase.WELCOME)),
        ("phase 11", "handshake", patched(member.hello(Phase.HELLO), 32, 11)),
        ("a HELLO of 103 bytes", "length", seal(member.hello(Phase.HELLO)[:103])),
        (
            "a bitmap that is longer than the datagram",
            "handshake",
            member.hello(Phase.JOIN, step_bits=64),
        ),
    ]


def forged(box: Box, source: tuple[str, int], data: bytes) -> bytes:
    """An IP packet to the box that says that it is from `source`."""
    udp = struct.pack(">HHHH", source[1], box.addr[1], 8 + len(data), 0) + data
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(box.addr[0])
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0)
    return ip + addresses + udp


def attack(box: Box, args: argparse.Namespace) -> None:
    """All of it, in order."""
    count = 10 * args.scale
    members = [Member(box, args.base, rank, lane) for rank in (0, 1) for lane in range(box.shards)]
    until(members, lambda member: member.lane.state == State.OPEN)
    for _ in range(40):
        for member in members:
            member.lane.submit(time.monotonic_ns(), Contribution(bytes(4 * ELEMENTS)))
    until(members, lambda member: member.lane.steps.is_idle())
    first = members[0]

    for what, reason, data in lies(first):
        if reason == "wrong_shard" and box.shards == 1:
            continue
        flood(box, what, reason, [data], count, first.send)
    stranger = udp_socket((box.addr[0], args.base + 999))

    def say(data: bytes) -> None:
        stranger.sendto(data, box.addr)

    frame, hello = first.contribution(), first.hello(Phase.HELLO)
    flood(box, "a member's frame from elsewhere", "wrong_source", [frame], count, say)
    flood(box, "a member's HELLO from elsewhere", "wrong_source", [hello], count, say)
    forge(box, args, first, count)

    # What was true once.
    # A HELLO claims nothing, and is answered whenever it comes.
    spoken = [data for member in members for data in member.sent if not is_hello(data)]
    joins = [data for data in first.sent if data[0] & 15 == Kind.HELLO and data[32] == Phase.JOIN]
    contributions = [data for data in first.sent if data[0] & 15 == Kind.CONTRIB]
    old_epoch = shown_epoch(first)
    for member in members:
        member.lane.close(time.monotonic_ns())
    until(members, lambda member: member.lane.state == State.CLOSED)
    # Nobody has begun anew: the box may still know their life. No harm may come of them below.
    for _ in range(count):
        first.send(joins[-1])
    for member in members:
        member.socket.close()
    members = [Member(box, args.base, rank, lane) for rank in (0, 1) for lane in range(box.shards)]
    until(members, lambda member: member.lane.state == State.OPEN)
    first = members[0]
    box.settle()
    what = "contributions of a session that has closed"
    flood(box, what, "stale_epoch", contributions, count, first.send)
    flood(box, "JOINs of the session before", "token", joins, count, first.send)

    print("RESTART", flush=True)
    sys.stdin.readline()
    for member in members:
        member.lane.ask(time.monotonic_ns())
    until(members, lambda member: member.lane.restarts == 1 and member.lane.state == State.OPEN)
    # The honest members have begun anew as well.
    box.settle()
    # One restart in 256 draws an epoch that a cookie cannot tell from the old one.
    stale = "bad_cookie" if shown_epoch(first) == old_epoch else "stale_epoch"
    what = "contributions of before the restart"
    flood(box, what, stale, contributions, count, first.send)
    flood(box, "JOINs of before the restart", "token", joins, count, first.send)
    before = box.drops()
    for data in spoken:
        first.send(data)
    refused = {"stale_epoch", "bad_cookie", "token", "wrong_source", "wrong_shard"}
    box.expect("all that was said before", refused, len(spoken), before)

    # As fast as it can, each of the floods for its share of the time.
    for what, reason, data in [
        ("a flood of stale frames", stale, contributions),
        ("a flood of JOINs", "token", joins),
        ("a flood of frames that are not Weft's", "version", [b"\x45" * 200]),
    ]:
        flood(box, what, reason, data, 2000 * args.scale, first.send)
    hellos = [stranger_hello(first) for _ in range(50)]
    flood(box, "a flood of HELLOs from elsewhere", "wrong_source", hellos, 2000 * args.scale, say)
    hello = first.hello(Phase.HELLO)
    for _ in range(20 * args.scale):
        for _ in range(100):
            first.send(hello)
        time.sleep(0.005)
    for member in members:
        member.lane.submit(time.monotonic_ns(), Contribution(bytes(4 * ELEMENTS)))
    until(members, lambda member: member.lane.steps.is_idle())
    for member in members:
        member.lane.close(time.monotonic_ns())
    until(members, lambda member: member.lane.state == State.CLOSED)


def shown_epoch(member: Member) -> int:
    """What a cookie says of the epoch: its last eight bits."""
    assert member.lane.lease
    return member.lane.lease.cookie_up >> 24


def is_hello(data: bytes) -> bool:
    """Whether it only asks."""
    return data[0] & 15 == Kind.HELLO and data[32] == Phase.HELLO


def stranger_hello(member: Member) -> bytes:
    """A HELLO of a random life."""
    return member.hello(Phase.HELLO, life=random.getrandbits(64) | 1)


def forge(box: Box, args: argparse.Namespace, member: Member, count: int) -> None:
    """Frames to the honest job under the addresses of its members."""
    try:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    except PermissionError:
        print("SKIPPED forged addresses: needs root", file=sys.stderr)
        return
    rng = random.Random(7)

    def say(packet: bytes) -> None:
        raw.sendto(packet, (box.addr[0], 0))

    for rank in (0, 1):
        source = (box.addr[0], args.honest + 64 * rank)
        header = Header(Kind.HELLO, 0, 0, 0, members=1 << rank)
        join = wire.encode_hello(header, Hello(Phase.JOIN, rng.getrandbits(64) | 1, token=1))
        close = wire.encode_hello(header, Hello(Phase.CLOSE, rng.getrandbits(64) | 1))
        for what, reason, data in [
            ("JOIN", "token", join),
            ("CLOSE", "stale_epoch", close),
        ]:
            packet = forged(box, source, data)
            flood(box, f"a forged {what} of honest rank {rank}", reason, [packet], count, say)
        frames = [
            forged(
                box,
                source,
                member.contribution(
                    job=0,
                    group=rng.getrandbits(2),
                    chunk=box.shards * rng.randrange(99),
                    cookie=rng.getrandbits(32),
                    members=1 << rank,
                ),
            )
            for _ in range(count)
        ]
        before = box.drops()
        for packet in frames:
            say(packet)
        what = f"forged contributions of honest rank {rank}"
        box.expect(what, {"bad_cookie", "stale_epoch"}, count, before)


def flood(box: Box, what: str, reason: str, data: list[bytes], count: int, say) -> None:
    """Sends `count` datagrams, those of `data` in turn, in bursts that a socket buffer holds."""
    before, lost = box.drops(), box.lost()
    for index in range(count):
        say(data[index % len(data)])
        if index % BURST == BURST - 1:
            time.sleep(0.005)
    # What shows nobody's cookie is refused as that once there is too much of it.
    box.expect(what, {reason, "strangers_quota"}, count, before, box.lost() - lost)


def main() -> int:
    """Exit status: 0 when all that was sent is counted as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ip", help="of the box and of all members")
    parser.add_argument("port", type=int, help="of the box")
    parser.add_argument("metrics", help="ip:port of the box's metrics")
    parser.add_argument("honest", type=int, help="first UDP port of the honest job's rank 0")
    parser.add_argument("base", type=int, help="first UDP port of the own rank 0")
    parser.add_argument("shards", type=int, help="lanes of the box")
    parser.add_argument("scale", type=int, help="how much longer than in CI")
    args = parser.parse_args()
    box = Box(args)
    attack(box, args)
    print(f"hostile: {box.failures} of the comparisons are wrong")
    return min(box.failures, 1)


if __name__ == "__main__":
    sys.exit(main())
