#!/usr/bin/env python3
"""Runs the Redis 7.0 Tcl suite (Debian's source package) against a server, unit by unit.

External-server mode: the suite connects to a running server and never starts one. Every unit gets a fresh server,
because some tests leave settings behind. Spawn mode, for units whose tests need servers of their own: the suite starts
scripts/redis-server-wrapper instead of redis-server, in a copy of its own of the tests. The count per unit and the failing
tests are printed last.

    scripts/compat.py --neokv path/to/neokv                 all fitting units
    scripts/compat.py --server redis                        the same on stock redis-server, for comparison
    scripts/compat.py --neokv … --units type/list multi     some of them
    scripts/compat.py --neokv … --spawn --units acl auth    in spawn mode
    scripts/compat.py --server redis --all                  also the units of features that come later

What is left out, and why, is in docs/compat.md; single tests in scripts/compat-skip.txt.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
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

# Units that run in spawn mode.
SPAWNED = """
acl acl-v2 auth tls obuf-limits maxmemory limits networking client-eviction info shutdown querybuf
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


def base_port():
    """The suite's own control port is 32 below the base port; two runs at once must not share it. The suite also tries the port
    10000 above, so only the lower half of what the system gives is good."""
    return next(port for port in iter(free_port, None) if port < 55000) + 32


def filters(folder, unit, args, skips):
    """Arguments of the suite that leave out what does not fit."""
    if args.all:
        return []
    skipfile = os.path.join(folder, "skip")
    with open(skipfile, "w") as file:
        file.writelines(test + "\n" for test, _ in skips.get(unit, []))
    return ["--tags", " ".join(f"-{tag}" for tag in DENIED_TAGS), "--skipfile", skipfile]


def run_suite(command, tree, folder, outcome, args, environment, why_ended):
    """Runs the suite; its output. `why_ended` is asked meanwhile and ends it with a text."""
    started = time.time()
    with open(os.path.join(folder, "output"), "wb+") as output:
        suite = subprocess.Popen(command, cwd=tree, stdin=subprocess.DEVNULL, stdout=output, env=environment,
                                 stderr=subprocess.STDOUT, start_new_session=True)
        while suite.poll() is None:
            time.sleep(0.05)
            if time.time() - started > args.limit:
                outcome["note"] = f"stopped after {args.limit} s"
            else:
                outcome["note"] = why_ended()
            if outcome["note"]:
                time.sleep(0.5)
                os.killpg(suite.pid, 9)
                suite.wait()
        output.seek(0)
        text = ANSI.sub("", output.read().decode(errors="replace"))
    read_results(text, outcome)
    outcome["seconds"] = time.time() - started
    if args.verbose:
        print(text)


def new_outcome(unit):
    return {"unit": unit, "ok": 0, "failed": [], "skipped": 0, "note": "", "seconds": 0.0}


def run_unit(tree, unit, args, skips):
    """Runs one unit on a fresh server; counts, failures and why it ended early, if it did."""
    # The suite sends one command after the other: waiting for the disk each time would take hours.
    sync = "no" if args.engine == "rocksdb" else None
    server = Server(args.server, neokv=args.neokv, shards=args.shards, sync=sync)
    outcome = new_outcome(unit)
    with server:
        command = ["tclsh", "tests/test_helper.tcl", "--baseport", str(base_port()), "--host", "127.0.0.1", "--port", str(server.port),
                   "--single", f"unit/{unit}", "--durable", "--clients", "1"]
        command += filters(server.folder, unit, args, skips)
        run_suite(command, tree, server.folder, outcome, args, None, lambda: "" if server.alive() else "the server died")
        if outcome["note"] == "the server died":
            outcome["log"] = server.tail(40)
    return outcome


def spawn_unit(tree, unit, args, skips):
    """Runs one unit that starts servers itself, in a copy of the suite: two runs at once clean up each other's files."""
    outcome = new_outcome(f"{unit} (spawned)")
    with tempfile.TemporaryDirectory(prefix="neokv-compat-") as folder:
        for part in ("tests", "utils"):
            shutil.copytree(os.path.join(tree, part), os.path.join(folder, part), symlinks=True)
        os.mkdir(os.path.join(folder, "src"))
        programs = {"redis-cli": "/usr/bin/redis-cli", "redis-benchmark": "/usr/bin/redis-benchmark",
                    "redis-server": os.path.join(HERE, "redis-server-wrapper") if args.server == "neokv" else "/usr/bin/redis-server"}
        for name, path in programs.items():
            os.symlink(path, os.path.join(folder, "src", name))
        command = ["tclsh", "tests/test_helper.tcl", "--baseport", str(base_port()), "--portcount", "500",
                   "--single", f"unit/{unit}", "--durable", "--clients", "1", "--dont-clean"]
        if unit == "tls":
            command.append("--tls")
            make_certificates(folder)
        command += filters(folder, unit, args, skips)
        environment = dict(os.environ, NEOKV=args.neokv or "", NEOKV_COMPAT_ENGINE=args.engine, NEOKV_COMPAT_SHARDS=str(args.shards))
        run_suite(command, folder, folder, outcome, args, environment, lambda: "")
        end_servers(folder)
        if args.keep:
            kept = os.path.join(args.keep, unit.replace("/", "-"))
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept, symlinks=True)
    return outcome


def make_certificates(folder):
    """What the suite's own script makes, without the parameters for Diffie-Hellman, which take minutes and serve nobody."""
    os.mkdir(os.path.join(folder, "tests", "tls"))
    open(os.path.join(folder, "tests", "tls", "redis.dh"), "w").close()
    subprocess.run(["bash", "utils/gen-test-certs.sh"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def end_servers(folder):
    """Servers that the suite has left behind: those whose log is in this folder."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/fd/1").startswith(folder + "/"):
                os.kill(int(name), 9)
        except OSError:
            pass


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
    parser.add_argument("--spawn", action="store_true", help="only units in spawn mode")
    parser.add_argument("--keep", help="copy the folders of spawned units, with the logs of their servers, there")
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
    runs = []
    if not args.spawn:
        runs += [(unit, run_unit) for unit in args.units or FITTING + (LATER if args.all else [])]
    if args.spawn or not args.units:
        runs += [(unit, spawn_unit) for unit in args.units or SPAWNED]
    outcomes = []
    for unit, run in runs:
        print(f"== unit/{unit} …", end="", flush=True)
        outcome = run(tree, unit, args, skips)
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
    print(f"\n{'unit':<28}{'ok':>6}{'failed':>8}{'skipped':>9}  note ({args.server})")
    for outcome in outcomes:
        print(f"{outcome['unit']:<28}{outcome['ok']:>6}{len(outcome['failed']):>8}{outcome['skipped']:>9}"
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
