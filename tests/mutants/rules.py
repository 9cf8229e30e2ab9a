#!/usr/bin/env python3
"""Breaks the rules of rules.toml one by one, in a copy of the tree, and runs the tests that must
then fail.

    tests/mutants/rules.py [--check] [NAME...]

A rule survives when its tests pass with it broken; one that does not build, or whose tests also
fail with it whole, proves nothing and is an error. --check only looks whether each edit still fits
its file. Exit status: 0 all is well, 1 not, 2 wrong usage.

CARGO is the cargo to run (default: cargo), MUTANTS_DIR the folder of the copy (default:
target/mutants).
"""

import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib

from tree import ROOT, copied, environment

CARGO = os.environ.get("CARGO", "cargo")
# A mutant may make a test wait for what never comes.
TIMEOUT_S = 1200


def broken(rule, text):
    """The file's text with the rule broken; a message when the edit does not fit."""
    count = text.count(rule["before"])
    if count != 1:
        raise SystemExit(f"{rule['name']}: `before` stands {count} times in {rule['file']}")
    return text.replace(rule["before"], rule["after"])


def cargo(tree, rule, tests):
    """Exit status and output of `cargo test` of the rule's package; 124 when it takes too long."""
    package = rule["package"]
    # Most of the time goes into optimising what is run once.
    profile = f"profile.dev.package.{package}.opt-level=0"
    target = shlex.split(rule.get("target", "--lib"))
    command = [CARGO, "test", "-q", "--config", profile, "-p", package, *target, "--", *tests]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # In a session of its own, so that the test program ends with cargo.
    done = subprocess.Popen(command, cwd=tree, env=environment(), start_new_session=True, **pipes)
    try:
        output, _ = done.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        done.communicate()
        return 124, "it took too long"
    return done.returncode, output


def failed(output):
    """The names of tests that failed."""
    lines = [line for line in output.splitlines() if line.startswith("---- ")]
    return [line.split()[1] for line in lines]


def verdict(tree, rule):
    """How a tree with the rule broken fares: a word, and what shows it."""
    status, output = cargo(tree, rule, [rule["tests"]])
    if status == 0:
        return "survives", f"tests {rule['tests']!r} of {rule['package']} pass"
    if "could not compile" in output:
        return "does not build", output[-2000:]
    names = failed(output)
    # A test that aborts the program is named by nobody.
    return "killed", ", ".join(names) or output.strip().splitlines()[-1]


def whole(tree, rules):
    """True when there are such tests and they pass with all rules whole."""
    is_whole = True
    groups = {}
    for rule in rules:
        groups.setdefault((rule["package"], rule.get("target", "--lib")), []).append(rule)
    for (package, target), ours in groups.items():
        status, output = cargo(tree, ours[0], sorted({rule["tests"] for rule in ours}))
        if status != 0 or "running 0 tests" in output:
            is_whole = False
            print(f"{package} {target}: fails with nothing broken\n{output[-2000:]}", flush=True)
    return is_whole


def main(arguments):
    rules = tomllib.loads((ROOT / "tests/mutants/rules.toml").read_text())["rule"]
    names = [argument for argument in arguments if not argument.startswith("-")]
    unknown = set(names) - {rule["name"] for rule in rules}
    if unknown or set(arguments) - set(names) - {"--check"}:
        print(f"usage: {__doc__.splitlines()[3].strip()}; unknown: {unknown}", file=sys.stderr)
        return 2
    rules = [rule for rule in rules if not names or rule["name"] in names]
    mutants = [(rule, broken(rule, (ROOT / rule["file"]).read_text())) for rule in rules]
    if "--check" in arguments:
        print(f"mutants: {len(mutants)} edits fit")
        return 0
    tree = copied()
    if not whole(tree, rules):
        return 1
    bad = 0
    for rule, text in mutants:
        file = tree / rule["file"]
        began = time.monotonic()
        try:
            file.write_text(text)
            word, shown = verdict(tree, rule)
        finally:
            file.write_text((ROOT / rule["file"]).read_text())
        bad += word != "killed"
        took = time.monotonic() - began
        print(f"{word}: {rule['name']} ({rule['rule']}; {took:.0f} s): {shown}", flush=True)
    print(f"{len(mutants)} rules broken, {len(mutants) - bad} noticed, {bad} not")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
