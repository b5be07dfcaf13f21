#!/usr/bin/env python3
"""The first benchmark a newcomer runs: stock redis-benchmark on the same machine, default settings, fsynced SETs, beside redis-server with
`appendfsync always`; and one client beside two busy programs. Servers take turns; each figure is the median of the rounds.

    scripts/first_benchmark.py --neokv path/to/neokv [--rounds 5] [--loads 50x1 500x16] [--variant "one core=--num-shards 1" ...] [--memory]

Each variant is another neokv: a name, `=`, and its flags; a flag `--binary PATH` in it names another program. `pinned` rows give the servers the
first CPU and redis-benchmark the last.
"""

import argparse
import shlex
import statistics
import subprocess
import sys
import os

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from servers import Server  # noqa: E402


def benchmark(server, clients, seconds, cpu, pipeline=1, command="set"):
    """Requests per second, and the server's CPU in microseconds per request."""
    line = ["redis-benchmark", "-p", str(server.port), "-c", str(clients), "-P", str(pipeline), "-r", "1000000", "-d", "64", "-t", command,
            "--csv", "-n"]
    if cpu is not None:
        line = ["taskset", "-c", cpu] + line

    def run(requests):
        before = server.cpu_seconds()
        text = subprocess.run(line + [str(requests)], stdout=subprocess.PIPE, text=True, check=True).stdout
        rate = float(text.strip().splitlines()[-1].split(",")[1].strip('"'))
        return rate, (server.cpu_seconds() - before) * 1e6 / requests

    rate, _ = run(2000 if pipeline == 1 else 50_000)  # how many requests make the wanted time
    return run(max(2000, int(rate * seconds)))


class Busy:
    """Two loops at nice 19, as a build or a scan in the background."""

    def __enter__(self):
        loop = "while True: pass"
        self.loops = [subprocess.Popen(["nice", "-n", "19", sys.executable, "-c", loop]) for _ in range(2)]

    def __exit__(self, *_):
        for loop in self.loops:
            loop.kill()
            loop.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neokv", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--variant", action="append", default=[])
    parser.add_argument("--memory", action="store_true", help="the memory engine beside redis-server without a file")
    parser.add_argument("--rows", nargs="*", default=["machine", "pinned", "busy"])
    parser.add_argument("--loads", nargs="*", default=["50x1", "500x1", "50x16"], help="clients x pipeline")
    args = parser.parse_args()
    sync = None if args.memory else "always"
    variants = [("redis", None, []), ("neokv", args.neokv, [])]
    for variant in args.variant:
        name, flags = variant.split("=", 1)
        flags, binary = shlex.split(flags), args.neokv
        if "--binary" in flags:
            at = flags.index("--binary")
            binary = flags[at + 1]
            del flags[at:at + 2]
        variants.append((name, binary, flags))
    last = str(os.cpu_count() - 1)
    rows = []
    for kind in args.rows:
        loads = ["1x1"] if kind == "busy" else args.loads
        rows += [(kind, *map(int, load.split("x"))) for load in loads]
    figures = {(row, name): [] for row in rows for name, _, _ in variants}
    for number in range(args.rounds):
        for kind, clients, pipeline in rows:
            for name, binary, flags in variants:
                server = Server("redis" if binary is None else "neokv", neokv=binary, shards=None, extra=flags, sync=sync,
                                cores="0" if kind == "pinned" else None)
                with server:
                    cpu = last if kind == "pinned" else None
                    if kind == "busy":
                        with Busy():
                            figure = benchmark(server, clients, args.seconds, cpu, pipeline)
                    else:
                        figure = benchmark(server, clients, args.seconds, cpu, pipeline)
                figures[(kind, clients, pipeline), name].append(figure)
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
    print("| SET | " + " | ".join(name for name, _, _ in variants) + " |")
    print("|---" * (len(variants) + 1) + "|")
    for row in rows:
        kind, clients, pipeline = row
        cells = []
        base = statistics.median(rate for rate, _ in figures[row, "redis"])
        for name, _, _ in variants:
            rate = statistics.median(rate for rate, _ in figures[row, name])
            cpu = statistics.median(cpu for _, cpu in figures[row, name])
            cells.append(f"{rate:,.0f}/s ({rate / base:.2f} ×), {cpu:.1f} µs")
        where = {"machine": "whole machine", "pinned": "pinned", "busy": "beside two busy programs"}[kind]
        print(f"| {where}, {clients} clients, pipeline {pipeline} | " + " | ".join(cells) + " |")


main()
