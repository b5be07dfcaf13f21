#!/usr/bin/env python3
"""redis-server and neokv side by side: throughput, latency, server CPU per operation, memory per key.

Both servers run at once, pinned to core 0 (neokv with one shard); the load generator, redis-benchmark, is pinned to
core 1. For every command and pipeline depth the two are measured in turns, several rounds; the middle round counts.
Server CPU is user + system time of the process from /proc, divided by the operations of the round: unlike throughput
it does not depend on how fast the load generator is.

    scripts/bench.py --neokv path/to/neokv                       everything, about 25 minutes
    scripts/bench.py --neokv … --commands GET SET --pipelines 16 --seconds 1
    scripts/bench.py --neokv … --only memory                     cpu, memory, hop, durable, cluster, rows
    scripts/bench.py --neokv … --load path/to/load --only cluster   three nodes beside etcd and Redis with replicas
    scripts/bench.py --neokv … --only durable --quick            one short round of each; not for comparing
    scripts/bench.py --neokv … --only durable --durable-tables machine --clients 50 --durable-pipelines 1 --commands SET,INCR
"""

import argparse
import csv
import json
import os
import signal
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from bench_cluster import CLIENTS as CLUSTER_CLIENTS, IDLE_REGIONS, measure_cluster  # noqa: E402
from bench_durable import READS, TABLES as DURABLE_TABLES, WRITES, measure_durable  # noqa: E402
from bench_rows import measure_rows  # noqa: E402
from servers import Client, Server, encode  # noqa: E402

CLIENTS = 50
KEYS = 1_000_000
VALUE = "x" * 64
TARGETS = {1: 0.85, 16: 0.70, 64: 0.60}  # CPU per operation as a share of Redis', by pipeline depth
HOP_TARGET_US = 0.6
MEMORY_TARGET_5_5 = 72

# name -> (range of random numbers, command); __rand_int__ becomes twelve random digits, each time others.
COMMANDS = {
    "GET": (KEYS, ["GET", "key:__rand_int__"]),
    "SET": (KEYS, ["SET", "key:__rand_int__", VALUE]),
    "INCR": (KEYS, ["INCR", "counter:__rand_int__"]),
    "HSET": (100_000, ["HSET", "hset", "field:__rand_int__", VALUE]),
    "HGETALL(20)": (10_000, ["HGETALL", "hash:__rand_int__"]),
    "LPUSH": (1, ["LPUSH", "pushed", "element"]),
    "LPOP": (1, ["LPOP", "popped"]),
    "LRANGE 100": (1_000, ["LRANGE", "list:__rand_int__", "0", "99"]),
    "SADD": (100_000, ["SADD", "sadd", "member:__rand_int__"]),
    "ZADD": (100_000, ["ZADD", "zadd", "__rand_int__", "member:__rand_int__"]),
    "ZRANGE": (1_000, ["ZRANGE", "zset:__rand_int__", "0", "9"]),
    "MSET(10)": (KEYS, ["MSET"] + ["key:__rand_int__", VALUE] * 10),
}


def send_all(port, commands, batch=200):
    """Runs many commands, a batch at a time."""
    with Client(port) as client:
        block = []
        for command in commands:
            block.append(command)
            if len(block) == batch:
                check(client.pipeline(block))
                block = []
        if block:
            check(client.pipeline(block))


def check(replies):
    for reply in replies:
        if isinstance(reply, Exception):
            raise SystemExit(f"the server refuses: {reply}")


def preload(server):
    def commands():
        for first in range(0, KEYS, 200):
            args = ["MSET"]
            for n in range(first, first + 200):
                args += [f"key:{n:012d}", VALUE]
            yield args
        for n in range(10_000):
            yield ["HSET", f"hash:{n:012d}"] + [x for i in range(20) for x in (f"field:{i}", f"value:{n}:{i}")]
        for n in range(1_000):
            yield ["RPUSH", f"list:{n:012d}"] + [f"element:{i}" for i in range(100)]
            yield ["ZADD", f"zset:{n:012d}"] + [x for i in range(100) for x in (str(i), f"member:{i}")]
    send_all(server.port, commands(), batch=20)


def refill(server, elements):
    """Enough in the list that LPOP empties."""
    with Client(server.port) as client:
        client.ask("DEL", "popped")
        push = encode(["RPUSH", "popped"] + ["element"] * 1000)
        for _ in range(0, elements, 20_000):
            client.socket.sendall(push * 20)
            for _ in range(20):
                client.read()


def load(server, command, space, pipeline, requests, core, clients=CLIENTS):
    """One run of redis-benchmark: what it saw, and what the server spent."""
    line = ["redis-benchmark", "-h", "127.0.0.1", "-p", str(server.port), "-c", str(clients), "-P", str(pipeline),
            "-n", str(requests), "-r", str(space), "--csv"] + command
    if core is not None:
        line = ["taskset", "-c", core] + line
    before = server.cpu_seconds()
    output = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    spent = server.cpu_seconds() - before
    if not server.alive():
        raise SystemExit(f"{server.kind} died:\n{server.tail()}")
    rows = [row for row in csv.reader(output.stdout.splitlines()) if len(row) >= 8]
    if not rows or "Error" in output.stdout:
        raise SystemExit(f"redis-benchmark {' '.join(command[:2])}: {output.stdout}")
    row = rows[-1]
    return {"rps": float(row[1]), "p50_ms": float(row[4]), "p99_ms": float(row[6]),
            "cpu_us": spent / requests * 1e6}


def middle(runs):
    """The round with the median CPU per operation."""
    runs = sorted(runs, key=lambda run: run["cpu_us"])
    return runs[len(runs) // 2]


def measure_cpu(args):
    servers = {"redis": Server("redis", cores="0"),
               "neokv": Server("neokv", neokv=args.neokv, shards=1, cores="0")}
    results = []
    try:
        for server in servers.values():
            server.start()
            print(f"== loading {KEYS:,} keys into {server.kind}", flush=True)
            preload(server)
        print(f"\n{'command':<13}{'P':>3} {'redis/s':>10}{'neokv/s':>11} {'p50 ms':>13}{'p99 ms':>14}"
              f" {'cpu µs/op':>15} {'ratio':>6} {'target':>7}")
        for pipeline in args.pipelines:
            for name in [name for name in COMMANDS if args.commands is None or name in args.commands]:
                results.append(measure_one(args, servers, name, pipeline))
    finally:
        for server in servers.values():
            server.stop()
    return results


def measure_one(args, servers, name, pipeline):
    space, command = COMMANDS[name]
    warm = 5_000 * min(pipeline, 16)
    requests = {}
    for kind, server in servers.items():
        if name == "LPOP":
            refill(server, warm)
        rps = load(server, command, space, pipeline, warm, "1")["rps"]
        requests[kind] = max(20_000, int(rps * args.seconds))
    runs = {"redis": [], "neokv": []}
    for n in range(args.rounds):
        for kind in (["redis", "neokv"] if n % 2 == 0 else ["neokv", "redis"]):
            if name == "LPOP":
                refill(servers[kind], requests[kind])
            runs[kind].append(load(servers[kind], command, space, pipeline, requests[kind], "1"))
    for server in servers.values():
        with Client(server.port) as client:
            client.pipeline([["DEL", key] for key in ("pushed", "popped")])
    redis, neokv = middle(runs["redis"]), middle(runs["neokv"])
    ratio = neokv["cpu_us"] / redis["cpu_us"]
    target = TARGETS.get(pipeline)
    met = target is None or ratio <= target
    print(f"{name:<13}{pipeline:>3} {redis['rps']:>10,.0f}{neokv['rps']:>11,.0f}"
          f" {redis['p50_ms']:>6.2f}{neokv['p50_ms']:>7.2f}{redis['p99_ms']:>7.2f}{neokv['p99_ms']:>7.2f}"
          f" {redis['cpu_us']:>7.2f}{neokv['cpu_us']:>8.2f} {ratio:>6.2f} {verdict(target, met, '≤ ')}", flush=True)
    return {"command": name, "pipeline": pipeline, "redis": redis, "neokv": neokv, "ratio": ratio,
            "target": target, "met": met, "rounds": runs}


def verdict(target, met, sign=""):
    return "" if target is None else f"{sign}{target} {'met' if met else 'MISSED'}"


def shapes():
    def plain(count, key, value):
        for first in range(0, count, 200):
            args = ["MSET"]
            for n in range(first, first + 200):
                args += [key(n), value(n)]
            yield args

    def hashes(count):
        for n in range(count):
            yield ["HSET", f"hash:{n:011d}"] + [x for i in range(10) for x in (f"field{i}", f"v{n % 10_000_000:07d}")]

    return {
        "5+5 bytes": plain(KEYS, lambda n: f"{n:05x}", lambda n: f"v{n & 0xffff:04x}"),
        "16+64 bytes": plain(KEYS, lambda n: f"key:{n:012d}", lambda n: f"{n:064d}".replace("0", "x", 1)),
        "10-field hash": hashes(KEYS),
    }


def measure_memory(args):
    results = []
    print(f"\n{'memory per key':<16}{'redis B':>9}{'neokv B':>9}{'ratio':>7}  (RSS, {KEYS:,} keys)")
    for shape in shapes():
        per_key = {}
        for kind in ("redis", "neokv"):
            with Server(kind, neokv=args.neokv, shards=1) as server:
                with Client(server.port) as client:
                    client.ask("PING")
                before = server.rss_bytes()
                send_all(server.port, shapes()[shape], batch=20)
                per_key[kind] = (server.rss_bytes() - before) / KEYS
        ratio = per_key["neokv"] / per_key["redis"]
        met = ratio <= 1 and (shape != "5+5 bytes" or per_key["neokv"] <= MEMORY_TARGET_5_5)
        target = "≤ redis" + (f", ≤ {MEMORY_TARGET_5_5}" if shape == "5+5 bytes" else "")
        print(f"{shape:<16}{per_key['redis']:>9.1f}{per_key['neokv']:>9.1f}{ratio:>7.2f}  {verdict(target, met)}",
              flush=True)
        results.append({"shape": shape, **per_key, "ratio": ratio, "met": met})
    return results


def measure_hop(args):
    """CPU per operation on one shard and on two: with two, every other key is on the other core."""
    print("\ncross-core hop, pipeline 16 (all cores shared with the load generator)")
    results = []
    servers = {n: Server("neokv", neokv=args.neokv, shards=n) for n in (1, 2)}
    try:
        for server in servers.values():
            server.start()
            preload(server)
        for name in ("GET", "SET"):
            space, command = COMMANDS[name]
            runs = {1: [], 2: []}
            requests = int(load(servers[1], command, space, 16, 100_000, None)["rps"] * args.seconds)
            for n in range(args.rounds):
                for shards in ((1, 2) if n % 2 == 0 else (2, 1)):
                    runs[shards].append(load(servers[shards], command, space, 16, requests, None))
            one, two = (statistics.median(run["cpu_us"] for run in runs[n]) for n in (1, 2))
            met = two - one <= HOP_TARGET_US
            print(f"{name:<6} 1 shard {one:.2f} µs, 2 shards {two:.2f} µs: {two - one:+.2f} µs per op "
                  f"({2 * (two - one):+.2f} per op that hops)  {verdict(HOP_TARGET_US, met, '≤ ')}", flush=True)
            results.append({"command": name, "one_us": one, "two_us": two, "met": met, "rounds": runs})
    finally:
        for server in servers.values():
            server.stop()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neokv", required=True, help="path of the neokv binary (release)")
    known = list(dict.fromkeys([*COMMANDS, *WRITES, *READS]))
    parser.add_argument("--commands", nargs="+", help=f"of {', '.join(known)}; commas will do too (all)")
    parser.add_argument("--pipelines", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="of load per round (1.5; of the durable rows 1, of the cluster rows 5)")
    parts = ["cpu", "memory", "hop", "durable", "cluster", "rows"]
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--clients", nargs="+", type=int, default=[50, 500], help="of the durable writes")
    parser.add_argument("--durable-pipelines", nargs="+", type=int, help="of the durable rows (those of --pipelines that are 1 or 16)")
    parser.add_argument("--durable-tables", nargs="+", choices=DURABLE_TABLES, default=DURABLE_TABLES)
    parser.add_argument("--generator", choices=["bursts", "redis-benchmark"], default="bursts", help="of the durable rows")
    parser.add_argument("--load", help="path of the load generator of the cluster rows (release build of crates/load); others are beside it")
    parser.add_argument("--cluster-clients", nargs="+", type=int, default=CLUSTER_CLIENTS)
    parser.add_argument("--cluster-shards", type=int, default=1, help="cores of each neokv node in the cluster rows")
    parser.add_argument("--cluster-regions", type=int, default=6, help="regions of the neokv cluster; their leaders are spread")
    parser.add_argument("--row-shards", type=int, default=2, help="cores of the neokv node in the rows about tables")
    parser.add_argument("--idle-regions", type=int, default=IDLE_REGIONS)
    parser.add_argument("--quick", action="store_true", help="one round of 0.3 s each, fewer keys")
    cache = os.environ.get("NEOKV_CACHE", os.path.expanduser("~/.cache/neokv"))
    parser.add_argument("--json", default=os.path.join(cache, "bench.json"), help="where the results go")
    args = parser.parse_args()
    args.neokv = os.path.abspath(args.neokv)
    if args.quick:
        args.rounds = 1
    cluster_seconds = args.seconds or (1.0 if args.quick else 5.0)
    args.durable_seconds = args.seconds or (0.3 if args.quick else 1.0)
    args.seconds = args.seconds or (0.3 if args.quick else 1.5)
    if args.load is None:
        args.load = os.path.join(os.path.dirname(args.neokv), "load")
    args.nothing = os.path.join(os.path.dirname(args.load), "nothing")
    args.bursts = os.path.join(os.path.dirname(args.load), "bursts")
    # Ended from outside: still through every `finally`, which ends the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    if args.durable_pipelines is None:
        args.durable_pipelines = [depth for depth in args.pipelines if depth in (1, 16)] or [1, 16]
    if args.commands is not None:
        args.commands = [name for names in args.commands for name in names.split(",")]
    unknown = [name for name in args.commands or () if name not in known]
    if unknown:
        parser.error(f"unknown commands: {', '.join(unknown)}")

    results = {}
    if "cpu" in args.only:
        results["cpu"] = measure_cpu(args)
    if "memory" in args.only:
        results["memory"] = measure_memory(args)
    if "hop" in args.only:
        results["hop"] = measure_hop(args)
    if "durable" in args.only:
        results["durable"] = measure_durable(args, load, send_all)
    if "cluster" in args.only:
        args.seconds = cluster_seconds
        results["cluster"] = measure_cluster(args)
    if "rows" in args.only:
        results["rows"] = measure_rows(args, load)
    every = [row for rows in results.values() for row in rows if row["met"] is not None]
    print(f"\n{sum(row['met'] for row in every)} of {len(every)} rows with targets meet them; all numbers in {args.json}")
    os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
    with open(args.json, "w") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
