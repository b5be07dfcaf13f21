#!/usr/bin/env python3
"""A hash of a million fields goes in no time, and its space comes back.

Fills a big hash (and a list, set and sorted set of the same size), deletes each and takes the time of the reply and the
slowest reply that another client gets meanwhile; then waits for the bytes on disk to come back, asking for a
compaction if the server knows how (`DEBUG COMPACT`).

    scripts/big_delete.py --neokv path/to/neokv                  1 M members, limit 1 ms
    scripts/big_delete.py --server redis --members 100000
"""

import argparse
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from servers import Client, Server, encode  # noqa: E402

CACHE = 64 << 20


def member(n):
    """Sixteen bytes that do not compress to nothing."""
    return b"%016x" % (n * 0x9E3779B97F4A7C15 % 2**64)


COMMANDS = {
    "hash": lambda ns: ["HSET", "big:hash"] + [x for n in ns for x in (member(n), member(n + 1) * 4)],
    "list": lambda ns: ["RPUSH", "big:list"] + [member(n) * 4 for n in ns],
    "set": lambda ns: ["SADD", "big:set"] + [member(n) for n in ns],
    "zset": lambda ns: ["ZADD", "big:zset"] + [x for n in ns for x in (str(n), member(n))],
}
COUNTS = {"hash": "HLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD"}


def fill(port, kind, members):
    with Client(port, timeout=600) as client:
        for first in range(0, members, 10_000):
            block = [COMMANDS[kind](range(n, n + 100)) for n in range(first, min(first + 10_000, members), 100)]
            client.socket.sendall(b"".join(encode(args) for args in block))
            for _ in block:
                reply = client.read()
                if isinstance(reply, Exception):
                    raise SystemExit(f"the server refuses: {reply}")
        count = client.ask(COUNTS[kind], f"big:{kind}")
        if count != members:
            raise SystemExit(f"{kind}: {count} members instead of {members}")


class Probe(threading.Thread):
    """Another client: one SET at a time, and how long the slowest took."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.going, self.worst = port, True, 0.0

    def run(self):
        with Client(self.port) as client:
            while self.going:
                began = time.perf_counter()
                client.ask("GET", "other")
                self.worst = max(self.worst, time.perf_counter() - began)
                time.sleep(0.0005)


def delete(port, kind):
    """Milliseconds to the reply, and the slowest one of somebody else meanwhile and shortly after."""
    probe = Probe(port)
    probe.start()
    with Client(port, timeout=600) as client:
        client.ask("PING")
        time.sleep(0.2)
        probe.worst = 0.0
        began = time.perf_counter()
        reply = client.ask("DEL", f"big:{kind}")
        took = time.perf_counter() - began
        assert reply == 1, reply
        left = client.ask(COUNTS[kind], f"big:{kind}")
        assert left == 0, left
    time.sleep(0.3)
    probe.going = False
    probe.join()
    return took * 1000, probe.worst * 1000


def compact(port):
    """Whether the server has compacted because it was told so."""
    with Client(port, timeout=600) as client:
        return not isinstance(client.ask("DEBUG", "COMPACT"), Exception)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=["neokv", "redis"], default="neokv")
    parser.add_argument("--neokv", help="path of the neokv binary (release)")
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--limit-ms", type=float, default=1.0)
    parser.add_argument("--tries", type=int, default=3, help="of each type; the middle one counts")
    args = parser.parse_args()
    if args.server == "neokv" and not args.neokv:
        parser.error("--neokv is missing")
    neokv = args.neokv and os.path.abspath(args.neokv)
    extra = ["--cache-size", str(CACHE)] if args.server == "neokv" else []
    missed = []
    with Server(args.server, neokv=neokv, shards=1, sync="everysec", extra=extra) as server:
        with Client(server.port) as client:
            client.ask("SET", "other", "x")
        empty = server.disk_bytes()
        for kind in COMMANDS:
            found = []
            for _ in range(args.tries):
                fill(server.port, kind, args.members)
                full = server.disk_bytes('rows' if args.server == 'neokv' else '')
                found.append(delete(server.port, kind))
            took, others = sorted(found)[len(found) // 2]
            good = took <= args.limit_ms
            if not good:
                missed.append(f"DEL of a {kind}")
            print(f"DEL of a {kind} of {args.members:,}: {took:.2f} ms, limit {args.limit_ms:g} ms: "
                  f"{'met' if good else 'MISSED'}; slowest GET of another client {others:.2f} ms; "
                  f"{full / 1e6:.0f} MB of rows on disk before", flush=True)
        part = "rows" if args.server == "neokv" else ""
        full = server.disk_bytes(part)
        told = compact(server.port)
        deadline = time.time() + 120
        # A file of rows has a few hundred bytes whatever is in it; logs of RocksDB itself take a little.
        enough = max(full // 10, 8 << 20)
        while (left := server.disk_bytes(part)) > enough and time.time() < deadline:
            time.sleep(1)
        good = left <= enough
        if not good:
            missed.append("space")
        print(f"space of rows: {full / 1e6:.0f} MB after the last DEL, {left / 1e6:.1f} MB after "
              f"{'a compaction' if told else 'waiting (no DEBUG COMPACT here)'}: {'met' if good else 'MISSED'}; "
              f"all with the log: {empty / 1e6:.0f} MB at first, {server.disk_bytes() / 1e6:.0f} MB now")
    print("all met" if not missed else f"MISSED: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
