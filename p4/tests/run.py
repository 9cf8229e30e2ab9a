"""Runs the scenarios on the real switch.

    run.py [--list] [--elements N] [--build DIR] [--golden DIR] [NAME…]

Exit status 0: all pass; 1: one failed; 3: the switch is not on PATH.
`--golden DIR` also writes tables, captures in and out, and versions, for an interpreter to replay.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import shutil
import sys
from pathlib import Path

import bmv2
import scenarios
from frames import show
from rig import Rig

HERE = Path(__file__).resolve().parent


def differences(rig: Rig, outcome: bmv2.Outcome) -> list[str]:
    """What came out otherwise than expected, one line each."""
    found = []
    if outcome.has_died:
        found.append("the switch has died")
    for port in bmv2.PORTS:
        wanted, got = rig.expected.get(port, []), outcome.out[port]
        for index in range(max(len(wanted), len(got))):
            one = wanted[index] if index < len(wanted) else None
            other = got[index] if index < len(got) else None
            if one != other:
                found.append(f"port {port} frame {index}:")
                found.append(f"    expected {show(one) if one else 'nothing'}")
                found.append(f"    got      {show(other) if other else 'nothing'}")
    if not outcome.has_died:
        for what in ("drops", "transitions", "progress"):
            wanted, got = getattr(rig, what), getattr(outcome, what)
            wanted = {key: count for key, count in wanted.items() if count}
            if wanted != got:
                found.append(f"{what}: expected {wanted}, got {got}")
    return found


def judge(name: str, elements: int, build: Path, golden: Path | None) -> list[str]:
    """Runs one scenario; what is wrong with it."""
    rig = scenarios.ALL[name](elements)
    program = build / f"weft-v1model-{elements}.json"
    try:
        outcome = bmv2.run(program, rig)
    except bmv2.Failed as error:
        return [str(error)]
    found = differences(rig, outcome)
    # Meters go by the time of day, which no interpreter knows.
    is_timed = any(entry.startswith("meter_") for entry in rig.entries)
    if golden and not found and not is_timed:
        keep(golden / f"{name}-{elements}", rig, outcome, program, elements)
    return found


def keep(folder: Path, rig: Rig, outcome: bmv2.Outcome, program: Path, elements: int) -> None:
    """Writes a golden pair."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.txt").write_text("\n".join(rig.entries) + "\n", encoding="utf-8")
    # The last frame only tells when the switch is done.
    sent = list(enumerate(rig.sent[:-1], start=1))
    for port in bmv2.PORTS:
        mine = [(ms, data) for ms, (at, data) in sent if at == port]
        if mine:
            (folder / f"p{port}_in.pcap").write_bytes(bmv2.FILE_HEADER + bmv2.records(mine))
        came = list(enumerate(outcome.out[port], start=1))
        if came:
            (folder / f"p{port}_out.pcap").write_bytes(bmv2.FILE_HEADER + bmv2.records(came))
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    lines = [f"bmv2 = \"{bmv2.version()}\"", f"elements = {elements}", f"json = \"{digest}\""]
    lines += ["", "[drops]", *(f"{name} = {n}" for name, n in sorted(outcome.drops.items()))]
    lines += ["", "[transitions]"]
    happened = sorted(outcome.transitions.items())
    lines += [f"\"{scope}.{name}\" = {n}" for (scope, name), n in happened]
    (folder / "about.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description="scenarios on the real switch")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--elements", type=int, action="append")
    parser.add_argument("--build", type=Path, default=HERE.parent / "build")
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--jobs", type=int, default=3)
    args = parser.parse_args()
    runs = [
        (name, elements)
        for name in args.names or scenarios.ALL
        for elements in args.elements or scenarios.SIZES[name]
        if elements in scenarios.SIZES[name]
    ]
    if args.list:
        print("\n".join(f"{name} {elements}" for name, elements in runs))
        return 0
    missing = bmv2.programs_missing()
    if missing:
        print(f"SKIPPED p4 scenarios ({len(runs)}): not on PATH: {', '.join(missing)}")
        return 3
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        futures = [pool.submit(judge, *run, args.build, args.golden) for run in runs]
        for (name, elements), future in zip(runs, futures):
            found = future.result()
            failed += bool(found)
            print(f"{'FAILED' if found else 'ok    '} {name} {elements}")
            for line in found[:12]:
                print(f"    {line}")
    print(f"{len(runs) - failed} passed, {failed} failed, on simple_switch {bmv2.version()}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
