"""Members beside a real `weft-node`, on the loopback: SPEC's promises, one by one."""

from __future__ import annotations

import math
import random
import threading
import time
import unittest
from functools import reduce

from tests.node import Node, together
from weft_client import LaneError, Numbers, numbers
from weft_client.timers import MS, Timers
from weft_client.wire import Operation

SMALL = "elements = 64\nwindow = 16\n"


def integers(rank: int, round_: int, count: int) -> list[int]:
    """A member's integers in a round; every bit of them counts."""
    rng = random.Random(rank << 16 | round_)
    return [rng.randrange(-(2**31), 2**31) for _ in range(count)]


def floats(rank: int, count: int) -> list[float]:
    """Numbers of many magnitudes, whose sums depend on the order."""
    rng = random.Random(rank)
    return numbers.to_f32(
        [rng.uniform(-1, 1) * 2.0 ** rng.randrange(-20, 20) for _ in range(count)]
    )


def wrap(total: int) -> int:
    """Modulo 2^32, signed."""
    return (total + 2**31) % 2**32 - 2**31


def integer_sums(members: int, round_: int, count: int) -> list[int]:
    """The sums of `integers`, wrapped."""
    columns = zip(*(integers(rank, round_, count) for rank in range(members)))
    return [wrap(sum(column)) for column in columns]


class Sums(unittest.TestCase):
    def rounds(self, node: Node, members: int, counts: list[int]) -> None:
        """Each member gets the sums of all rounds, bit for bit."""

        def work(rank: int) -> None:
            with node.session(rank) as session:
                for round_, count in enumerate(counts):
                    result = session.allreduce(integers(rank, round_, count))
                    self.assertEqual(result.values, integer_sums(members, round_, count))

        together(members, work)

    def test_integers(self) -> None:
        with Node(3, SMALL + "exponent = 0") as node:
            self.rounds(node, 3, [1, 64, 65, 3001])
            statistics = node.end()
            self.assertEqual(statistics["jobs"][0]["chunks_completed"], 1 + 1 + 2 + 47)

    def test_a_group_of_one(self) -> None:
        with Node(1, SMALL + "exponent = 0") as node:
            self.rounds(node, 1, [1000])

    def test_two_lanes_and_a_lease_that_runs_out(self) -> None:
        # 7 chunks a round: 34 steps in each lane last for nine rounds.
        with Node(2, SMALL + "exponent = 0\nchunks_max = 68", shards=2) as node:
            self.rounds(node, 2, [64 * 7] * 20)
            self.assertEqual(node.end()["formations"], 2 * 3)

    def test_a_lossy_box(self) -> None:
        faults = "[faults]\nseed = 5\nloss = 0.1\nduplicate = 0.02\nreorder = 0.05\ncorrupt = 0.02"
        with Node(3, SMALL + "exponent = 0", shards=2, more=faults) as node:
            self.rounds(node, 3, [64 * 100, 64 * 51])

    def test_a_box_that_is_killed_in_the_middle(self) -> None:
        with Node(3, SMALL + "exponent = 0\nchunks_max = 4096", shards=2) as node:
            begun = threading.Semaphore(0)

            def work(rank: int) -> int:
                with node.session(rank) as session:
                    for round_ in range(30):
                        begun.release()
                        count = 64 * 40
                        result = session.allreduce(integers(rank, round_, count))
                        self.assertEqual(result.values, integer_sums(3, round_, count))
                    return sum(lane.restarts for _, lane in session.member.lanes)

            def kill(_: int) -> None:
                for _ in range(3):
                    for _ in range(3 * 7):
                        begun.acquire()
                    time.sleep(random.random() / 50)
                    node.kill()
                    node.start()

            restarts = together(4, lambda rank: kill(rank) if rank == 3 else work(rank))
            self.assertTrue(all(count >= 3 for count in restarts[:3]), restarts)


class Modes(unittest.TestCase):
    """Each number mode against a plain reference."""

    COUNT = 1500

    def sums(self, members: int, rows: list[str], vectors: list[list], **config: object) -> list:
        """Each member's result."""
        with Node(members, *rows) as node:

            def work(rank: int) -> object:
                with node.session(rank, **config) as session:
                    return session.allreduce(vectors[rank])

            return together(members, work)

    def test_maximum(self) -> None:
        vectors = [integers(rank, 0, self.COUNT) for rank in range(3)]
        rows = [SMALL + 'operation = "max"\nexponent = 0']
        for result in self.sums(3, rows, vectors, operation=Operation.MAX):
            self.assertEqual(result.values, [max(column) for column in zip(*vectors)])

    def test_integers_that_are_clamped(self) -> None:
        vectors = [integers(rank, 0, self.COUNT) for rank in range(3)]
        most = numbers.limit(3)
        for result in self.sums(3, [SMALL + 'exponent = 0\noverflow = "clamp"'], vectors):
            columns = zip(*vectors)
            clamped = [sum(max(-most, min(x, most)) for x in column) for column in columns]
            self.assertEqual(result.values, clamped)
            self.assertTrue(result.clamped)

    def fixed(self, vectors: list[list[float]], exponents: list[int]) -> list[float]:
        """What SPEC says that the sum of `vectors` is."""
        sums: list[float] = []
        for chunk, exponent in enumerate(exponents):
            part = slice(64 * chunk, 64 * (chunk + 1))
            elements = [numbers.to_fixed(v[part], exponent, len(vectors))[0] for v in vectors]
            totals = [sum(column) for column in zip(*elements)]
            sums += numbers.from_fixed(totals, exponent)
        return sums

    def test_a_fixed_exponent(self) -> None:
        vectors = [floats(rank, self.COUNT) for rank in range(3)]
        vectors[1][7] = math.nan
        want = self.fixed(vectors, [-8] * 24)
        for result in self.sums(3, [SMALL + "exponent = -8"], vectors, numbers=Numbers.FIXED):
            self.assertEqual(result.values, want)
            self.assertTrue(result.clamped)

    def test_exponents_that_are_agreed(self) -> None:
        vectors = [floats(rank, self.COUNT) for rank in range(3)]
        for vector in vectors:
            vector[128:192] = [0.0] * 64
        vectors[2][70] = math.inf
        vectors[0][1400] = 3e38
        rows = [SMALL, SMALL + 'operation = "max"\nexponent = 0']
        chunks = [[v[i : i + 64] for i in range(0, self.COUNT, 64)] for v in vectors]
        offers = [[numbers.block_exponent(c, 3) for c in member] for member in chunks]
        want = self.fixed(vectors, [max(column) for column in zip(*offers)])
        config = {"numbers": Numbers.FIXED, "exponent_row": 1}
        for result in self.sums(3, rows, vectors, **config):
            self.assertEqual(result.values, want)

    def test_f32_in_order_of_rank(self) -> None:
        for members in (1, 2, 4):
            vectors = [floats(rank, self.COUNT) for rank in range(members)]
            rows = [SMALL + 'element_type = "f32"\nsum_order = "rank"']
            want = reduce(lambda a, b: numbers.to_f32([x + y for x, y in zip(a, b)]), vectors)
            for result in self.sums(members, rows, vectors, numbers=Numbers.F32):
                self.assertEqual(result.values, want)

    def test_f32_in_order_of_arrival(self) -> None:
        vectors = [floats(rank, self.COUNT) for rank in range(2)]
        vectors[0][5], vectors[1][5] = math.inf, -math.inf
        rows = [SMALL + 'element_type = "f32"']
        # Two numbers have one order.
        want = numbers.encode_f32([x + y for x, y in zip(*vectors)])
        want = want[:20] + b"\x7f\xc0\0\0" + want[24:]
        for result in self.sums(2, rows, vectors, numbers=Numbers.F32):
            self.assertEqual(numbers.encode_f32(result.values), want)

    def test_bf16(self) -> None:
        vectors = [floats(rank, self.COUNT) for rank in range(2)]
        rows = [SMALL + 'element_type = "bf16"']
        halves = [numbers.decode_bf16(numbers.encode_bf16(vector)) for vector in vectors]
        added = numbers.to_f32([x + y for x, y in zip(*halves)])
        want = numbers.decode_bf16(numbers.encode_bf16(added))
        for result in self.sums(2, rows, vectors, numbers=Numbers.BF16):
            self.assertEqual(result.values, want)


class Refusals(unittest.TestCase):
    """What cannot work is an error that says why, within seconds."""

    def refusal(self, node: Node, rank: int = 0, **config: object) -> str:
        with self.assertRaises(LaneError) as refused:
            node.session(rank, **config).close()
        return str(refused.exception)

    def test_what_does_not_fit_the_box(self) -> None:
        timers = Timers(connect_timeout_ns=500 * MS, member_timeout_ns=1000 * MS)
        with Node(2, "elements = 256\nexponent = 0") as node:
            self.assertIn("does not know it", self.refusal(node, row=5, timers=timers))
            self.assertIn("[1] are missing", self.refusal(node, timers=timers))
            node.kill()
            self.assertIn("no word from the box", self.refusal(node, timers=timers))

    def test_a_lease_that_the_probe_was_too_short_for(self) -> None:
        with Node(1, "elements = 256\nexponent = 0") as node:
            self.assertIn("1056 bytes, the probe had 1000", self.refusal(node, probe_len=1000))

    def test_a_member_that_comes_back_ends_the_session_of_the_others(self) -> None:
        with Node(2, SMALL + "exponent = 0") as node:

            def work(rank: int) -> object:
                session = node.session(rank, timers=Timers(member_timeout_ns=2000 * MS))
                session.allreduce([1] * 640)
                if rank == 0:
                    with self.assertRaises(LaneError) as ended:
                        session.allreduce([1] * 640)
                    return str(ended.exception)
                session._close_sockets()
                with self.assertRaises(LaneError):
                    node.session(rank, timers=Timers(member_timeout_ns=1000 * MS))
                return None

            self.assertIn("ranks [1] began anew", together(2, work)[0])


if __name__ == "__main__":
    unittest.main()
