"""Runs the vectors that p4testgen predicted (testgen/vectors.toml) on the real switch, each on a
switch of its own.

    testgen.py [NAME…]

Exit status 0: all pass; 1: one failed; 3: the switch is not on PATH.
"""

from __future__ import annotations

import concurrent.futures
import sys
import tomllib
from pathlib import Path

import bmv2
from rig import REASONS, WHOLE, WINDOWED, Rig
from run import differences

P4 = Path(__file__).resolve().parent.parent
PROGRAM = P4 / "build" / "weft-v1model-32.json"
TRANSITIONS = {code: name for name, code in (WINDOWED | WHOLE).items()}


def rig_of(vector: dict) -> Rig:
    """The vector as a scenario."""
    rig = Rig()
    for entry in vector["entries"]:
        # What members and servers miss; simple_switch_CLI cannot tell the two apart.
        if entry["action"] == "no_peer":
            continue
        rig.add(entry["table"], entry["action"], [value for _, value in entry["keys"]],
                [value for _, value in entry["params"]])
    rig.send(vector["port"], bytes.fromhex(vector["frame"]))
    for port, data in vector["out"]:
        rig.expect(port, bytes.fromhex(data))
    for reason in vector["drops"]:
        rig.dropped(REASONS[reason])
    for cell in vector["transitions"]:
        rig.happened(TRANSITIONS[cell % 32], scope=cell // 32)
    return rig


def judge(vector: dict) -> list[str]:
    """Runs one; what came otherwise than predicted."""
    rig = rig_of(vector)
    try:
        return differences(rig, bmv2.run(PROGRAM, rig))
    except bmv2.Failed as error:
        return [str(error)]


def main() -> int:
    """See above."""
    text = (P4 / "testgen" / "vectors.toml").read_text(encoding="utf-8")
    vectors = tomllib.loads(text)["vector"]
    vectors = [one for one in vectors if not sys.argv[1:] or one["name"] in sys.argv[1:]]
    missing = bmv2.programs_missing()
    if missing:
        print(f"SKIPPED p4testgen vectors ({len(vectors)}): not on PATH: {', '.join(missing)}")
        return 3
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for vector, found in zip(vectors, pool.map(judge, vectors)):
            failed += bool(found)
            for line in [f"FAILED {vector['name']}", *found[:8]] if found else []:
                print(line, flush=True)
    print(f"{len(vectors) - failed} vectors passed, {failed} failed")
    return int(failed > 0 or not vectors)


if __name__ == "__main__":
    sys.exit(main())
