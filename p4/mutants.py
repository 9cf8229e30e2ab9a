#!/usr/bin/env python3
"""Breaks the guards of mutants.toml one by one, in a copy of the program, and runs the scenarios
that must then fail on the real switch.

    mutants.py [--check] [--jobs N] [NAME…]

A guard survives when its scenarios pass with it broken; one that does not compile proves nothing
and is an error. --check only looks whether each edit still fits its file, and each scenario is
there. Exit status: 0 all is well, 1 not, 3 compiler or switch are not on PATH.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "tests"))

import bmv2  # noqa: E402
import run  # noqa: E402
import scenarios  # noqa: E402


def edits_of(guard: dict) -> list[dict]:
    """A guard that stands twice is broken twice."""
    return guard.get("edits", [guard])


def fault_in(guard: dict) -> str | None:
    """Why the entry does not fit the sources, if it does not."""
    for edit in edits_of(guard):
        text = (HERE / edit["file"]).read_text(encoding="utf-8")
        count = text.count(edit["before"])
        if count != edit.get("times", 1):
            return f"`before` stands {count} times in {edit['file']}"
    for name in guard["scenarios"]:
        if name not in scenarios.ALL:
            return f"there is no scenario {name}"
        if guard.get("elements", 32) not in scenarios.SIZES[name]:
            return f"scenario {name} has not {guard['elements']} elements"
    return None


def tried(guard: dict) -> str:
    """Breaks a guard: "killed by …", or what is wrong."""
    elements = guard.get("elements", 32)
    with tempfile.TemporaryDirectory(prefix="weft-p4-mutant-") as folder:
        for source in HERE.glob("*.p4"):
            shutil.copy(source, folder)
        for edit in edits_of(guard):
            path = Path(folder) / edit["file"]
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(edit["before"], edit["after"]), encoding="utf-8")
        program = Path(folder) / f"weft-v1model-{elements}.json"
        done = subprocess.run(
            ["p4c-bm2-ss", "--std", "p4-16", f"-DELEMENTS={elements}", "weft.p4", "-o", program],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return f"BROKEN: {done.stderr.strip()[:200]}"
        for name in guard["scenarios"]:
            found = run.judge(name, elements, Path(folder), None)
            if not found:
                return f"SURVIVED {name}"
    return f"killed by {', '.join(guard['scenarios'])}"


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description="guards of the switch program, broken one by one")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    guards = tomllib.loads((HERE / "mutants.toml").read_text(encoding="utf-8"))["guard"]
    faults = [(guard["name"], fault) for guard in guards if (fault := fault_in(guard))]
    for name, fault in faults:
        print(f"{name}: {fault}")
    if args.check or faults:
        print(f"{len(guards)} guards, {len(faults)} do not fit")
        return int(bool(faults))
    missing = bmv2.programs_missing() + [p for p in ["p4c-bm2-ss"] if not shutil.which(p)]
    if missing:
        print(f"SKIPPED p4 mutants ({len(guards)}): not on PATH: {', '.join(missing)}")
        return 3
    chosen = [guard for guard in guards if not args.names or guard["name"] in args.names]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for guard, said in zip(chosen, pool.map(tried, chosen)):
            bad += not said.startswith("killed")
            print(f"{guard['name']}: {said}", flush=True)
    print(f"{len(chosen) - bad} guards of {len(chosen)} are held by a scenario")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
