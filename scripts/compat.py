#!/usr/bin/env python3
"""Runs the Redis 7.0 Tcl suite (Debian's source package) against a server, unit by unit.

External-server mode: the suite connects to a running server and never starts one. Every unit gets a fresh server,
because some tests leave settings behind. The count per unit and the failing tests are printed last.

    scripts/compat.py --neokv path/to/neokv                 all fitting units
    scripts/compat.py --server redis                        the same on stock redis-server, for comparison
    scripts/compat.py --neokv … --units type/list multi     some of them
    scripts/compat.py --server redis --all                  also the units of features that come later

What is left out, and why, is in docs/compat.md; single tests in scripts/compat-skip.txt.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from servers import Server, free_port  # noqa: E402

# Units of what is implemented. Those whose every test is marked external:skip in the suite are not listed.
FITTING = """
printver protocol keyspace scan info-command type/string type/incr type/list type/list-2 type/list-3 type/set
type/zset type/hash sort expire other multi quit latency-monitor slowlog introspection introspection-2 bitops
bitfield lazyfree pause querybuf replybufsize
""".split()

# Units of features that come with later issues.
LATER = """
dump type/stream type/stream-cgroups pubsub scripting functions geo hyperloglog tracking violations
""".split()

DENIED_TAGS = ["needs:repl", "repl", "scripting", "stream", "cluster", "large-memory"]

ANSI = re.compile(r"\x1b\[[0-9;]*m")
RESULT = re.compile(r"^\[(ok|err|skip|ignore|exception|timeout)\]:? ?(.*)")


def skipped_tests(shards):
    """unit -> [(test, reason)] of tests that need what comes later, or one shard."""
    skips = {}
    with open(os.path.join(HERE, "compat-skip.txt")) as file:
        for line in file:
            line = line.rstrip("\n")
            if line and not line.startswith("#"):
                unit, test, reason = (part.strip() for part in line.split("\t"))
                if reason.startswith("several shards:") and shards == 1:
                    continue
                skips.setdefault(unit, []).append((test, reason))
    return skips


def run_unit(tree, unit, args, skips):
    """Runs one unit on a fresh server; counts, failures and why it ended early, if it did."""
    # The suite sends one command after the other: waiting for the disk each time would take hours.
    sync = "no" if args.engine == "rocksdb" else None
    server = Server(args.server, neokv=args.neokv, shards=args.shards, sync=sync)
    outcome = {"unit": unit, "ok": 0, "failed": [], "skipped": 0, "note": "", "seconds": 0.0}
    started = time.time()
    with server:
        # The suite's own control port is 32 below the base port; two runs at once must not share it. The suite also
        # tries the port 10000 above, so only the lower half of what the system gives is good.
        base_port = next(port for port in iter(free_port, None) if port < 55000) + 32
        command = ["tclsh", "tests/test_helper.tcl", "--baseport", str(base_port), "--host", "127.0.0.1", "--port", str(server.port),
                   "--single", f"unit/{unit}", "--durable", "--clients", "1"]
        if not args.all:
            command += ["--tags", " ".join(f"-{tag}" for tag in DENIED_TAGS)]
            skipfile = os.path.join(server.folder, "skip")
            with open(skipfile, "w") as file:
                file.writelines(test + "\n" for test, _ in skips.get(unit, []))
            command += ["--skipfile", skipfile]
        with open(os.path.join(server.folder, "output"), "wb+") as output:
            suite = subprocess.Popen(command, cwd=tree, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=subprocess.STDOUT, start_new_session=True)
            while suite.poll() is None:
                time.sleep(0.05)
                if time.time() - started > args.limit:
                    outcome["note"] = f"stopped after {args.limit} s"
                elif not server.alive():
                    outcome["note"] = "the server died"
                    time.sleep(0.5)
                else:
                    continue
                os.killpg(suite.pid, 9)
                suite.wait()
            output.seek(0)
            text = ANSI.sub("", output.read().decode(errors="replace"))
        read_results(text, outcome)
        if outcome["note"] == "the server died":
            outcome["log"] = server.tail(40)
    outcome["seconds"] = time.time() - started
    if args.verbose:
        print(text)
    return outcome


def read_results(text, outcome):
    last = ""
    for line in text.splitlines():
        match = RESULT.match(line)
        if not match:
            if line.startswith("[testing]") or line.startswith("Testing "):
                last = line
            continue
        kind, rest = match.groups()
        if kind == "ok":
            outcome["ok"] += 1
        elif kind in ("skip", "ignore"):
            outcome["skipped"] += 1
        elif kind == "err":
            outcome["failed"].append(re.sub(r" in tests/unit/\S+$", "", rest).strip())
        else:
            outcome["note"] = outcome["note"] or f"{kind}: {rest} {last}".strip()
    if not outcome["note"] and "Test Summary" not in text and "All tests passed" not in text \
            and "!!! WARNING" not in text:
        outcome["note"] = "ended early: " + " | ".join(text.strip().splitlines()[-3:])[:300]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=["neokv", "redis"], default="neokv")
    parser.add_argument("--neokv", help="path of the neokv binary")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--engine", choices=["memory", "rocksdb"], default="memory", help="of neokv")
    parser.add_argument("--units", nargs="*", help="without the leading unit/")
    parser.add_argument("--all", action="store_true", help="also what comes with later issues")
    parser.add_argument("--limit", type=int, default=300, help="seconds per unit")
    parser.add_argument("--json", help="also write the results there")
    parser.add_argument("--verbose", action="store_true", help="print the suite's output")
    args = parser.parse_args()
    if args.server == "neokv" and not args.neokv:
        parser.error("--neokv is missing")
    if args.neokv:
        args.neokv = os.path.abspath(args.neokv)

    tree = subprocess.run([os.path.join(HERE, "redis-source")], stdout=subprocess.PIPE, check=True,
                          text=True).stdout.strip()
    for tool in ("redis-cli", "redis-benchmark"):
        link = os.path.join(tree, "src", tool)
        if not os.path.exists(link):
            os.symlink(f"/usr/bin/{tool}", link)

    skips = skipped_tests(args.shards)
    units = args.units or FITTING + (LATER if args.all else [])
    outcomes = []
    for unit in units:
        print(f"== unit/{unit} …", end="", flush=True)
        outcome = run_unit(tree, unit, args, skips)
        outcomes.append(outcome)
        print(f" {outcome['ok']} ok, {len(outcome['failed'])} failed"
              f"{', ' + outcome['note'] if outcome['note'] else ''} ({outcome['seconds']:.0f} s)")

    print("\nFailing tests:")
    for outcome in outcomes:
        for name in outcome["failed"]:
            print(f"  {outcome['unit']}: {name}")
        if outcome["note"]:
            print(f"  {outcome['unit']}: {outcome['note']}")
        if outcome.get("log"):
            print(outcome["log"])
    print(f"\n{'unit':<22}{'ok':>6}{'failed':>8}{'skipped':>9}  note ({args.server})")
    for outcome in outcomes:
        print(f"{outcome['unit']:<22}{outcome['ok']:>6}{len(outcome['failed']):>8}{outcome['skipped']:>9}"
              f"  {outcome['note']}")
    failed = sum(len(o["failed"]) for o in outcomes)
    broken = [o for o in outcomes if o["note"]]
    print(f"{len(outcomes)} units: {sum(o['ok'] for o in outcomes)} passed, {failed} failed, "
          f"{len(broken)} units ended early")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(outcomes, file, indent=1)
    return 1 if failed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
