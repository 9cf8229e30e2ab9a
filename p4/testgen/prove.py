#!/usr/bin/env python3
"""Has p4testgen look for a frame, tables and memory that break what invariants/proof.p4 asserts.

    prove.py [--seconds N] [--mutants]

It walks all paths of one pass through the real stages. Memory is arbitrary, but for what a pass is
to keep; so what a pass keeps always holds. Other than the real thing: one lane, of all that are one
text; a frame that classify.p4 let pass, whole or without its vector; checksums right, meters green,
no egress, which touches no memory. `--mutants` breaks a guard at a time: each has to be found.

Exit status 0: nothing breaks it (each mutant does); 1: something does (a mutant does not); 2: not
all paths were walked; 3: p4testgen is not on PATH.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMAND = [
    "p4testgen", "--target", "bmv2", "--arch", "v1model", "--std", "p4-16", "-DELEMENTS=1",
    "--test-backend", "STF", "--seed", "1", "--assertion-mode", "--strict",
    "--packet-size-range", "0:4096", "--port-ranges", "0:3", "--out-dir", "out",
]  # fmt: skip
# An element that nobody sent: it is what an earlier frame left there.
STALE = ("next_step.p4", "hdr.vec.setValid();",
         "hdr.vec.setValid(); hdr.vec.e00 = meta.memory.stale;")
MUTANTS = [
    ("member.p4", "REFUSE_IF(!hdr.vec.isValid(), REASON_LENGTH)", ""),
    ("bitmap.p4", "if (meta.bank_epoch != meta.lease_epoch) {\n            meta.bank_state",
     "if (false) {\n            meta.bank_state"),
    ("bitmap.p4", "meta.bank_members & hdr.weft.members != 0", "false"),
    ("bitmap.p4", "if (meta.bank_epoch != meta.lease_epoch) {\n                meta.seen",
     "if (true) {\n                meta.seen"),
    ("next_step.p4", "meta.writes_bank == 1 && meta.bank_members == meta.mask",
     "meta.writes_bank == 1 && meta.bank_members & meta.mask != 0"),
    ("next_step.p4", "meta.bank_members == meta.mask && meta.bank_credit == 1",
     "meta.bank_credit == 1"),
    ("next_step.p4", "meta.keep = 0;", "meta.keep = 0xffffffff;"),
    ("weft.p4", "meta.index >= BANKS || meta.other >= BANKS", "false"),
    ("member.p4", "REFUSE_IF(hdr.weft.chunk >= meta.chunks, REASON_CHUNK_OUT_OF_RANGE)", ""),
    ("identity.p4", "hdr.weft.chunk & meta.window != 0", "hdr.weft.chunk != 0"),
]  # fmt: skip


def changed(folder: Path, file: str, before: str, after: str) -> None:
    """Edits a copied source; the first place counts, and there has to be one."""
    text = (folder / file).read_text(encoding="utf-8")
    if before not in text:
        sys.exit(f"prove.py: {file} has no {before!r}")
    (folder / file).write_text(text.replace(before, after, 1), encoding="utf-8")


def walk(include: str, seconds: int, mutant: tuple[str, str, str] | None) -> list[str] | None:
    """What breaks an assertion, or None where not all paths were walked."""
    with tempfile.TemporaryDirectory(prefix="weft-p4-prove-") as name:
        folder = Path(name)
        for source in [*HERE.parent.glob("*.p4"), *HERE.glob("invariants/*.p4")]:
            shutil.copy(source, folder)
        changed(folder, *STALE)
        if mutant:
            changed(folder, *mutant)
        tests = ["--max-tests", "1" if mutant else "4"]
        command = ["timeout", str(seconds), *COMMAND, *tests, "-I", include, "proof.p4"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        found = []
        for path in sorted(folder.glob("out/*.stf")):
            text = path.read_text(encoding="utf-8")
            broken = re.findall(r"Assert condition violated: (.*)", text)
            found += broken[-1:] or [text[:400]]
        if found or done.returncode == 0:
            return found
        if done.returncode != 124:
            sys.exit(f"p4testgen failed: {(done.stdout + done.stderr)[-2000:]}")
        return None


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description="invariants by p4testgen")
    parser.add_argument("--seconds", type=int, default=300, help="for each walk")
    parser.add_argument("--mutants", action="store_true", help="break guards instead")
    args = parser.parse_args()
    program = shutil.which("p4testgen")
    if not program:
        print("SKIPPED invariants: p4testgen is not on PATH")
        return 3
    guesses = [Path(program).resolve().parents[1] / "share/p4c/p4include",
               Path("/usr/local/share/p4c/p4include")]
    include = next((str(path) for path in guesses if path.is_dir()), "p4include")
    status = 0
    for mutant in MUTANTS if args.mutants else [None]:
        found = walk(include, args.seconds, mutant)
        what = f"{mutant[0]}: {mutant[1]!r}" if mutant else "the program"
        if found is None:
            print(f"UNKNOWN {what}: not all paths within {args.seconds} s", flush=True)
            status = max(status, 2)
            continue
        said = "; ".join(found) or "nothing breaks it"
        is_right = bool(found) == bool(mutant)
        status = status if is_right else 1
        print(f"{'ok' if is_right else 'FAILED'} {what}: {said}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
