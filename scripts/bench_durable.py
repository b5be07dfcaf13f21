"""The durable rows of `make bench`: redis-server with an append-only file beside neokv with its log and RocksDB.

In two shapes. *Pinned*: servers on core 0 (neokv with one shard), the load generator on core 1, for the CPU of an operation.
*Whole machine*: nothing pinned, for the rate that a user of this machine gets. There neokv runs with a core for every CPU that the
load generator (one thread) leaves, which targets are judged by, and beside it as it starts by itself, with one for every CPU
(`every`). Data is on a real disk. Also here: neokv in memory, because some targets are ratios to it; what either writes to the disk; and `nothing`, a
server that writes what comes to a file, syncs it once per turn and answers +OK: the bound of what any server can reach with
this load generator, so that a target above it shows as what it is.

The load generator is `bursts` (crates/load): redis-benchmark spends more on a request than the servers do, and where it is the slower
side all servers look alike (`--generator redis-benchmark` for comparison). All servers of a table are up, one at a time has something
to do: after its turn the next waits until it is *quiet*, so that nobody pays for what another put off. CPU is counted twice:
`cpu`, what the server spent in the measured time per operation in it; `all`, what it spent from the first command until it is
quiet again per operation from the first to the last. The second has flushes and compactions in it, and targets of writes are judged by it.
"""

import json
import os
import random
import statistics
import subprocess
import time

from servers import Client, Server

VALUE = "x" * 64
KEYS = 1_000_000
HASH_FIELDS = 100_000

# name -> (range of random numbers, command)
WRITES = {
    "SET": (KEYS, ["SET", "key:__rand_int__", VALUE]),
    "INCR": (KEYS, ["INCR", "counter:__rand_int__"]),
    "HSET": (HASH_FIELDS, ["HSET", "hset", "field:__rand_int__", VALUE]),
    "LPUSH": (1, ["LPUSH", "pushed", "element"]),
    "ZADD": (HASH_FIELDS, ["ZADD", "zadd", "__rand_int__", "member:__rand_int__"]),
}
READS = {
    "GET hot": (10_000, ["GET", "key:__rand_int__"]),
    "GET warm": (KEYS, ["GET", "key:__rand_int__"]),
    "HGET": (10_000, ["HGET", "hash:__rand_int__", "field:7"]),
    "ZRANGE": (1_000, ["ZRANGE", "zset:__rand_int__", "0", "9"]),
}
WRITE_TARGETS = {50: 1.5, 500: 2.0}  # throughput as a multiple of Redis' with appendfsync always, by clients
WRITE_CPU_TARGET = 2.5               # CPU per write as a multiple of the memory engine's, pipeline 16
HOT_CPU_TARGET = 1.1                 # CPU per hot GET as a multiple of the memory engine's
SMALL_CACHE = 4 << 20                # bytes of row cache that make every GET of KEYS keys miss it
WARM_SECONDS = 0.1                   # of load before counting begins
YARDSTICKS = ("memory", "nothing")   # put nothing off: half the seconds tell as much of them
QUIET_SHARE = 0.02                   # of a CPU: a server that takes less is quiet
QUIET_SECONDS = 0.2                  # for so long
QUIET_LIMIT = 15.0                   # seconds that are waited for it at most

# name -> the tables of writes: fsync, pinned
WRITE_TABLES = {"machine": ("always", False), "pinned": ("always", True), "everysec": ("everysec", True)}
TABLES = [*WRITE_TABLES, "reads", "disk"]


def preload(server, send_all, keys):
    def commands():
        for first in range(0, keys, 200):
            args = ["MSET"]
            for n in range(first, first + 200):
                args += [f"key:{n:012d}", VALUE]
            yield args
        for n in range(10_000):
            yield ["HSET", f"hash:{n:012d}"] + [x for i in range(20) for x in (f"field:{i}", f"value:{n}:{i}")]
        for n in range(1_000):
            yield ["ZADD", f"zset:{n:012d}"] + [x for i in range(100) for x in (str(i), f"member:{i}")]
    send_all(server.port, commands(), batch=20)


def verdict(good, target, sign):
    return "" if target is None else f"{sign} {target} {'met' if good else 'MISSED'}"


def quiet(server):
    """Waits until a server has come to rest; seconds that it took, or None if it never did."""
    begin = since = time.monotonic()
    spent = server.cpu_seconds()
    while since - begin < QUIET_LIMIT:
        time.sleep(QUIET_SECONDS)
        now, total = time.monotonic(), server.cpu_seconds()
        if total - spent < QUIET_SHARE * (now - since):
            return since - begin
        since, spent = now, total
    return None


class Turns:
    """The same load on several servers in turns, all others quiet; per server the middle round by throughput, and the middle of its CPU."""

    def __init__(self, args, load):
        self.args = args
        self.load = load
        self.core = "1"

    def bursts(self, server, seconds, command, space, pipeline, clients):
        """One run of `bursts`; `began` is what the server had spent before the first of `all_operations`."""
        line = [self.args.bursts, "--address", f"127.0.0.1:{server.port}", "--clients", str(clients), "--pipeline", str(pipeline),
                "--range", str(space), "--seconds", str(seconds), "--warm", str(WARM_SECONDS),
                "--pids", str(server.process.pid), "--"] + command
        if self.core is not None:
            line = ["taskset", "-c", self.core] + line
        output = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if not server.alive():
            raise SystemExit(f"{server.kind} died:\n{server.tail()}")
        if output.returncode != 0:
            raise SystemExit(f"{server.kind}, {' '.join(command[:2])}: {output.stderr}")
        run = json.loads(output.stdout)
        if run["errors"] or not run["operations"]:
            raise SystemExit(f"{server.kind}, {' '.join(command[:2])}: {run['errors']} errors, {run['first_error']}")
        run["began"] = run.pop("servers")[0]["began"]
        return run

    def redis_benchmark(self, server, seconds, command, space, pipeline, clients):
        """As many requests as take about the seconds asked for; connecting is in what they cost."""
        warm = max(clients * pipeline * 4, 2_000)
        rps = self.load(server, command, space, pipeline, warm, self.core, clients)["rps"]
        requests = max(warm, int(rps * seconds))
        quiet(server)
        began = server.cpu_seconds()
        run = self.load(server, command, space, pipeline, requests, self.core, clients)
        return dict(run, began=began, all_operations=requests)

    def turn(self, server, *load):
        """Load, and until the server is quiet again."""
        run = (self.bursts if self.args.generator == "bursts" else self.redis_benchmark)(server, *load)
        run["quiet_s"] = quiet(server)
        run["all_us"] = (server.cpu_seconds() - run["began"]) / run["all_operations"] * 1e6
        return run

    def run(self, servers, *load):
        runs = {name: [] for name in servers}
        for n in range(self.args.rounds):
            for name in (list(servers) if n % 2 == 0 else reversed(list(servers))):
                seconds = self.args.durable_seconds / (2 if name in YARDSTICKS else 1)
                runs[name].append(self.turn(servers[name], seconds, *load))
        middle = {}
        for name, rounds in runs.items():
            middle[name] = dict(sorted(rounds, key=lambda run: run["rps"])[len(rounds) // 2])
            # CPU has a middle of its own: a compaction falls into one round or another, whatever that one's throughput.
            for cpu in ("cpu_us", "all_us"):
                middle[name][cpu] = statistics.median(run[cpu] for run in rounds)
        return middle, runs


def restless(runs):
    """Who was still busy when the next had its turn."""
    names = [name for name, rounds in runs.items() if any(run["quiet_s"] is None for run in rounds)]
    return f"NOT QUIET after {QUIET_LIMIT:.0f} s: {', '.join(names)}" if names else ""


def header(names, what):
    print(f"\n{what}\n{'':<10}{'clients':>8}{'P':>4}  {' '.join(f'{name + chr(47) + chr(115):>12}' for name in names)}  "
          f"{'x redis':>7}  {'p50/p99 ms (' + ', '.join(names) + ')':<52} cpu/all µs per op ({', '.join(names)})")


def row(label, clients, pipeline, names, found, notes):
    rates = " ".join(f"{found[name]['rps']:>12,.0f}" for name in names)
    times = ", ".join(f"{found[name]['p50_ms']:.2f}/{found[name]['p99_ms']:.2f}" for name in names)
    cpu = ", ".join(f"{found[name]['cpu_us']:.2f}/{found[name]['all_us']:.2f}" for name in names)
    gain = found["neokv"]["rps"] / found["redis"]["rps"]
    print(f"{label:<10}{clients:>8}{pipeline:>4}  {rates}  {gain:>7.2f}  {times:<52} {cpu:<44} {'; '.join(n for n in notes if n)}",
          flush=True)
    return gain


def measure_writes(args, turns, sync, pinned):
    """All commands, with 50 and 500 clients, on fresh servers per number of clients."""
    core, shards = ("0", 1) if pinned else (None, max(1, (os.cpu_count() or 2) - 1))
    turns.core = "1" if pinned else None
    names = ["redis", "neokv", "memory", "nothing"] if pinned else ["redis", "neokv", "every", "memory", "nothing"]
    header(names, f"writes, fsync {sync}, {'pinned' if pinned else 'whole machine'} (redis --appendfsync {sync}, "
                  f"neokv --log-sync {sync}, {'' if pinned else 'every: with a core per CPU, '}neokv --engine memory, nothing --sync; load by {args.generator})")
    writes = chosen(args, WRITES)
    results = []
    for clients in args.clients:
        servers = {"redis": Server("redis", cores=core, sync=sync),
                   "neokv": Server("neokv", neokv=args.neokv, cores=core, shards=shards, sync=sync),
                   "memory": Server("neokv", neokv=args.neokv, cores=core, shards=shards),
                   "nothing": Server("nothing", neokv=args.nothing, cores=core, sync=sync)}
        if not pinned:
            servers["every"] = Server("neokv", neokv=args.neokv, shards=None, sync=sync)
        try:
            for server in servers.values():
                server.start()
            for server in servers.values():
                quiet(server)
            for pipeline in args.durable_pipelines:
                for name, (space, command) in writes.items():
                    found, runs = turns.run(servers, command, space, pipeline, clients)
                    if "pushed" in command:
                        for server in servers.values():
                            with Client(server.port) as client:
                                client.ask("DEL", "pushed")
                            quiet(server)
                    bound = found["nothing"]["rps"] / found["redis"]["rps"]
                    cost = found["neokv"]["all_us"] / found["memory"]["all_us"]
                    gain = found["neokv"]["rps"] / found["redis"]["rps"]
                    target = WRITE_TARGETS.get(clients) if sync == "always" and not pinned else None
                    cost_target = WRITE_CPU_TARGET if pipeline == 16 and pinned else None
                    met, cheap = target is None or gain >= target, cost_target is None or cost <= cost_target
                    row(name, clients, pipeline, names, found,
                        [verdict(met, target, "≥"), f"bound {bound:.2f} x redis", f"all {cost:.2f} x memory {verdict(cheap, cost_target, '≤')}", restless(runs)])
                    results.append({"command": name, "sync": sync, "pinned": pinned, "clients": clients, "pipeline": pipeline,
                                    "found": found, "gain": gain, "bound": bound, "cost": cost, "rounds": runs,
                                    "met": None if target is None and cost_target is None else met and cheap})
        finally:
            for server in servers.values():
                server.stop()
    return results


def measure_reads(args, turns, send_all):
    """Hot: in the row cache. Warm: the row cache is far too small, RocksDB's block cache has it."""
    names = ["redis", "neokv", "memory"]
    header(names, f"reads (warm: neokv with a row cache of 4 MB, so that RocksDB's blocks answer; load by {args.generator})")
    keys = KEYS if not args.quick else KEYS // 10
    hot = {"redis": Server("redis", cores="0", sync="everysec"),
           "neokv": Server("neokv", neokv=args.neokv, cores="0", sync="everysec"),
           "memory": Server("neokv", neokv=args.neokv, cores="0")}
    warm = Server("neokv", neokv=args.neokv, cores="0", sync="everysec", extra=["--cache-size", str(SMALL_CACHE)])
    results = []
    try:
        for server in list(hot.values()) + [warm]:
            server.start()
            preload(server, send_all, keys)
        for server in list(hot.values()) + [warm]:
            quiet(server)
        for pipeline in args.durable_pipelines:
            for name, (space, command) in chosen(args, READS).items():
                servers = dict(hot, neokv=warm) if name == "GET warm" else hot
                found, runs = turns.run(servers, command, min(space, keys), pipeline, 50)
                # Reads put nothing off, and before the window they fill the cache.
                cost = found["neokv"]["cpu_us"] / found["memory"]["cpu_us"]
                target = HOT_CPU_TARGET if name == "GET hot" else None
                met = target is None or cost <= target
                gain = row(name, 50, pipeline, names, found, [f"cpu {cost:.2f} x memory {verdict(met, target, '≤')}", restless(runs)])
                results.append({"command": name, "pipeline": pipeline, "found": found, "gain": gain, "cost": cost,
                                "met": None if target is None else met, "rounds": runs})
    finally:
        for server in list(hot.values()) + [warm]:
            server.stop()
    return results


def measure_disk(args, send_all):
    """The same keys loaded and overwritten at random: bytes on disk per key, bytes written per byte given."""
    keys = KEYS if not args.quick else KEYS // 10
    print(f"\ndisk: {keys:,} keys of 16 bytes with values of 64, then as many random overwrites\n"
          f"{'':<8}{'B/key loaded':>14}{'B/key at rest':>15}{'written per byte given':>24}")
    results = []
    for kind in ("redis", "neokv"):
        with Server(kind, neokv=args.neokv, sync="everysec") as server:
            before = server.written_bytes()
            dice = random.Random(1)
            value = lambda: f"{dice.getrandbits(256):064x}"  # what compresses badly, as real data does
            load = ([x for i in range(first, first + 100) for x in (f"key:{i:012d}", value())] for first in range(0, keys, 100))
            send_all(server.port, (["MSET"] + pairs for pairs in load), batch=20)
            loaded = server.disk_bytes() / keys
            again = (["SET", f"key:{dice.randrange(keys):012d}", value()] for _ in range(keys))
            send_all(server.port, again, batch=500)
            settle(server)
            at_rest = server.disk_bytes() / keys
            amplification = (server.written_bytes() - before) / (2 * keys * (16 + 64))
        print(f"{kind:<8}{loaded:>14.0f}{at_rest:>15.0f}{amplification:>24.2f}", flush=True)
        results.append({"server": kind, "loaded": loaded, "at_rest": at_rest, "amplification": amplification, "met": None})
    return results


def settle(server, quiet=3.0, limit=60.0):
    """Until nothing is written any more: flushes and compactions are part of the price."""
    deadline, last, since = time.time() + limit, -1, time.time()
    while time.time() < deadline and time.time() - since < quiet:
        now = server.written_bytes()
        if now != last:
            last, since = now, time.time()
        time.sleep(0.2)


def chosen(args, commands):
    """Those that `--commands` selects; GET means both reads of that name."""
    if args.commands is None:
        return commands
    return {name: row for name, row in commands.items() if name in args.commands or name.split()[0] in args.commands}


def measure_durable(args, load, send_all):
    turns = Turns(args, load)
    results = []
    for table, (sync, pinned) in WRITE_TABLES.items():
        if table in args.durable_tables and chosen(args, WRITES):
            results += measure_writes(args, turns, sync, pinned)
    turns.core = "1"
    if "reads" in args.durable_tables and chosen(args, READS):
        results += measure_reads(args, turns, send_all)
    if "disk" in args.durable_tables and args.commands is None:
        results += measure_disk(args, send_all)
    return results
