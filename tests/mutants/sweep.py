#!/usr/bin/env python3
"""Runs cargo-mutants over the areas of survivors.toml and holds what survives against its list.

    tests/mutants/sweep.py [--area NAME] [--file PATH] [--open] [--print] [-- ARGUMENT...]

A survivor that the list lacks is an error, and so is a listed one that did not survive. --area and
--file, which may be repeated, take a part of it, and --open takes what the list does not name as
swept, where the next sweep goes on; --print writes the survivors as entries of the list; what
follows -- goes to cargo-mutants, such as --shard 1/8 (then only survivors that the list lacks are
errors). Exit status: 0 all is well, 1 not, 2 wrong usage.

MUTANTS_DIR is where cargo-mutants writes (default: target/mutants).
"""

import argparse
import json
import resource
import subprocess
import sys
import tomllib

from tree import OUT, ROOT, copied, environment

# What cargo-mutants says when mutants survived or ran too long: the list judges, not it.
JUDGED = (0, 2, 3)
# Processor time of one process.
CPU_MAX_S = 120
# What a survivor is known by; `column` counts from the line's first character that is no space.
FIELDS = ("file", "function", "mutation", "line", "column")
REASONS = ("equivalent: ", "killed by ", "accepted: ")


def files_of(area):
    """The files of an area, without those of tests, in the order of the globs."""
    paths = [path for glob in area["files"] for path in sorted(ROOT.glob(glob))]
    return [str(path.relative_to(ROOT)) for path in paths if path.name != "tests.rs"]


def survivors(tree, area, files, further):
    """The mutants of an area that survive, by what they are; `None` when it could not be run."""
    out = OUT / area["name"]
    out.mkdir(parents=True, exist_ok=True)
    globs = [argument for file in files for argument in ("--file", file)]
    command = ["cargo-mutants", "mutants", "--in-place", "-d", tree, "-o", out]
    command += ["--no-shuffle", "--colors=never", *globs]
    # Most of the time goes into building: the tests of the library alone, which run once.
    profile = f"profile.mutants.package.{area['package']}.opt-level=0"
    command += ["--cargo-arg=--lib", f"--cargo-arg=--config={profile}"]
    command += ["--test-package", area["package"], *further, "--", "--", *area["tests"]]
    # A mutant may compute for ever: bounded by what it computes, so that a busy machine is none.
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_MAX_S, CPU_MAX_S))
    status = subprocess.run(command, cwd=tree, env=environment(), preexec_fn=limit).returncode
    if status not in JUDGED:
        print(f"{area['name']}: cargo-mutants ended with {status}", file=sys.stderr)
        return None
    outcomes = json.loads((out / "mutants.out" / "outcomes.json").read_text())["outcomes"]
    missed = [o["scenario"]["Mutant"] for o in outcomes if o["summary"] == "MissedMutant"]
    return {key(tree, mutant) for mutant in missed}


def key(tree, mutant):
    """File, function, mutation, the line and where in it: nothing that moves with other code."""
    file, start = mutant["file"], mutant["span"]["start"]
    line = (tree / file).read_text().splitlines()[start["line"] - 1]
    function = (mutant.get("function") or {}).get("function_name", "")
    # The name begins with file, line and column.
    mutation = mutant["name"].split(": ", 1)[-1]
    indent = len(line) - len(line.lstrip())
    return file, function, mutation, line.strip(), start["column"] - 1 - indent


def entry(found):
    """An entry of the list, without its reason."""
    fields = [f"{name} = {json.dumps(value)}" for name, value in zip(FIELDS, found)]
    return "\n".join(["[[survivor]]", *fields, 'reason = ""', ""])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[2].strip())
    parser.add_argument("--area", action="append", default=[])
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("further", nargs="*")
    options = parser.parse_args()
    book = tomllib.loads((ROOT / "tests/mutants/survivors.toml").read_text())
    areas = {area["name"]: area for area in book["area"]}
    unknown = set(options.area) - set(areas)
    if unknown:
        parser.error(f"no such area: {', '.join(unknown)}; there are {', '.join(areas)}")
    tree, is_whole, found, swept = copied(), True, set(), []
    for area in areas.values():
        done = area["swept"] if options.open else []
        files = [path for path in files_of(area) if path not in done]
        if options.file:
            files = [path for path in files if path in options.file]
        if not files or (options.area and area["name"] not in options.area):
            continue
        ours = survivors(tree, area, files, options.further)
        is_whole &= ours is not None
        found |= ours or set()
        swept += files if ours is not None else []
    if not swept and is_whole:
        if options.open and not options.file:
            print("nothing is open")
            return 0
        parser.error("no such file in these areas")
    for each in book.get("survivor", []):
        if not each["reason"].startswith(REASONS):
            parser.error(f"{each['mutation']}: the reason begins with one of {', '.join(REASONS)}")
    listed = {tuple(each[name] for name in FIELDS) for each in book.get("survivor", [])}
    new = sorted(found - listed)
    is_part = bool(options.further)
    gone = [] if is_part else sorted(k for k in listed - found if k[0] in swept)
    for each in new:
        print(entry(each) if options.print else f"survives and is not listed: {each}")
    for each in gone:
        print(f"listed and does not survive: {each}")
    print(f"{len(found)} survive in {', '.join(swept)}: {len(new)} not listed; {len(gone)} gone")
    return int(not is_whole or bool(new) or bool(gone))


if __name__ == "__main__":
    sys.exit(main())
