"""The copy of the tree in which code is broken: at one place, so that what was built there serves
again."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = Path(os.environ.get("MUTANTS_DIR", ROOT / "target" / "mutants"))


def copied():
    """Makes the copy like the tree, but for what git ignores, and returns where it is. Unchanged
    files keep their times."""
    to = OUT / "tree"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout.split(b"\0")
    files = {name for name in map(os.fsdecode, names) if name and (ROOT / name).is_file()}
    for name in files:
        source, target = ROOT / name, to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copy(source, target)
    for old in to.rglob("*"):
        if old.is_file() and str(old.relative_to(to)) not in files:
            old.unlink()
    return to


def environment():
    """The environment of builds in the copy."""
    environment = dict(os.environ)
    environment.setdefault("CARGO_TARGET_DIR", str(OUT / "target"))
    return environment
