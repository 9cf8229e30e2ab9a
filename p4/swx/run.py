"""Runs the scenarios of p4/tests on DPDK's SWX pipeline.

    run.py [--elements N] [--build DIR] [--table] [NAME…]

`--table` prints the rows of docs/p4-targets.md. Exit status 0: all pass; 1: one failed; 3: the
pipeline is not here.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import pipeline
from tables import Refused

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import bmv2  # noqa: E402
import scenarios  # noqa: E402
from rig import REASONS, WHOLE, WINDOWED, Rig  # noqa: E402


def tests():
    """The tests' own run.py, which judges what came out."""
    found = importlib.util.spec_from_file_location("weft_tests", HERE.parent / "tests/run.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def enter(target: pipeline.Pipeline, lines: list[str]) -> None:
    """The entries of simple_switch_CLI's commands."""
    nodes, groups = [], {}
    for line in lines:
        words = line.split()
        if words[0] == "table_add":
            cut = words.index("=>")
            target.write("insert", words[1], words[2], words[3:cut], words[cut + 1 :])
        elif words[0] == "mc_mgrp_create":
            groups[int(words[1])] = []
        elif words[0] == "mc_node_create":
            nodes.append((int(words[2]), int(words[1])))
        elif words[0] == "mc_node_associate":
            groups[int(words[1])].append(nodes[int(words[2])])
        elif words[0] == "meter_set_rates":
            # Bytes in a microsecond there; a byte a second is the least here.
            rate, burst = words[3].split(":")
            target.meter(words[1], int(words[2]), max(1, round(float(rate) * 1e6)), int(burst))
        else:
            raise Refused(f"the target has no {words[0]}")
    for number, members in groups.items():
        target.group(number, members)


def outcome_of(spec: Path, rig: Rig) -> bmv2.Outcome:
    """Runs the frames of a rig through the compiled program."""
    outcome = bmv2.Outcome()
    outcome.out = {port: [] for port in bmv2.PORTS}
    target = pipeline.Pipeline(spec, rig.elements)
    try:
        enter(target, rig.entries)
        for port, data in filter(lambda sent: sent[1], rig.sent):
            for at, came in target.frame(port, data):
                outcome.out.setdefault(at, []).append(came)
        read_counters(target, rig, outcome)
    finally:
        outcome.has_died = target.process.poll() is not None
        target.close()
    return outcome


def read_counters(target: pipeline.Pipeline, rig: Rig, outcome: bmv2.Outcome) -> None:
    """Reads the registers that count."""
    scopes = sorted({scope for scope, _ in rig.transitions} | {0})
    wanted = [(outcome.drops, name, "drops", index) for index, name in enumerate(REASONS)]
    wanted += [
        (outcome.transitions, (scope, name), "transitions", scope * 32 + code)
        for scope in scopes
        for name, code in (WINDOWED | WHOLE).items()
    ]
    wanted += [(outcome.progress, index, "progress", index) for index in rig.progress]
    for where, key, name, index in wanted:
        count = target.register(name, index)
        if count:
            where[key] = count


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--elements", type=int, action="append")
    parser.add_argument("--build", type=Path, default=HERE.parent / "build")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    runs = [
        (name, elements)
        for name in args.names or scenarios.ALL
        for elements in args.elements or scenarios.SIZES[name]
        if elements in scenarios.SIZES[name]
    ]
    missing = pipeline.missing()
    if missing:
        print(f"SKIPPED SWX scenarios ({len(runs)}): not here: {', '.join(missing)}")
        return 3
    judge, verdicts = tests(), []
    for name, elements in runs:
        spec = args.build / f"weft-swx-{elements}.spec"
        rig = scenarios.ALL[name](elements)
        # A port of the target has no frame without bytes, which elsewhere is refused for its length.
        rig.dropped("length", -sum(not data for _, data in rig.sent))
        if not spec.is_file():
            found, verdict = [f"no program of {elements} elements"], "refused"
        else:
            try:
                found = judge.differences(rig, outcome_of(spec, rig))
                verdict = "FAILED" if found else "ok"
            except Refused as error:
                found, verdict = [str(error)], "refused"
            except pipeline.Failed as error:
                found, verdict = [str(error)], "FAILED"
        verdicts.append(verdict)
        if args.table:
            print(f"| {name} | {elements} | {verdict} | {found[0] if found else ''} |", flush=True)
        else:
            print(f"{verdict:7} {name} {elements}", *found[:12], sep="\n    ", flush=True)
    passed, failed, refused = (verdicts.count(verdict) for verdict in ("ok", "FAILED", "refused"))
    print(f"{passed} passed, {failed} failed, {refused} refused, on DPDK's SWX pipeline")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
