"""The rows of `make bench` about tables: rows through neokv beside single-row SELECT and UPDATE on the same PostgreSQL.

One node with its log on disk (fsync before OK), a throw-away PostgreSQL with its own defaults (fsync on), both on this machine; the
database that neokv writes back to is the one that is measured beside it, in turns. Redis commands by redis-benchmark, with a
connection per client, and by `crates/load`, with 16 clients on each connection as multiplexing clients have it; SQL by
pgbench with prepared statements; `bound` is a server that does nothing but sync and answer, under the same redis-benchmark. Also here: how many changes one statement carries, and how far SQL lags behind.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time

from servers import Client, Server, disk_folder, encode, free_port

CLIENTS = 64
SHARED = 16              # clients per connection, where they share one
ROWS = 10_000
PER_SECOND = 100_000     # reads and writes of rows per second, pipelined
UPDATES = 20             # times PostgreSQL's updates per second, at 64 clients
CHANGES = 50             # changes per SQL statement on a hot set, at least
LAG_MS = 1_000           # 99th percentile at half load

# Keys are those of `crates/load`, so that all read and write the same rows.
COMMANDS = {
    "row get": ["HGET", "bench:key:__rand_int__", "n"],
    "row set": ["HSET", "bench:key:__rand_int__", "n", "7"],
    "row incr": ["HINCRBY", "bench:key:__rand_int__", "n", "1"],
}
SQL = {
    "select": "\\set k random(0, {last})\nSELECT n FROM direct WHERE key = :k;\n",
    "update": "\\set k random(0, {last})\nUPDATE direct SET n = n + 1 WHERE key = :k;\n",
}
# Sixteen in one round trip, as our pipelines are; to PostgreSQL they are one transaction, with one sync. Ascending keys: no deadlocks.
PIPELINED = 16
SQL["updates"] = ("\\set k random(0, {last} - 15)\n\\startpipeline\n"
                  + "".join(f"UPDATE direct SET n = n + 1 WHERE key = :k + {n};\n" for n in range(PIPELINED)) + "\\endpipeline\n")


def program(name):
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}")) or [shutil.which(name)]
    if not found[-1]:
        raise SystemExit(f"{name} is not installed: scripts/install bench")
    return found[-1]


class Postgres:
    """A PostgreSQL of its own on loopback; gone when done."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="neokv-postgres-", dir=disk_folder())
        self.port = free_port()
        # It does not run as root; others may not look through the folders above.
        self.user = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"] if os.getuid() == 0 else []
        if self.user:
            self.folder, kept = tempfile.mkdtemp(prefix="neokv-postgres-", dir="/var/tmp"), self.folder
            shutil.rmtree(kept)
            shutil.chown(self.folder, "nobody", "nogroup")
        self.data = os.path.join(self.folder, "data")
        self.run([program("initdb"), "-D", self.data, "-A", "trust", "-U", "bench", "-N", "--no-locale", "-E", "UTF8"])
        command = [program("postgres"), "-D", self.data, "-p", str(self.port), "-k", self.folder,
                   "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"]
        self.log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(self.user + command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        deadline = time.time() + 30
        while subprocess.run(self.client("pg_isready"), stdout=subprocess.DEVNULL, check=False).returncode != 0:
            if time.time() > deadline:
                raise SystemExit("postgres does not start")
            time.sleep(0.05)
        self.url = f"postgres://bench@127.0.0.1:{self.port}/postgres"
        self.psql("CREATE TABLE direct (key int PRIMARY KEY, n bigint, name text); "
                  f"INSERT INTO direct SELECT k, 0, 'name of ' || k FROM generate_series(0, {ROWS - 1}) k; VACUUM ANALYZE direct")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, command):
        subprocess.run(self.user + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, cwd="/")

    def client(self, name, *more):
        return [program(name), "-h", "127.0.0.1", "-p", str(self.port), "-U", "bench", *more]

    def psql(self, statements):
        for statement in statements.split("; "):
            subprocess.run(self.client("psql", "-qAt", "-d", "postgres", "-c", statement), check=True, stdout=subprocess.DEVNULL)

    def cpu_seconds(self):
        """Of the server and all its processes, those that ended included."""
        tick = os.sysconf("SC_CLK_TCK")
        total = 0
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path) as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            pid, parent = int(path.split("/")[2]), int(fields[1])
            if pid == self.process.pid:
                total += sum(int(it) for it in fields[11:15])
            elif parent == self.process.pid:
                total += sum(int(it) for it in fields[11:13])
        return total / tick

    def pgbench(self, name, seconds):
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(SQL[name].format(last=ROWS - 1))
            script.flush()
            line = self.client("pgbench", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "1", "-T", str(max(1, round(seconds))),
                               "-f", script.name, "postgres")
            before = self.cpu_seconds()
            output = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
            spent = self.cpu_seconds() - before
        done = int(re.search(r"transactions actually processed: (\d+)", output)[1])
        rate = float(re.search(r"tps = ([\d.]+)", output)[1])
        each = PIPELINED if name == "updates" else 1
        return {"rps": rate * each, "cpu_us": spent / max(done * each, 1) * 1e6}


def numbers(server):
    """What `INFO tables` says, and the sums over its backends."""
    with Client(server.port) as client:
        text = client.ask("INFO", "tables").decode()
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if "=" in value:
            for part in value.split(","):
                key, _, number = part.partition("=")
                if number.isdigit():
                    found[key] = found.get(key, 0) + int(number)
        elif value.isdigit():
            found[name] = int(value)
    return found


def prepare(server):
    with Client(server.port) as client:
        reply = client.ask("ROW.TABLE", "CREATE", "bench", "FIELDS", "n:int64,name:string")
        if reply != "OK":
            raise SystemExit(f"ROW.TABLE CREATE: {reply}")
        for first in range(0, ROWS, 500):
            keys = range(first, first + 500)
            for answer in client.pipeline([("HSET", f"bench:key:{n:012d}", "n", 0, "name", f"name of {n}") for n in keys]):
                if isinstance(answer, Exception):
                    raise SystemExit(f"HSET: {answer}")
        client.ask("ROW.TABLE", "DRAIN", "TIMEOUT", "60000")


def by_load(args, server, seconds, target, port, *more):
    """One run of the load generator of the cluster rows; clients share connections."""
    line = [args.load, "--target", target, "--addresses", f"127.0.0.1:{port}", "--clients", str(CLIENTS), "--streams", str(SHARED),
            "--keys", str(ROWS), "--seconds", str(seconds), "--pids", str(server.process.pid), *more]
    told = json.loads(subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout)
    if told["errors"]:
        raise SystemExit(f"load: {told}")
    return {"rps": told["ops"], "cpu_us": told["cpu_us"]}


def grpc(args, server, operation, seconds):
    return by_load(args, server, seconds, "rows", server.http_port, "--op", operation)


def shared(args, server, command, seconds):
    """A command of RESP, with the keys of the load generator."""
    command = [word.replace("key:__rand_int__", "__key__") for word in command]
    return by_load(args, server, seconds, "resp", server.port, "--", *command)


def lag_at(server, rate, seconds):
    """Changes at a steady rate; the lag of SQL, looked at all the while."""
    seen, stop = [], threading.Event()

    def look():
        while not stop.is_set():
            seen.append(numbers(server).get("table_lag_ms", 0))
            time.sleep(0.02)

    batch = 200
    import random
    blocks = [b"".join(encode(("HINCRBY", f"bench:key:{random.randrange(ROWS):012d}", "n", 1)) for _ in range(batch))
              for _ in range(50)]
    watcher = threading.Thread(target=look)
    watcher.start()
    sent, began = 0, time.time()
    with Client(server.port) as client:
        while time.time() - began < seconds:
            if sent > (time.time() - began) * rate:
                time.sleep(0.001)
                continue
            client.socket.sendall(blocks[sent // batch % len(blocks)])
            for _ in range(batch):
                client.read()
            sent += batch
    stop.set()
    watcher.join()
    seen.sort()
    return sent / seconds, seen[int(len(seen) * 0.99) - 1] if seen else 0


def measure_rows(args, load):
    seconds = max(args.seconds, 2.0) if not args.quick else 1.0
    results = []

    def row(name, ours, theirs=None, target=None, met=None, unit="/s"):
        results.append({"name": name, "ours": ours, "theirs": theirs, "target": target, "met": met})
        peer = "" if theirs is None else f"{theirs:>12,.0f}{unit} beside it, {ours / max(theirs, 1e-9):.1f} x"
        word = "" if met is None else f"   target {target}: {'met' if met else 'MISSED'}"
        print(f"{name:<44}{ours:>12,.1f}{unit}  {peer}{word}", flush=True)

    with Postgres() as postgres:
        http_port = free_port()
        extra = ["--table-backend", f"main={postgres.url}", "--http-port", str(http_port)]
        with Server("neokv", neokv=args.neokv, shards=args.row_shards, extra=extra, sync="always") as server:
            server.http_port = http_port
            prepare(server)
            print(f"\nrows of a table: {ROWS:,} hot rows, one node of {args.row_shards} cores, fsync before OK, PostgreSQL behind it")
            direct = {name: postgres.pgbench(name, seconds) for name in SQL}
            for name, command in COMMANDS.items():
                peer = direct["select" if name == "row get" else "update"]
                runs, together = [], []
                for _ in range(args.rounds):
                    warm = load(server, command, ROWS, 1, 2_000, None, CLIENTS)
                    runs.append(load(server, command, ROWS, 1, max(2_000, int(warm["rps"] * seconds)), None, CLIENTS))
                    together.append(shared(args, server, command, seconds))
                run, together = (sorted(each, key=lambda it: it["rps"])[len(each) // 2] for each in (runs, together))
                target = UPDATES if name == "row incr" else None
                met = None if target is None else run["rps"] >= target * peer["rps"]
                row(f"{name}, {CLIENTS} clients", run["rps"], peer["rps"], target and f"{target} x", met)
                row(f"  cpu of the server, µs ({name})", run["cpu_us"], peer["cpu_us"], unit="")
                row(f"{name}, {CLIENTS} clients, {SHARED} per connection", together["rps"], peer["rps"])
                row(f"  cpu of the server, µs ({name})", together["cpu_us"], peer["cpu_us"], unit="")
            with Server("nothing", neokv=args.nothing, sync="always") as nothing:
                runs = [load(nothing, COMMANDS["row incr"], ROWS, 1, 50_000, None, CLIENTS) for _ in range(args.rounds)]
                run = sorted(runs, key=lambda it: it["rps"])[len(runs) // 2]
                row(f"bound: fsync and +OK, {CLIENTS} clients", run["rps"], direct["update"]["rps"])
                row("  cpu of that server, µs", run["cpu_us"], direct["update"]["cpu_us"], unit="")
            for name, command in COMMANDS.items():
                for depth in (16, 64):
                    before = numbers(server)
                    runs = []
                    for _ in range(args.rounds):
                        warm = load(server, command, ROWS, depth, 20_000, None, CLIENTS)
                        runs.append(load(server, command, ROWS, depth, max(20_000, int(warm["rps"] * seconds)), None, CLIENTS))
                    run = sorted(runs, key=lambda it: it["rps"])[len(runs) // 2]
                    target = f"{PER_SECOND:,}/s" if depth == 64 else None
                    peer = direct["select" if name == "row get" else "update"]
                    if name == "row incr":
                        row(f"{name}, pipelined by {depth}, beside updates one by one", run["rps"], peer["rps"], f"{UPDATES} x",
                            run["rps"] >= UPDATES * peer["rps"])
                        peer = direct["updates"]
                    row(f"{name}, pipelined by {depth}", run["rps"], peer["rps"], target,
                        None if target is None else run["rps"] >= PER_SECOND)
                    row(f"  cpu of the server, µs ({name})", run["cpu_us"], unit="")
                    if name != "row get":
                        with Client(server.port) as client:
                            client.ask("ROW.TABLE", "DRAIN", "TIMEOUT", "60000")
                        after = numbers(server)
                        changes = sum(it["rps"] for it in runs) * seconds
                        statements = after.get("statements", 0) - before.get("statements", 0)
                        ratio = changes / max(statements, 1)
                        row(f"  changes per statement ({name})", ratio, None, f"{CHANGES}", ratio >= CHANGES, unit="")
            for name, operation in (("row get", "get"), ("row set", "put")):
                run = grpc(args, server, operation, seconds)
                peer = direct["select" if operation == "get" else "update"]
                row(f"{name} over gRPC, {CLIENTS} clients", run["rps"], peer["rps"])
                row(f"  cpu of the server, µs ({name})", run["cpu_us"], peer["cpu_us"], unit="")
            half = 0.5 * max(it["ours"] for it in results if it["name"].startswith("row incr, pipelined by 16"))
            rate, lag = lag_at(server, min(half, 50_000), max(5, seconds))
            row(f"lag of SQL at {rate:,.0f} changes/s, 99th, ms", lag, None, f"< {LAG_MS}", lag < LAG_MS, unit="")
    return results
