#!/usr/bin/env python3
"""Several neokv programs side by side: CPU per operation and throughput of the same commands, in turns.

    scripts/compare.py --bursts PATH before=PATH after=PATH [more=PATH ...] [--rounds 5] [--engine memory durable] [--only SET/16 ...]

The first program is the one that others are compared with. Every server runs one core on CPU 0 and the load generator (`bursts`,
crates/load) on the last CPU. All servers of an engine are up, one at a time has something to do, and its background work is waited
for: flushes and compactions are in its CPU. A figure is the median of the rounds; a ratio is the median of the ratios of each round,
because what disturbs this machine disturbs neighbours in time alike.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench_durable import KEYS, VALUE, quiet  # noqa: E402
from servers import Server  # noqa: E402

# name -> (range of random numbers, command)
COMMANDS = {
    "GET": (KEYS, ["GET", "key:__rand_int__"]),
    "SET": (KEYS, ["SET", "key:__rand_int__", VALUE]),
    "INCR": (KEYS, ["INCR", "counter:__rand_int__"]),
    "HSET": (100_000, ["HSET", "hash", "field:__rand_int__", VALUE]),
    "ZADD": (100_000, ["ZADD", "zset", "__rand_int__", "member:__rand_int__"]),
    "LPUSH": (1, ["LPUSH", "list", "element"]),
    "MSET": (KEYS, ["MSET"] + [word for n in range(10) for word in (f"{n}:__rand_int__", VALUE)]),
}
# engine -> rows: command, pipeline, clients
ROWS = {
    "memory": [(name, pipeline, 50) for name in ("GET", "SET", "INCR", "HSET", "ZADD", "MSET") for pipeline in (1, 16, 64)],
    "durable": [(name, pipeline, 50) for name in ("SET", "INCR", "HSET", "ZADD", "GET") for pipeline in (1, 16)] + [("SET", 1, 500)],
}


def measure(server, bursts, seconds, name, pipeline, clients):
    """Operations per second, and microseconds of CPU per operation until the server is quiet again."""
    space, command = COMMANDS[name]
    line = ["taskset", "-c", str(os.cpu_count() - 1), bursts, "--address", f"127.0.0.1:{server.port}", "--clients", str(clients),
            "--pipeline", str(pipeline), "--range", str(space), "--seconds", str(seconds), "--warm", "0.1",
            "--pids", str(server.process.pid), "--"] + command
    output = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout
    run = json.loads(output)
    if run["errors"] or not server.alive():
        raise SystemExit(f"{name}: {run['errors']} errors, {run['first_error']}\n{server.tail()}")
    quiet(server)
    return run["rps"], (server.cpu_seconds() - run["servers"][0]["began"]) / run["all_operations"] * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bursts", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--engine", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--only", nargs="*", help="rows as COMMAND/PIPELINE, as SET/16")
    parser.add_argument("programs", nargs="+", metavar="NAME=PATH")
    args = parser.parse_args()
    programs = dict(program.split("=", 1) for program in args.programs)
    names = list(programs)
    ratios = {name: [] for name in names}
    print("| | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for engine in args.engine:
        servers = {name: Server("neokv", neokv=path, cores="0", sync="always" if engine == "durable" else None)
                   for name, path in programs.items()}
        try:
            for server in servers.values():
                server.start()
            for command, pipeline, clients in ROWS[engine]:
                if args.only and f"{command}/{pipeline}" not in args.only:
                    continue
                runs = {name: [] for name in names}
                for number in range(args.rounds):
                    for name in names if number % 2 == 0 else reversed(names):
                        runs[name].append(measure(servers[name], args.bursts, args.seconds, command, pipeline, clients))
                cells = []
                for name in names:
                    rate, cpu = (statistics.median(run[part] for run in runs[name]) for part in (0, 1))
                    ratio = statistics.median(mine[1] / base[1] for mine, base in zip(runs[name], runs[names[0]]))
                    ratios[name].append(ratio)
                    cells.append(f"{cpu:.2f} µs ({ratio:.3f} ×), {rate:,.0f}/s")
                print(f"| {engine}: {command}, {clients} clients, pipeline {pipeline} | " + " | ".join(cells) + " |", flush=True)
        finally:
            for server in servers.values():
                server.stop()
    print("| median of the ratios of CPU | " + " | ".join(f"{statistics.median(ratios[name]):.3f} ×" for name in names) + " |")
    print("| worst | " + " | ".join(f"{max(ratios[name]):.3f} ×" for name in names) + " |")


main()
