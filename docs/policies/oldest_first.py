#!/usr/bin/env python3
"""A policy for Weft: the oldest update first, whatever it takes; too old ones are dropped.

weft plan CASE.json --policy "exec:python3 docs/policies/oldest_first.py"
"""
import json
import sys


def plan(case):
    order, dropped = [], []
    for server in case["servers"]:
        mine = [u for u in case["updates"] if u["server"] == server["name"]]
        mine.sort(key=lambda u: (u["version"], u["size_bytes"], u["id"]))
        commits = 0
        for update in mine:
            # Delay of the i-th commit (from 0): version before it, less the update's own.
            if server["version"] + commits - update["version"] > server["tau_max"]:
                dropped.append({"update": update["id"], "reason": "too old to wait"})
            else:
                order.append(update["id"])
                commits += 1
    return {"order": order, "dropped": dropped}


for line in sys.stdin:
    print(json.dumps(plan(json.loads(line))), flush=True)
