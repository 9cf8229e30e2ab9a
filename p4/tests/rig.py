"""A scenario and what it needs: entries of the tables as text for simple_switch_CLI, frames in by
port, the frames that have to come out by port, and the counters afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from frames import (
    ANSWER,
    ASK_LIFE,
    BOX,
    BOX_PORT,
    CONTRIB,
    CPU_PORT,
    ECHO,
    HAVE,
    I32,
    MEMBERS,
    PULL,
    REPLICA,
    REPLICA_HOST,
    SERVER,
    STALE,
    STATE,
    STATUS,
    SUM,
    Host,
    frame,
    header,
    ip,
    mac,
    op_frame,
    vector,
)

REASONS = (
    "length vlan fragment ip_header ip_checksum not_ip not_for_us version kind unknown_job "
    "unknown_group bad_members stale_epoch bad_cookie stale_group wrong_source wrong_shard "
    "over_quota strangers_quota chunk_out_of_range element_count element_type operation exponent "
    "integrity stale_step duplicate unwanted handshake token unsolicited"
).split()
WINDOWED = {
    "claim": 0,
    "add": 1,
    "complete_root": 2,
    "repeat_collecting": 6,
    "repeat_answered": 9,
    "refuse_foreign": 10,
    "status_unclaimed": 11,
}
WHOLE = {
    f"whole_{name}": 14 + index
    for index, name in enumerate(
        "narrow store add send_on_contribution repeat_collecting repeat_sent refuse_stale "
        "credit_empty credit_collecting send_on_credit send_again credit_stale".split()
    )
}

@dataclass
class Rig:
    """One switch, its tables, and the frames of a scenario in their order."""

    elements: int = 32
    members: int = 2
    entries: list[str] = field(default_factory=list)
    sent: list[tuple[int, bytes]] = field(default_factory=list)
    expected: dict[int, list[bytes]] = field(default_factory=dict)
    drops: dict[str, int] = field(default_factory=dict)
    transitions: dict[tuple[int, str], int] = field(default_factory=dict)
    progress: dict[int, int] = field(default_factory=dict)
    nodes: int = 0

    # Tables.

    def add(self, table: str, action: str, keys: list, values: list) -> None:
        """An entry."""
        text = " ".join(map(str, keys))
        self.entries.append(f"table_add {table} {action} {text} => {' '.join(map(str, values))}")

    def group(self, number: int, nodes: list[tuple[int, int]]) -> None:
        """A multicast group: (id of the copy, port)."""
        self.entries.append(f"mc_mgrp_create {number}")
        for copy, port in nodes:
            self.entries.append(f"mc_node_create {copy} {port}")
            self.entries.append(f"mc_node_associate {number} {self.nodes}")
            self.nodes += 1

    def base(self) -> "Rig":
        """The box's own address, and the ports of all hosts."""
        self.add("local", "is_local", [hex(int.from_bytes(ip(1), "big"))], [BOX_PORT])
        hosts = [BOX, SERVER, REPLICA_HOST, *MEMBERS]
        for host in hosts:
            self.add("bridge", "to_port", [hex(int.from_bytes(mac(host.number), "big"))],
                     [host.switch_port])
        self.group(1, [(0, host.switch_port) for host in hosts])
        return self

    def scope(self, scope: int = 0, *, is_push: bool = False) -> None:
        """Members, and where their copies go."""
        nodes = []
        for rank, host in enumerate(MEMBERS[: self.members]):
            self.add("members", "member", [scope, hex(1 << rank)],
                     [rank, hex(host.cookie_up), hex(int.from_bytes(ip(host.number), "big")),
                      host.port])
            self.copy(scope, rank, host, host.cookie_down, 1 << rank, 0)
            nodes.append((rank, host.switch_port))
        if is_push:
            self.add("servers", "server", [scope],
                     [hex(SERVER.cookie_down), hex(int.from_bytes(ip(SERVER.number), "big")),
                      SERVER.port])
            self.copy(scope, 64, SERVER, SERVER.cookie_up, 0, 0)
            self.copy(scope, 65, REPLICA_HOST, REPLICA_HOST.cookie_up, 0, REPLICA)
            nodes += [(64, SERVER.switch_port), (65, REPLICA_HOST.switch_port)]
        self.group(2 + scope, nodes)

    def copy(self, scope: int, id_: int, host: Host, cookie: int, bit: int, flags: int) -> None:
        """How a copy with this id leaves."""
        self.add("copies", "copy", [scope, id_],
                 [hex(bit), hex(int.from_bytes(mac(host.number), "big")),
                  hex(int.from_bytes(mac(1), "big")),
                  hex(int.from_bytes(ip(host.number), "big")),
                  hex(int.from_bytes(ip(1), "big")), host.port, BOX_PORT, hex(cookie), flags])

    def mask(self) -> int:
        """All members."""
        return (1 << self.members) - 1

    def windowed(self, *, job: int = 1, row: int = 0, generation: int = 1, scope: int = 0,
                 lease_epoch: int = 0x1001, base: int = 0, window: int = 2, chunks: int = 1000,
                 op: int = SUM, exponent: int = 0, exponent_fixed: int = 1,
                 mask: int | None = None) -> None:
        """The row of a windowed lease."""
        self.add("rows", "windowed", [job, row],
                 [hex(lease_epoch), generation, scope, hex(self.mask() if mask is None else mask),
                  base, window - 1, window, chunks, I32 << 4 | op, exponent & 0xFF,
                  exponent_fixed])

    def whole(self, *, job: int = 1, row: int = 0, generation: int = 1, scope: int = 0,
              lease_epoch: int = 0x2001, base: int = 64, chunks: int = 4, exponent: int = 0,
              row_index: int = 0, replicate: int = 1, mask: int | None = None) -> None:
        """The row of a push group."""
        self.add("rows", "whole", [job, row],
                 [hex(lease_epoch), generation, scope, hex(self.mask() if mask is None else mask),
                  base, chunks, I32 << 4 | SUM, exponent & 0xFF, row_index, replicate])

    def push_job(self, job: int = 1, scope: int = 0) -> None:
        """A job whose groups come and go."""
        self.add("jobs", "push_job", [job], [scope])

    # Frames in.

    def send(self, port: int, data: bytes) -> None:
        """A frame, as it is."""
        self.sent.append((port, data))

    def values(self, values) -> list[int]:
        """All elements, of which the first are given; the others count up from the first."""
        given = [values] if isinstance(values, int) else list(values)
        return given + [given[0] + index for index in range(len(given), self.elements)]

    def contribution(self, rank: int, chunk: int, values, *, payload: bytes | None = None,
                     cut: int | None = None, around: dict | None = None, **fields) -> bytes:
        """A member's contribution; what is named differs from what is right."""
        host = MEMBERS[rank]
        fields = {"cookie": host.cookie_up, "members": 1 << rank, "chunk": chunk, "type_": I32,
                  "op": SUM, "count": self.elements} | fields
        payload = vector(self.values(values)) if payload is None else payload
        data = frame(host, BOX, header(CONTRIB, **fields) + payload, **(around or {}))
        return data if cut is None else data[:cut]

    def contrib(self, rank: int, chunk: int, values=0, **fields) -> None:
        """Sends a contribution."""
        self.send(MEMBERS[rank].switch_port, self.contribution(rank, chunk, values, **fields))

    def status(self, rank: int, chunk: int, *, around: dict | None = None, **fields) -> None:
        """Sends a STATUS."""
        host = MEMBERS[rank]
        fields = {"cookie": host.cookie_up, "members": 1 << rank, "chunk": chunk, "type_": I32,
                  "op": SUM, "count": self.elements} | fields
        self.send(host.switch_port, frame(host, BOX, header(STATUS, **fields), **(around or {})))

    def pull(self, chunk: int, members: int | None = None, *, padded: bool = False,
             around: dict | None = None, source: Host = SERVER, **fields) -> None:
        """Sends a credit."""
        fields = {"cookie": SERVER.cookie_down, "chunk": chunk,
                  "members": self.mask() if members is None else members} | fields
        payload = bytes(4 * self.elements) if padded else b""
        self.send(source.switch_port,
                  frame(source, BOX, header(PULL, **fields) + payload, **(around or {})))

    # Frames out.

    def expect(self, port: int, data: bytes) -> None:
        """A frame, as it is."""
        self.expected.setdefault(port, []).append(data)

    def expect_answer(self, chunk: int, values, *, to=None, exponent: int = 0, flags: int = 0,
                      members: int | None = None, op: int = SUM, **fields) -> None:
        """The sum to these ranks, or to all."""
        ranks = range(self.members) if to is None else to
        for rank in ranks:
            host = MEMBERS[rank]
            data = header(ANSWER, cookie=host.cookie_down, chunk=chunk, type_=I32, op=op,
                          exponent=exponent, flags=flags, count=self.elements,
                          members=self.mask() if members is None else members, **fields)
            data += vector(self.values(values) if isinstance(values, int) else values)
            self.expect(host.switch_port, frame(BOX, host, data))

    def expect_state(self, rank: int, chunk: int, outcome: int, members: int = 0,
                     **fields) -> None:
        """A HAVE or STALE of a windowed lease: the frame's element fields stay."""
        host = MEMBERS[rank]
        fields = {"cookie": host.cookie_down, "type_": I32, "op": SUM,
                  "count": self.elements} | fields
        data = header(STATE, chunk=chunk, outcome=outcome, members=members, **fields)
        self.expect(host.switch_port, frame(BOX, host, data))

    def expect_have(self, rank: int, chunk: int, members: int, **fields) -> None:
        """A HAVE of a windowed lease."""
        self.expect_state(rank, chunk, HAVE, members, **fields)

    def expect_stale(self, rank: int, chunk: int, **fields) -> None:
        """A STALE of a windowed lease."""
        self.expect_state(rank, chunk, STALE, **fields)

    def expect_plain(self, host: Host, chunk: int, outcome: int, members: int = 0,
                     **fields) -> None:
        """A STATE of a push group: it has no element fields."""
        cookie = host.cookie_up if host is SERVER else host.cookie_down
        data = header(STATE, **({"cookie": cookie} | fields), chunk=chunk, outcome=outcome,
                      members=members)
        self.expect(host.switch_port, frame(BOX, host, data))

    def expect_sum(self, chunk: int, values, *, members: int | None = None, flags: int = 0,
                   copy: bool = True, exponent: int = 0, **fields) -> None:
        """The sum to the server, and its copy to the replica."""
        hosts = [(SERVER, 0), (REPLICA_HOST, REPLICA)] if copy else [(SERVER, 0)]
        for host, flag in hosts:
            data = header(CONTRIB, cookie=host.cookie_up, chunk=chunk, type_=I32, op=SUM,
                          exponent=exponent, flags=flags | flag, count=self.elements,
                          members=self.mask() if members is None else members, **fields)
            data += vector(self.values(values) if isinstance(values, int) else values)
            self.expect(host.switch_port, frame(BOX, host, data))

    def op(self, op: int, *, echoed: bool = True, life: int = 0, knows: int | None = None,
           **fields) -> None:
        """What the agent tells the switch, and its echo; `knows` is the life that it names."""
        self.send(CPU_PORT, op_frame(op, life=life, **fields))
        if echoed:
            named = {key: value for key, value in fields.items() if key not in ("count", "payload")}
            self.expect(CPU_PORT, op_frame(op | ECHO, life=life if knows is None else knows,
                                           **named))

    def dropped(self, reason: str, count: int = 1) -> None:
        """A frame that was refused."""
        self.drops[reason] = self.drops.get(reason, 0) + count

    def happened(self, *names: str, scope: int = 0) -> None:
        """What is counted of a slot."""
        for name in names:
            self.transitions[scope, name] = self.transitions.get((scope, name), 0) + 1

    def finish(self) -> None:
        """The last frame, whose echo says that all before it were handled."""
        self.send(CPU_PORT, op_frame(ASK_LIFE, nonce=0xE4D))
