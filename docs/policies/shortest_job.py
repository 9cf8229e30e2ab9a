#!/usr/bin/env python3
"""A policy of jobs for `weft cluster --policy "exec:python3 docs/policies/shortest_job.py"`.

Shortest duration first among those that fit; nobody is stopped.
"""

import json
import sys

free, waiting, running, unplaced = 0, {}, {}, {}
for line in sys.stdin:
    question = json.loads(line)
    if "setting" in question:
        free = question["setting"]["gpus"]
    for delta in question["deltas"]:
        ((what, told),) = delta.items()
        if what == "arrived":
            waiting[told["job"]] = told
        elif what == "ended":
            free += running.pop(told["job"])["gpus"]
            waiting.update(unplaced)  # They may find a place now.
            unplaced.clear()
        elif what == "unplaced":
            unplaced[told["job"]] = running.pop(told["job"])
            free += unplaced[told["job"]]["gpus"]
    changes = []
    for name, job in sorted(waiting.items(), key=lambda item: item[1]["duration_ns"]):
        if job["gpus"] <= free:
            free -= job["gpus"]
            running[name] = waiting.pop(name)
            changes.append({"job": name, "gpus": job["gpus"]})
    print(json.dumps({"changes": changes}), flush=True)
