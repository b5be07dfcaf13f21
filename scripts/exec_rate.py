#!/usr/bin/env python3
"""How many transactions per second are kept, each on disk before it is answered? MULTI, SET, INCR, EXEC by many clients,
on redis-server (appendfsync always) and on neokv with two shards in turns: with both keys in one region, and anywhere.

    scripts/exec_rate.py --neokv path/to/neokv                   50 clients, 3 s each, 3 rounds
    scripts/exec_rate.py --neokv … --clients 500 --seconds 5

The clients are one Python process, which is the limit beyond some 35,000 transactions per second.
"""

import argparse
import os
import selectors
import socket
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from servers import Server, encode  # noqa: E402

VALUE = b"x" * 64
LINES = 6  # of the reply: OK, QUEUED twice, the array and its two values


def transaction(client, n, tag):
    return (encode(["MULTI"]) + encode(["SET", b"key-%d-%d%s" % (client, n % 100, tag), VALUE])
            + encode(["INCR", b"counter-%d%s" % (client, tag)]) + encode(["EXEC"]))


def rate(port, clients, seconds, tag):
    """Transactions per second over all clients; stops at the first error."""
    selector, replies, done = selectors.DefaultSelector(), {}, 0
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(clients)]
    for client, connection in enumerate(sockets):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, client)
        replies[client] = b""
        connection.sendall(transaction(client, 0, tag))
    end = time.time() + seconds
    while time.time() < end:
        for key, _ in selector.select(1):
            client = key.data
            replies[client] += key.fileobj.recv(4096)
            if b"-" in replies[client]:
                raise SystemExit(f"refused: {replies[client]}")
            if replies[client].count(b"\r\n") == LINES:
                replies[client] = b""
                done += 1
                key.fileobj.sendall(transaction(client, done, tag))
    for connection in sockets:
        connection.close()
    return done / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neokv", required=True)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    found = {}
    with Server("redis", sync="always") as redis, Server("neokv", neokv=args.neokv, shards=2, sync="always") as neokv:
        for _ in range(args.rounds):
            for name, server, tag in (("redis-server", redis, b"{t}"), ("neokv, one region", neokv, b"{t}"),
                                      ("neokv, any regions", neokv, b"")):
                cpu_before = server.cpu_seconds()
                per_second = rate(server.port, args.clients, args.seconds, tag)
                cpu_us = (server.cpu_seconds() - cpu_before) / (per_second * args.seconds) * 1e6
                found.setdefault(name, []).append((per_second, cpu_us))
    for name, runs in found.items():
        rates, cpus = zip(*runs)
        print(f"{name:<20} {statistics.median(rates):>8,.0f} EXEC/s  {statistics.median(cpus):5.1f} µs CPU each  "
              f"({', '.join(f'{r:,.0f}' for r in rates)})")


if __name__ == "__main__":
    main()
