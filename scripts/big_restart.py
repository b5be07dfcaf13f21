#!/usr/bin/env python3
"""How long is a big data set away after kill -9? Loads it, kills the server while it writes, starts it again on the
same data, and takes the time from the start of the process to the first answer to a GET; then looks at a sample of
the keys.

    scripts/big_restart.py --neokv path/to/neokv                 5 GB, limit 5 s
    scripts/big_restart.py --neokv … --gigabytes 0.5
    scripts/big_restart.py --server redis --gigabytes 0.5        redis-server with an append-only file
"""

import argparse
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from servers import Client, Server, encode  # noqa: E402

VALUE_BYTES = 1000
CACHE = 256 << 20  # far less than the data: a restart must not depend on what fits into memory


def value(n):
    """Text that RocksDB cannot make small."""
    return b"%012d" % n + random.Random(n).randbytes(VALUE_BYTES - 12)


def fill(server, keys):
    """Half of it as strings, half as hashes of ten fields."""
    started, waiting = time.time(), 0
    with Client(server.port, timeout=600) as client:
        for n in range(0, keys, 10):
            if n % 20 == 0:
                args = ["MSET"] + [x for i in range(n, n + 10) for x in (b"key:%012d" % i, value(i))]
            else:
                args = ["HSET", b"hash:%012d" % n] + [x for i in range(n, n + 10) for x in (b"f%d" % (i - n), value(i))]
            client.socket.sendall(encode(args))
            waiting += 1
            if waiting == 50:
                for _ in range(waiting):
                    reply = client.read()
                    if isinstance(reply, Exception):
                        raise SystemExit(f"the server refuses: {reply}")
                waiting = 0
            if n % 200_000 == 0 and n:
                print(f"   {n:,} of {keys:,}, {n * VALUE_BYTES / (time.time() - started) / 1e6:.0f} MB/s, "
                      f"{server.rss_bytes() / 2**30:.2f} GiB in memory", flush=True)
        for _ in range(waiting):
            client.read()


def look(port, n):
    """Whether value number n is what it was."""
    with Client(port) as client:
        if n // 10 % 2 == 0:
            return client.ask("GET", b"key:%012d" % n) == value(n)
        first = n // 10 * 10
        return client.ask("HGET", b"hash:%012d" % first, b"f%d" % (n - first)) == value(n)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=["neokv", "redis"], default="neokv")
    parser.add_argument("--neokv", help="path of the neokv binary (release)")
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--shards", type=int, default=os.cpu_count())
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds to the first answer")
    args = parser.parse_args()
    if args.server == "neokv" and not args.neokv:
        parser.error("--neokv is missing")
    keys = int(args.gigabytes * 1e9 / VALUE_BYTES) // 20 * 20
    neokv = args.neokv and os.path.abspath(args.neokv)
    extra = ["--cache-size", str(CACHE)] if args.server == "neokv" else []
    worst = 0.0
    with Server(args.server, neokv=neokv, shards=args.shards, sync="everysec", extra=extra) as server:
        print(f"== loading {args.gigabytes:g} GB: {keys:,} values of {VALUE_BYTES} bytes", flush=True)
        fill(server, keys)
        print(f"   {server.disk_bytes() / 1e9:.2f} GB on disk", flush=True)
        dice = random.Random(1)
        for n in range(args.kills):
            # Killed while it writes: something is in the log only.
            with Client(server.port) as client:
                client.pipeline([["SET", f"late:{n}:{i}", "x" * 100] for i in range(20_000)])
                client.socket.sendall(encode(["SET", "unanswered", "x"]) * 1000)
                server.kill()
            began = time.time()
            server.launch()
            if not server.answers(600) or not look(server.port, dice.randrange(keys)):
                raise SystemExit(f"no right answer after the restart:\n{server.tail()}")
            took = time.time() - began
            worst = max(worst, took)
            wrong = [i for i in (dice.randrange(keys) for _ in range(1000)) if not look(server.port, i)]
            with Client(server.port) as client:
                late = client.ask("EXISTS", *[f"late:{n}:{i}" for i in range(20_000)])
            if wrong or late != 20_000:
                raise SystemExit(f"lost: values {wrong[:10]}, {20_000 - late} of the last 20,000")
            print(f"   killed and started again: the first answer after {took:.2f} s; 1,000 values and the last 20,000 writes "
                  f"are there", flush=True)
    good = worst <= args.limit
    print(f"slowest restart {worst:.2f} s, limit {args.limit:g} s: {'met' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
