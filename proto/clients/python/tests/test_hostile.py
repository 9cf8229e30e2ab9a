"""A hostile client (tests/attack/hostile.py) against a box with an honest job beside it.

`WEFT_ATTACK_SCALE=20` lies and floods twenty times as much. Forged addresses need root.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import unittest
from collections.abc import Callable
from pathlib import Path

from tests.node import MEMBER_PORT, METRICS_PORT, NODE_PORT, PATIENCE_S, Node, together
from tests.test_live import SMALL, integer_sums, integers
from tests.test_mixed import read_by, rust_worker

HOSTILE = Path(__file__).resolve().parents[4] / "tests" / "attack" / "hostile.py"
HOSTILE_PORT = 28000
JOBS = (
    "[[job]]\nid = 1\n[[row]]\nrow = 1\njob = 1\n"
    f'members = ["{{ip}}:{HOSTILE_PORT}", "{{ip}}:{HOSTILE_PORT + 64}"]\n'
    f"{SMALL}exponent = 0\nchunks_max = 4096\n"
)


class Attack(unittest.TestCase):
    def hostile(self, node: Node, shards: int) -> None:
        """The attack. The box is killed and started again in its middle."""
        ports = [str(port) for port in (MEMBER_PORT, HOSTILE_PORT)]
        scale = os.environ.get("WEFT_ATTACK_SCALE", "1")
        metrics = f"{node.ip}:{METRICS_PORT}"
        with subprocess.Popen(
            [sys.executable, HOSTILE, node.ip, str(NODE_PORT), metrics, *ports, str(shards), scale],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
            text=True,
        ) as child:
            assert child.stdin and child.stdout
            for line in child.stdout:
                print(line, end="")
                if line == "RESTART\n":
                    node.kill()
                    node.start()
                    child.stdin.write("restarted\n")
                    child.stdin.flush()
        self.assertEqual(child.returncode, 0, "not all is counted as it should be")

    def beside(self, node: Node, shards: int, members: int, work: Callable) -> list:
        """Runs `work(rank, over)` for each honest member until the attack is over."""
        over = threading.Event()

        def attack() -> None:
            try:
                self.hostile(node, shards)
            finally:
                over.set()

        scale = int(os.environ.get("WEFT_ATTACK_SCALE", "1"))
        return together(
            members + 1,
            lambda rank: attack() if rank == members else work(rank, over),
            patience_s=PATIENCE_S * scale * 2,
        )

    def test_two_rust_workers_beside_a_hostile_job(self) -> None:
        def work(_: int, over: threading.Event) -> int:
            sessions = 0
            while not over.is_set() or not sessions:
                workers = [rust_worker(node.ip, rank) for rank in (0, 1)]
                for worker in workers:
                    text, _ = worker.communicate(timeout=PATIENCE_S)
                    self.assertEqual(worker.returncode, 0, text)
                    self.assertEqual(read_by(text), 1.75)
                sessions += 1
            return sessions

        with Node(2, 'exponent = -16\noverflow = "clamp"', jobs=JOBS) as node:
            print(f"{self.beside(node, 1, 1, work)[0]} honest sessions beside it")

    def test_two_lanes_of_which_every_sum_is_checked(self) -> None:
        def work(rank: int, over: threading.Event) -> int:
            count = 64 * 5
            with node.session(rank) as session:
                for round_ in range(1_000_000):
                    # The last element says that the attack is over.
                    own = [*integers(rank, round_, count), int(over.is_set())]
                    *values, ends = session.allreduce(own).values
                    self.assertEqual(values, integer_sums(2, round_, count))
                    if ends:
                        return round_
            return 0

        with Node(2, SMALL + "exponent = 0", shards=2, jobs=JOBS) as node:
            rounds = self.beside(node, 2, 2, work)[:2]
            print(f"{rounds} honest rounds beside it")
            self.assertGreater(rounds[0], 10)


if __name__ == "__main__":
    unittest.main()
