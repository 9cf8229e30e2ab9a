"""A member of a group: vectors over rows and lanes (SPEC: Numbers, Glossary).

Sans-IO, as `lane`. A vector's chunks follow those of the last one; chunk `c` is step `c / shards`
of lane `c mod shards`. The lanes are known when the box's first word has come.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft_client import numbers
from weft_client.lane import Lane, LaneConfig, LaneError, State
from weft_client.numbers import Numbers
from weft_client.steps import Contribution, Sum
from weft_client.timers import Timers
from weft_client.wire import EXPONENT_MIN, ElementType, Flags, Operation


@dataclass(frozen=True)
class Config:
    """A member; `exponent_row` is needed where the box's row has no exponent of its own."""

    rank: int
    job: int = 0
    row: int = 0
    numbers: Numbers = Numbers.I32
    operation: Operation = Operation.SUM
    exponent_row: int | None = None
    probe_len: int = 1472
    timers: Timers = field(default_factory=Timers)


@dataclass(frozen=True)
class Result:
    """The sum of a vector over all members."""

    values: list
    clamped: bool
    congestion: bool


class Row:
    """The lanes of one row."""

    def __init__(
        self,
        config: Config,
        row: int,
        element_type: ElementType,
        operation: Operation,
        rng: random.Random,
        now_ns: int,
    ) -> None:
        self._config, self._row, self._rng = config, row, rng
        self._types = element_type, operation
        self.lanes: list[Lane] = []
        self._next_chunk = 0
        self._wanted: range = range(0)
        self._sums: dict[int, Sum] = {}
        self._restarts = 0
        self._add_lane(now_ns)

    def _add_lane(self, now_ns: int) -> None:
        config = self._config
        lane = LaneConfig(
            config.job,
            self._row,
            len(self.lanes),
            config.rank,
            *self._types,
            config.probe_len,
            config.timers,
        )
        self.lanes.append(Lane(lane, self._rng, now_ns))

    @property
    def is_open(self) -> bool:
        """Whether all lanes have met the box."""
        shards = self.lanes[0].shards
        return shards == len(self.lanes) and all(lane.lease for lane in self.lanes)

    @property
    def lease(self):
        """What the box says of the row; the same in all lanes."""
        return self.lanes[0].lease

    def submit(self, now_ns: int, contributions: Sequence[Contribution]) -> None:
        """The chunks of a vector, which all lie in one lease."""
        lease = self.lease
        if len(contributions) > lease.step_count * lease.shards:
            raise LaneError(
                f"row {self._row}: a vector of {len(contributions)} chunks, and a lease of "
                f"{lease.step_count * lease.shards}; raise the row's chunks_max"
            )
        if self._next_chunk + len(contributions) > lease.step_count * lease.shards:
            self._next_chunk = 0
            for lane in self.lanes:
                lane.renew(now_ns)
        begin = self._next_chunk
        self._next_chunk += len(contributions)
        self._wanted = range(begin, self._next_chunk)
        for chunk, contribution in zip(self._wanted, contributions):
            self.lanes[chunk % len(self.lanes)].submit(now_ns, contribution)

    def poll_sums(self) -> list[Sum] | None:
        """The sums of the vector's chunks, once all have come."""
        for lane_index, lane in enumerate(self.lanes):
            while (arrived := lane.poll_sum()) is not None:
                self._sums[arrived.step * len(self.lanes) + lane_index] = arrived
        if len(self._sums) < len(self._wanted):
            return None
        return [self._sums.pop(chunk) for chunk in self._wanted]

    def step(self, now_ns: int) -> None:
        """What one lane learns and the others need."""
        shards = self.lanes[0].shards
        while shards is not None and len(self.lanes) < shards:
            self._add_lane(now_ns)
        restarts = sum(lane.restarts for lane in self.lanes)
        if restarts != self._restarts:
            self._restarts = restarts
            for lane in self.lanes:
                lane.ask(now_ns)


class Member:
    """One member in a job's rows."""

    def __init__(self, config: Config, rng: random.Random, now_ns: int) -> None:
        self.config = config
        element_type = config.numbers.element_type
        self._data = Row(config, config.row, element_type, config.operation, rng, now_ns)
        self._rows = {config.row: self._data}
        self._offers: Row | None = None
        if config.exponent_row is not None:
            self._offers = Row(
                config, config.exponent_row, ElementType.I32, Operation.MAX, rng, now_ns
            )
            self._rows[config.exponent_row] = self._offers
        self._chunks: list[Sequence] = []
        self._len = 0
        self._offered = False

    @property
    def lanes(self) -> list[tuple[int, Lane]]:
        """All lanes, each with the index of its socket."""
        return [(i, lane) for row in self._rows.values() for i, lane in enumerate(row.lanes)]

    @property
    def lane_count(self) -> int:
        """Sockets that are needed."""
        return max(len(row.lanes) for row in self._rows.values())

    @property
    def is_open(self) -> bool:
        """Whether vectors can be given."""
        return all(row.is_open for row in self._rows.values())

    @property
    def is_closed(self) -> bool:
        """Whether all lanes have left."""
        return all(lane.state == State.CLOSED for _, lane in self.lanes)

    def begin(self, now_ns: int, values: Sequence) -> None:
        """Adds `values` to those of the others; one vector at a time."""
        lease = self._data.lease
        self._len = len(values)
        self._chunks = [
            values[begin : begin + lease.elements]
            # An empty vector has a chunk of its own.
            for begin in range(0, max(1, len(values)), lease.elements)
        ]
        agreed = self.config.numbers == Numbers.FIXED and not lease.exponent_mode
        if not agreed:
            exponent = lease.exponent if lease.exponent_mode else 0
            self._submit(now_ns, [exponent] * len(self._chunks))
        elif self._offers is None:
            raise LaneError(f"row {self.config.row} has no exponent: an exponent row is needed")
        else:
            self._submit_offers(now_ns, self._offers)

    def _submit_offers(self, now_ns: int, row: Row) -> None:
        fan_in, lease = self._data.lease.fan_in, row.lease
        offers = [numbers.block_exponent(chunk, fan_in) for chunk in self._chunks]
        header_exponent = lease.exponent if lease.exponent_mode else 0
        contributions = []
        for begin in range(0, len(offers), lease.elements):
            part = offers[begin : begin + lease.elements]
            last = len(part) if begin + lease.elements >= len(offers) else None
            part += [EXPONENT_MIN] * (lease.elements - len(part))
            payload = numbers.encode_i32(part)
            contributions.append(Contribution(payload, header_exponent, last=last))
        row.submit(now_ns, contributions)
        self._offered = True

    def _submit(self, now_ns: int, exponents: Sequence[int]) -> None:
        lease, config = self._data.lease, self.config
        contributions: list[Contribution] = []
        for chunk, exponent in zip(self._chunks, exponents):
            is_last = len(contributions) + 1 == len(self._chunks)
            last = len(chunk) if is_last else None
            clamped = False
            missing = lease.elements - len(chunk)
            neutral = EXPONENT_MIN if config.operation == Operation.MAX else 0
            match config.numbers:
                case Numbers.I32:
                    payload = numbers.encode_i32([*chunk, *[neutral] * missing])
                case Numbers.FIXED:
                    elements, clamped = numbers.to_fixed(chunk, exponent, lease.fan_in)
                    payload = numbers.encode_i32(elements + [0] * missing)
                case Numbers.F32:
                    payload, exponent = numbers.encode_f32([*chunk, *[0.0] * missing]), 0
                case Numbers.BF16:
                    payload, exponent = numbers.encode_bf16([*chunk, *[0.0] * missing]), 0
            contributions.append(Contribution(payload, exponent, clamped, last))
        self._data.submit(now_ns, contributions)

    def poll_result(self, now_ns: int) -> Result | None:
        """The sum, once it is whole; ask after every other call."""
        for row in self._rows.values():
            row.step(now_ns)
        for _, lane in self.lanes:
            if lane.error:
                raise lane.error
        if self._offered:
            assert self._offers is not None
            sums = self._offers.poll_sums()
            if sums is None:
                return None
            agreed = [e for one in sums for e in numbers.decode_i32(one.payload)]
            self._offered = False
            self._submit(now_ns, agreed[: len(self._chunks)])
        sums = self._data.poll_sums()
        if sums is None:
            return None
        values: list = []
        for one in sums:
            match self.config.numbers:
                case Numbers.I32:
                    values += numbers.decode_i32(one.payload)
                case Numbers.FIXED:
                    elements = numbers.decode_i32(one.payload)
                    values += numbers.from_fixed(elements, one.exponent)
                case Numbers.F32:
                    values += numbers.decode_f32(one.payload)
                case Numbers.BF16:
                    values += numbers.decode_bf16(one.payload)
        return Result(
            values[: self._len],
            any(Flags.CLAMPED in one.flags for one in sums),
            any(Flags.CONGESTION in one.flags for one in sums),
        )

    def close(self, now_ns: int) -> None:
        """Leaves the group."""
        for _, lane in self.lanes:
            lane.close(now_ns)
