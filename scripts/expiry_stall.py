#!/usr/bin/env python3
"""Many keys expire in the same second: how slow does the slowest reply of another client get?

Loads keys without a deadline, then a million that all expire at one moment, and from before that moment until all are
gone measures every reply of two probing clients (GET and SET, one request at a time). Fails above the limit.

    scripts/expiry_stall.py --neokv path/to/neokv                20 M keys, 1 M expiring, limit 20 ms
    scripts/expiry_stall.py --neokv … --keys 1000000 --expiring 200000
    scripts/expiry_stall.py --server redis                       the same on redis-server
"""

import argparse
import multiprocessing
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from servers import Client, Server, encode  # noqa: E402


def fill(port, keys):
    """Keys of 16 bytes, values of 16, a thousand per command."""
    with Client(port, timeout=300) as client:
        waiting = 0
        for first in range(0, keys, 1000):
            args = ["MSET"]
            for n in range(first, min(first + 1000, keys)):
                args += (b"key:%012d" % n, b"value:%010d" % n)
            client.socket.sendall(encode(args))
            waiting += 1
            if waiting == 20:
                for _ in range(20):
                    client.read()
                waiting = 0
        for _ in range(waiting):
            client.read()


def fill_expiring(port, count, at_ms):
    with Client(port, timeout=300) as client:
        for first in range(0, count, 1000):
            block = [encode(["SET", b"dying:%010d" % n, "v", "PXAT", str(at_ms)])
                     for n in range(first, min(first + 1000, count))]
            client.socket.sendall(b"".join(block))
            for _ in block:
                client.read()


def probe(port, command, keys, until, results):
    """One request at a time; every reply slower than 1 ms is kept, and the slowest."""
    worst, slow, count = 0.0, [], 0
    with Client(port) as client:
        while not until.is_set():
            key = b"key:%012d" % ((count * 7919) % keys)
            line = encode(["GET", key] if command == "GET" else ["SET", key, b"value:%010d" % count])
            started = time.perf_counter()
            client.socket.sendall(line)
            client.read()
            took = (time.perf_counter() - started) * 1000
            count += 1
            worst = max(worst, took)
            if took > 1:
                slow.append(took)
    results.put((command, count, worst, sorted(slow)[-10:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=["neokv", "redis"], default="neokv")
    parser.add_argument("--neokv", help="path of the neokv binary (release)")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--keys", type=int, default=20_000_000)
    parser.add_argument("--expiring", type=int, default=1_000_000)
    parser.add_argument("--limit-ms", type=float, default=20.0)
    args = parser.parse_args()
    if args.server == "neokv" and not args.neokv:
        parser.error("--neokv is missing")

    neokv = args.neokv and os.path.abspath(args.neokv)
    with Server(args.server, neokv=neokv, shards=args.shards) as server:
        started = time.time()
        print(f"== loading {args.keys:,} keys", flush=True)
        fill(server.port, args.keys)
        print(f"   took {time.time() - started:.0f} s, {server.rss_bytes() / 2**30:.2f} GiB", flush=True)

        # Loading the expiring keys takes a while; their moment must lie behind it.
        at = time.time() + 5 + args.expiring / 40_000
        print(f"== loading {args.expiring:,} keys that expire at one moment, in {at - time.time():.0f} s", flush=True)
        fill_expiring(server.port, args.expiring, int(at * 1000))
        with Client(server.port) as client:
            size = client.ask("DBSIZE")
        if time.time() > at - 1:
            raise SystemExit("loading took too long: nothing to measure")
        assert size == args.keys + args.expiring, f"{size} keys loaded"
        time.sleep(max(0.0, at - time.time() - 2))

        until, results = multiprocessing.Event(), multiprocessing.Queue()
        probes = [multiprocessing.Process(target=probe, args=(server.port, command, args.keys, until, results))
                  for command in ("GET", "SET")]
        for process in probes:
            process.start()
        gone = None
        with Client(server.port) as client:
            while gone is None and time.time() < at + 60:
                time.sleep(0.25)
                if client.ask("DBSIZE") <= args.keys:
                    gone = time.time() - at
        time.sleep(1)
        until.set()
        found = [results.get() for _ in probes]
        for process in probes:
            process.join()

    print(f"all expired keys gone {gone:.1f} s after their moment" if gone else "NOT all expired keys are gone after 60 s")
    for command, count, worst, slow in sorted(found):
        print(f"{command}: {count:,} replies, slowest {worst:.2f} ms; the slowest above 1 ms: "
              f"{', '.join(f'{ms:.1f}' for ms in slow) or 'none'}")
    worst = max(entry[2] for entry in found)
    good = worst <= args.limit_ms and gone is not None
    print(f"slowest reply {worst:.2f} ms, limit {args.limit_ms:g} ms: {'met' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
