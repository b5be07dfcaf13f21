"""The cluster rows of `make bench`: three-node neokv beside three-node etcd and a Redis primary with two replicas.

All on this machine, data on a real disk, everything synced before it is acknowledged: neokv and etcd by a majority, Redis
by the primary (appendfsync always) and then, because each SET is followed by WAIT 1, in the memory of one replica at
least, which is less. Gets are linearizable on neokv (lease) and etcd (ReadIndex); Redis gives no such promise. A fourth,
"single", is one durable neokv without a cluster, for what the cluster adds.

The load is `crates/load`, the same loop for all. It also reads what each server process spends in the measured time.

Connections: 16 clients of etcd share one, as in etcd's own benchmark. A recv and a send are most of what a get costs neokv, so
it is measured both ways in the same rounds: shared by 16 as etcd's, which is what targets beside etcd are judged on, and one
per client. Redis has one per client only: WAIT blocks a connection for all who share it.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from servers import Client, Server, disk_folder

CLIENTS = [50, 256]
TARGET_CLIENTS = 256
SHARED = 16            # clients per connection, where they share one
ETCD_TARGET = 5.0      # operations per second as a multiple of etcd's
LEASE_TARGET = 1.2     # CPU per get as a multiple of the single server's
IDLE_REGIONS = 1000
IDLE_TARGET = 5.0      # percent of one CPU, each process


def free_ports(count, beside=0):
    """Ports that are free now, with those `beside` ports further up free too."""
    held, ports = [], []
    try:
        while len(ports) < count:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            if port + beside > 65_535 or port in ports:
                port = 20_000 + (port * 7919) % 25_000
            wanted = {port, port + beside}
            try:
                new = []
                for each in wanted:
                    new.append(socket.socket())
                    new[-1].bind(("127.0.0.1", each))
                ports.append(port)
            except OSError:
                pass
            held += new
    finally:
        for probe in held:
            probe.close()
    return ports


class Trio:
    """Three processes that are one store. Leaves nothing behind."""

    name = None
    target = None
    extra = ()
    ways = (SHARED, 1)   # clients per connection, in turns

    def __init__(self):
        self.processes, self.folder, self.ports, self.trouble = [], None, [], "no answer"

    def start(self):
        for attempt in range(3):
            self.folder = tempfile.mkdtemp(prefix=f"bench-{self.name.split(',')[0]}-", dir=disk_folder())
            try:
                self.launch()
                self.until_ready()
                return self
            except BaseException as error:
                tail = self.tail()
                self.stop()
                if not isinstance(error, TimeoutError) or attempt == 2:
                    print(tail)
                    raise
        raise AssertionError("not reached")

    def spawn(self, n, command):
        folder = os.path.join(self.folder, str(n))
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(self.folder, f"{n}.log"), "ab") as log:
            self.processes.append(subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                                                   stderr=subprocess.STDOUT, env=dict(os.environ, ETCDCTL_API="3")))

    def wait_for(self, what, condition, seconds=60):
        deadline = time.time() + seconds
        while time.time() < deadline:
            self.check_alive()
            try:
                if condition():
                    return
            except (OSError, ConnectionError, ValueError) as error:
                self.trouble = repr(error)
            time.sleep(0.1)
        raise TimeoutError(f"{self.name}: {what} takes too long ({self.trouble})")

    def check_alive(self):
        if any(process.poll() is not None for process in self.processes):
            raise TimeoutError(f"{self.name}: a process has ended")

    def addresses(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def pids(self):
        return [process.pid for process in self.processes]

    def cpu_seconds(self):
        return [time.clock_gettime((~pid << 3) | 2) for pid in self.pids()]

    def tail(self):
        text = []
        for n in range(len(self.processes)):
            with open(os.path.join(self.folder, f"{n}.log"), errors="replace") as log:
                text.append(f"--- {self.name} {n}\n" + "".join(log.readlines()[-15:]))
        return "\n".join(text)

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.processes = []
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


class Neokv(Trio):
    name, target = "neokv", "resp-cluster"

    def __init__(self, binary, shards, regions=6, patience=60):
        super().__init__()
        self.name = f"neokv, {regions} region{'' if regions == 1 else 's'}"
        self.binary, self.shards, self.regions, self.patience = binary, shards, regions, patience

    def launch(self):
        self.ports = free_ports(3, beside=10_000)
        secret = os.path.join(self.folder, "secret")
        with open(secret, "w") as file:
            file.write(os.urandom(32).hex() + "\n")
        for n, port in enumerate(self.ports):
            role = (["--cluster-init", "yes", "--replicas", "3", "--regions", str(self.regions)] if n == 0
                    else ["--join", f"127.0.0.1:{self.ports[0] + 10_000}"])
            self.spawn(n, [self.binary, "server", "--bind", "127.0.0.1", "--redis-port", str(port), "--num-shards", str(self.shards),
                           "--data-dir", os.path.join(self.folder, str(n), "data"), "--cluster-secret-file", secret, *role])

    def until_ready(self):
        self.wait_for("cluster_state:ok", lambda: all(self.info(port).get("cluster_state") == "ok" for port in self.ports),
                      self.patience)
        nodes = min(3, self.regions)
        try:
            self.wait_for("leaders on all nodes", lambda: self.even(nodes), 30)
        except TimeoutError:
            self.check_alive()
            print(f"   (leaders per node are not even: {self.leaders()})")

    def even(self, nodes):
        counts = self.leaders()
        region = 16_384 // self.regions + 1
        return len(counts) == nodes and max(counts.values()) - min(counts.values()) < region * (1 + self.regions // 10)

    def info(self, port):
        with Client(port, timeout=5) as client:
            return fields(client.ask("CLUSTER", "INFO"))

    def leaders(self):
        """Port -> slots that its node leads."""
        counts = {}
        with Client(self.ports[0], timeout=5) as client:
            slots = client.ask("CLUSTER", "SLOTS")
        if isinstance(slots, Exception):
            raise ValueError(str(slots))
        for first, last, (_, port, *_), *_ in slots:
            counts[port] = counts.get(port, 0) + last - first + 1
        return counts

    def leader(self):
        return self.ports.index(next(iter(self.leaders())))

    def messages(self):
        return sum(int(self.info(port)["cluster_stats_messages_sent"]) for port in self.ports)


class Etcd(Trio):
    name, target, ways = "etcd", "etcd", (SHARED,)

    def launch(self):
        ports = free_ports(6)
        self.ports, peers = ports[:3], ports[3:]
        members = ",".join(f"n{n}=http://127.0.0.1:{port}" for n, port in enumerate(peers))
        for n, (port, peer) in enumerate(zip(self.ports, peers)):
            here, there = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
            self.spawn(n, ["etcd", "--name", f"n{n}", "--data-dir", os.path.join(self.folder, str(n), "data"), "--logger", "zap",
                           "--log-level", "warn", "--listen-client-urls", here, "--advertise-client-urls", here,
                           "--listen-peer-urls", there, "--initial-advertise-peer-urls", there, "--initial-cluster", members,
                           "--initial-cluster-token", os.path.basename(self.folder), "--initial-cluster-state", "new"])

    def status(self):
        output = subprocess.run(["etcdctl", "--endpoints", self.addresses(), "endpoint", "status", "-w", "json"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ, ETCDCTL_API="3"), check=False)
        return [row["Status"] for row in json.loads(output.stdout or "[]")]

    def until_ready(self):
        self.wait_for("a leader", lambda: len([row for row in self.status() if row.get("leader")]) == 3)

    def leader(self):
        return next(n for n, row in enumerate(self.status()) if row["leader"] == row["header"]["member_id"])


class Redis(Trio):
    name, target, extra, ways = "redis", "resp", ("--wait", "1"), (1,)

    def launch(self):
        self.ports = free_ports(3)
        for n, port in enumerate(self.ports):
            role = ["--replicaof", "127.0.0.1", str(self.ports[0])] if n else []
            self.spawn(n, ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir",
                           os.path.join(self.folder, str(n)), "--appendonly", "yes", "--appendfsync", "always",
                           "--auto-aof-rewrite-percentage", "0", "--repl-diskless-sync-delay", "0", *role])

    def addresses(self):
        return f"127.0.0.1:{self.ports[0]}"

    def until_ready(self):
        def linked():
            for port in self.ports[1:]:
                with Client(port, timeout=5) as client:
                    if fields(client.ask("INFO", "replication")).get("master_link_status") != "up":
                        return False
            return True
        self.wait_for("replication", linked)

    def leader(self):
        return 0


class Single(Trio):
    """One durable neokv, no cluster; measured as the others are."""

    name, target = "single", "resp"

    def __init__(self, binary, shards):
        super().__init__()
        self.server = Server("neokv", neokv=binary, shards=shards, sync="always")

    def start(self):
        self.server.start()
        self.processes, self.ports = [self.server.process], [self.server.port]
        return self

    def leader(self):
        return 0

    def tail(self):
        return self.server.tail()

    def stop(self):
        self.server.stop()
        self.processes = []


def fields(text):
    if isinstance(text, Exception):
        raise ValueError(str(text))
    text = text.decode() if isinstance(text, bytes) else text
    return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)


def command_of(args, store, op, clients, seconds, fill, streams):
    line = [args.load, "--target", store.target, "--addresses", store.addresses(), "--op", op, "--clients", str(clients),
            "--streams", str(streams), "--seconds", str(seconds), "--warm", str(min(1.0, seconds)),
            "--pids", ",".join(map(str, store.pids())), *store.extra]
    return line + (["--fill"] if fill else [])


def load(args, store, op, clients, streams, fill=False, seconds=None):
    """One run of the load generator."""
    seconds = seconds or args.seconds
    try:
        done = subprocess.run(command_of(args, store, op, clients, seconds, fill, streams), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=seconds * 4 + 120, check=False)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{store.name} {op}: no end\n{store.tail()}")
    store_alive = all(process.poll() is None for process in store.processes)
    if done.returncode != 0 or not store_alive:
        raise SystemExit(f"{store.name} {op}: {done.stderr.strip()}\n{store.tail()}")
    found = json.loads(done.stdout)
    if found["errors"]:
        print(f"   ({store.name} {op}: {found['errors']} errors, the first: {found['first_error']})", flush=True)
    return found


def ways_of(stores):
    """What is measured: every store, each way in which its clients have connections."""
    return [(store, streams) for store in stores for streams in store.ways]


def measure_rows(args, stores, results):
    print(f"\n{'':<4}{'clients':>8}  {'store':<17}{'per conn':>8}{'ops/s':>10}{'p50 ms':>8}{'p99 ms':>8}{'max ms':>8}{'cpu µs/op':>11}"
          f"  {'per process':<18}{'client':>7}  ratios")
    for clients in args.cluster_clients:
        for op in ("put", "get"):
            runs = {way: [] for way in ways_of(stores)}
            for store in stores:
                load(args, store, op, clients, store.ways[0], fill=True, seconds=min(1.0, args.seconds))
            for n in range(args.rounds):
                for store, streams in (runs if n % 2 == 0 else reversed(runs)):
                    runs[store, streams].append(load(args, store, op, clients, streams))
            found = {way: sorted(rounds, key=lambda run: run["ops"])[len(rounds) // 2] for way, rounds in runs.items()}
            peers = {store.name: run["ops"] for (store, _), run in found.items() if store.name in ("etcd", "redis")}
            for (store, streams), run in found.items():
                row = {"kind": "throughput", "op": op, "clients": clients, "store": store.name, "streams": streams, "found": run,
                       "rounds": runs[store, streams], "met": None}
                print_row(row, run, compare(row, run, store, peers, judged=store is stores[0]))
                results.append(row)


def compare(row, run, store, peers, judged):
    """A row of neokv beside etcd and Redis, in words. The target holds for connections that are shared as etcd's are."""
    if not isinstance(store, Neokv):
        return []
    # Beside Redis only with as many connections as Redis has.
    for other in [name for name in peers if name == "etcd" or row["streams"] == 1]:
        row[f"x_{other}"] = run["ops"] / max(peers[other], 1e-9)
    notes = [f"{row[f'x_{other}']:.2f} x {other}" for other in peers if f"x_{other}" in row]
    if judged and row["streams"] == SHARED and row["clients"] == TARGET_CLIENTS and "etcd" in peers:
        row["met"] = row["x_etcd"] >= ETCD_TARGET
        notes.append(f"≥ {ETCD_TARGET:g} x etcd {'met' if row['met'] else 'MISSED'}")
    return notes


def print_row(row, run, notes):
    each = "/".join(f"{server['cpu_us']:.1f}" for server in run["servers"])
    print(f"{row['op']:<4}{row['clients']:>8}  {row['store']:<17}{row['streams']:>8}{run['ops']:>10,.0f}{run['p50_ms'] or 0:>8.2f}"
          f"{run['p99_ms'] or 0:>8.2f}{run['max_ms'] or 0:>8.1f}{run['cpu_us']:>11.1f}  {each:<18}{run['client_cpu_us']:>7.1f}  "
          f"{'; '.join(notes)}", flush=True)


def measure_lease(args, cluster, single):
    """What a get costs beside one server without a cluster. One region, so that in both all clients are with one process:
    with leaders on three nodes every process has fewer clients ready per turn, which costs each get more by itself.
    A connection per client in both."""
    runs = {"cluster": [], "single": []}
    for store in (cluster, single):
        load(args, store, "get", TARGET_CLIENTS, 1, fill=True, seconds=min(1.0, args.seconds))
    for n in range(args.rounds):
        pairs = [("cluster", cluster), ("single", single)]
        for name, store in (pairs if n % 2 == 0 else reversed(pairs)):
            runs[name].append(load(args, store, "get", TARGET_CLIENTS, 1))
    middle = {name: sorted(run["cpu_us"] for run in rounds)[len(rounds) // 2] for name, rounds in runs.items()}
    ratio = middle["cluster"] / max(middle["single"], 1e-9)
    met = ratio <= LEASE_TARGET
    print(f"lease read, {TARGET_CLIENTS} clients, one region: {middle['cluster']:.2f} µs of CPU (all three nodes), single node "
          f"{middle['single']:.2f}: {ratio:.2f} x, ≤ {LEASE_TARGET} {'met' if met else 'MISSED'}", flush=True)
    return {"kind": "lease", "clients": TARGET_CLIENTS, "cluster_us": middle["cluster"], "single_us": middle["single"],
            "ratio": ratio, "rounds": runs, "met": met}


def syncs(pids, seconds):
    """fsync and fdatasync calls of each process in some seconds, seen by the kernel; none if it does not tell."""
    if not shutil.which("perf"):
        return None
    watchers = []
    for pid in pids:
        watchers.append(subprocess.Popen(
            ["perf", "stat", "-x", ",", "-e", "syscalls:sys_enter_fdatasync,syscalls:sys_enter_fsync", "-p", str(pid),
             "--", "sleep", str(seconds)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    counts = []
    for watcher in watchers:
        _, text = watcher.communicate()
        found = re.findall(r"^(\d+),", text, re.M)
        counts.append(sum(map(int, found)) if watcher.returncode == 0 and len(found) == 2 else None)
    return None if None in counts else counts


def measure_writes(args, store, clients, streams):
    """Messages and fsyncs per 1000 writes while the load runs; `perf` slows it a little, so its rate is not compared."""
    seconds = max(args.seconds, 2.0)
    line = command_of(args, store, "put", clients, seconds + 1.0, False, streams)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1.5)
        messages, begin = store.messages() if isinstance(store, Neokv) else None, time.time()
        counts = syncs(store.pids(), seconds - 1.0)
        took = time.time() - begin
        messages = store.messages() - messages if messages is not None else None
        output, errors = process.communicate(timeout=seconds * 4 + 60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise SystemExit(f"{store.name}: {errors}\n{store.tail()}")
    run = json.loads(output)
    writes = run["ops"] * took / 1000
    per_sync = None if counts is None else [count / max(run["ops"] * (seconds - 1.0) / 1000, 1e-9) for count in counts]
    leader = store.leader()
    cpu = [server["cpu_us"] for server in run["servers"]]
    followers = [value for n, value in enumerate(cpu) if n != leader]
    row = {"kind": "writes", "store": store.name, "clients": clients, "streams": streams, "ops": run["ops"], "cpu_us": cpu, "leader": leader,
           "messages_per_1000": None if messages is None else messages / max(writes, 1e-9), "syncs_per_1000": per_sync, "met": None}
    print(f"{store.name:<17} {clients} clients, {streams:>2} per connection, {run['ops']:,.0f} puts/s; CPU per write: "
          + (f"leader {cpu[leader]:.1f} µs, followers {', '.join(f'{value:.1f}' for value in followers)}"
             if not store.name.endswith("regions") else f"nodes {', '.join(f'{value:.1f}' for value in cpu)} µs")
          + ("" if row["messages_per_1000"] is None else f"; {row['messages_per_1000']:.0f} messages")
          + ("; fsyncs are not told here" if per_sync is None else
             f"; {sum(per_sync):.1f} fsyncs ({', '.join(f'{value:.1f}' for value in per_sync)})") + " per 1000 writes", flush=True)
    return row


def measure_idle(args):
    """Many regions that nobody uses: what each process takes once they are quiet."""
    regions = args.idle_regions
    with Neokv(args.neokv, args.cluster_shards, regions=regions, patience=300) as store:
        deadline = time.time() + 60
        while time.time() < deadline:
            before = store.cpu_seconds()
            time.sleep(3)
            if all(after - was < 0.3 for was, after in zip(before, store.cpu_seconds())):
                break
        before, begin = store.cpu_seconds(), time.time()
        time.sleep(10 if not args.quick else 3)
        took = time.time() - begin
        percent = [100 * (after - was) / took for was, after in zip(before, store.cpu_seconds())]
        store.check_alive()
    met = max(percent) < IDLE_TARGET
    print(f"idle, {regions} regions on each of three nodes: {', '.join(f'{value:.2f}' for value in percent)} % of one CPU, "
          f"< {IDLE_TARGET:g} {'met' if met else 'MISSED'}", flush=True)
    return {"kind": "idle", "regions": regions, "percent": percent, "met": met}


def measure_cluster(args):
    if not args.load or not os.access(args.load, os.X_OK):
        raise SystemExit("the cluster rows need the load generator: cargo build --release -p load, or --load PATH")
    print(f"\nclusters of three on one machine ({os.cpu_count()} CPUs, load average before: {os.getloadavg()[0]:.1f}), fsync on, "
          f"data in {disk_folder()}")
    neokv = [Neokv(args.neokv, args.cluster_shards, regions) for regions in dict.fromkeys([args.cluster_regions, 1])]
    single = Single(args.neokv, args.cluster_shards)
    others = [Etcd(), Redis()]
    if not shutil.which("etcd"):
        print("   (etcd is not installed: scripts/install bench)")
        del others[0]
    stores = [*neokv, *others, single]
    results = []
    try:
        for store in stores:
            store.start()
        measure_rows(args, stores, results)
        print()
        for store, streams in ways_of(stores):
            if store is not single:
                results.append(measure_writes(args, store, TARGET_CLIENTS, streams))
        for store in [*neokv[:-1], *others]:
            store.stop()
        results.append(measure_lease(args, neokv[-1], single))
    finally:
        for store in stores:
            store.stop()
    if args.idle_regions:
        results.append(measure_idle(args))
    return results
