"""Groups of this client and of the Rust one (`cargo build -p weft-client --examples`)."""

from __future__ import annotations

import math
import os
import re
import subprocess
import unittest
from pathlib import Path

from tests.node import MEMBER_PORT, NODE_PORT, PATIENCE_S, Node
from weft_client import Numbers, numbers

# What the example sums.
COUNT = 50_000


def program() -> Path:
    """The Rust client's example; the test is skipped where there is none."""
    target = os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parents[4] / "target")
    example = Path(target) / "debug" / "examples" / "allreduce"
    path = Path(os.environ.get("WEFT_ALLREDUCE", example))
    if not path.is_file():
        raise unittest.SkipTest(f"no {path}: `cargo build -p weft-client --examples` makes it")
    return path


def rust_worker(ip: str, rank: int) -> subprocess.Popen:
    """A Rust member of row 0."""
    local, box = f"{ip}:{MEMBER_PORT + 64 * rank}", f"{ip}:{NODE_PORT}"
    arguments = [program(), local, box, str(rank)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def read_by(text: str) -> float:
    """The sum that a Rust member shows: its element 7, in as few digits as an f32 needs."""
    found = re.search(r"gradient\[7\] is now (\S+)", text)
    return numbers.to_f32([float(found[1])])[0] if found else math.nan


class MixedGroups(unittest.TestCase):
    def sums(self, own: list[float], more: str = "") -> list[float]:
        """The sums of two Rust members and of `own`; the Rust ones have read the same."""
        row = 'exponent = -16\noverflow = "clamp"'
        with Node(3, row, more=more) as node:
            workers = [rust_worker(node.ip, rank) for rank in (0, 2)]
            with node.session(1, numbers=Numbers.FIXED) as session:
                values = session.allreduce(own).values
            for worker in workers:
                text, _ = worker.communicate(timeout=PATIENCE_S)
                self.assertEqual(worker.returncode, 0)
                self.assertEqual(read_by(text), values[7])
            return values

    def test_both_clients_sum_and_read_alike(self) -> None:
        theirs = self.sums([0.0] * COUNT)
        self.assertGreater(len(set(theirs)), 2)
        own = numbers.to_f32([index / 64 - 300 for index in range(COUNT)])
        want = [x + y for x, y in zip(theirs, own)]
        self.assertEqual(self.sums(own), want)
        # The same on a path that loses one datagram in ten.
        self.assertEqual(self.sums(own, "[faults]\nseed = 2\nloss = 0.1"), want)


if __name__ == "__main__":
    unittest.main()
