#!/usr/bin/env python3
"""Does a client wait while somebody else's command reads the disk?

Fills big collections, starts the server again with little cache and a slow disk (a preloaded library delays every read
of a file of rows), then lets one client read and write them at random places while another asks for PING and a hot
key on the same core. Prints how long the replies of the other client took (limited: all but the slowest hundredth, for
a busy machine has its own moments), and how long the commands themselves took.

    scripts/cold_reads.py --neokv path/to/neokv                  reads of 30 ms, limit 15 ms
    scripts/cold_reads.py --neokv … --delay-ms 0                 the disk as it is, page cache dropped if allowed
    scripts/cold_reads.py --neokv … --only HGET,SCAN
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from servers import Client, Server, encode  # noqa: E402

SLOW_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void wait_for_disk(int fd) {
    static int delay_us = -1;
    char link[64], path[4096];
    if (delay_us < 0) {
        const char *text = getenv("NEOKV_READ_DELAY_US");
        delay_us = text ? atoi(text) : 0;
    }
    if (!delay_us) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n > 4 && !memcmp(path + n - 4, ".sst", 4)) usleep(delay_us);
}

ssize_t pread(int fd, void *to, size_t size, off_t at) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread");
    wait_for_disk(fd);
    return real(fd, to, size, at);
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    wait_for_disk(fd);
    return real(fd, to, size, at);
}
"""

STRINGS = 100_000


def member(n):
    return b"%016x" % (n * 0x9E3779B97F4A7C15 % 2**64)


def fill(port, members):
    """Big collections, and many small keys for those commands that look for keys."""
    kinds = {
        "hash": lambda ns: ["HSET", "hash"] + [x for n in ns for x in (member(n), member(n + 1) * 8)],
        "list": lambda ns: ["RPUSH", "list"] + [member(n) * 8 for n in ns],
        "set": lambda ns: ["SADD", "set"] + [member(n) + member(n + 1) * 4 for n in ns],
        "zset": lambda ns: ["ZADD", "zset"] + [x for n in ns for x in (str(n), member(n) + member(n + 1) * 4)],
    }
    with Client(port, timeout=600) as client:
        for make in kinds.values():
            for first in range(0, members, 10_000):
                client.pipeline([make(range(n, n + 100)) for n in range(first, first + 10_000, 100)])
        for first in range(0, STRINGS, 10_000):
            client.pipeline([["SET", b"string:%d" % n, member(n) * 8] for n in range(first, first + 10_000)])
        client.ask("SET", "hot", "x")
        client.ask("SETRANGE", "filler", 1 << 20, "x")


def commands(members):
    """By name: a command at a random place, and a check of its reply."""
    any_of = lambda dice: dice.randrange(members)  # noqa: E731
    long = lambda n: member(n) + member(n + 1) * 4  # noqa: E731
    return {
        "(hot GET)": lambda dice: (["GET", "hot"], b"x"),
        "GET": lambda dice: (lambda n: (["GET", b"string:%d" % n], member(n) * 8))(dice.randrange(STRINGS)),
        "HGET": lambda dice: (lambda n: (["HGET", "hash", member(n)], member(n + 1) * 8))(any_of(dice)),
        "LINDEX": lambda dice: (lambda n: (["LINDEX", "list", n], member(n) * 8))(any_of(dice)),
        "SISMEMBER": lambda dice: (lambda n: (["SISMEMBER", "set", long(n)], 1))(any_of(dice)),
        "ZSCORE": lambda dice: (lambda n: (["ZSCORE", "zset", long(n)], b"%d" % n))(any_of(dice)),
        "ZRANGEBYSCORE": lambda dice: (lambda n: (["ZRANGEBYSCORE", "zset", n, n + 20],
                                                  [long(i) for i in range(n, min(n + 21, members))]))(any_of(dice)),
        "LRANGE": lambda dice: (lambda n: (["LRANGE", "list", n, n + 20],
                                           [member(i) * 8 for i in range(n, min(n + 21, members))]))(any_of(dice)),
        "HSET": lambda dice: (lambda n: (["HSET", "hash", member(n), member(n + 1) * 8], 0))(any_of(dice)),
        "ZINCRBY": lambda dice: (lambda n: (["ZINCRBY", "zset", 0, long(n)], b"%d" % n))(any_of(dice)),
        "SADD": lambda dice: (lambda n: (["SADD", "set", long(n)], 0))(any_of(dice)),
        "LSET": lambda dice: (lambda n: (["LSET", "list", n, member(n) * 8], "OK"))(any_of(dice)),
        "SCAN": lambda dice: (["SCAN", dice.randrange(1 << 36), "COUNT", 10], None),
        "RANDOMKEY": lambda dice: (["RANDOMKEY"], None),
        "SRANDMEMBER": lambda dice: (["SRANDMEMBER", "set"], None),
    }


class Probe(threading.Thread):
    """The other client: PING and a hot key, in turns."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.going, self.took = port, True, []

    def run(self):
        with Client(self.port) as client:
            while self.going:
                for words in (("PING",), ("GET", "hot")):
                    began = time.perf_counter()
                    client.ask(*words)
                    self.took.append(time.perf_counter() - began)
                time.sleep(0.0005)


def measure(server, name, make, seconds):
    dice = random.Random(name)
    took = []
    with Client(server.port) as client:
        client.ask("GET", "hot")
        probe = Probe(server.port)
        probe.start()
        deadline = time.time() + seconds
        while time.time() < deadline:
            words, expected = make(dice)
            began = time.perf_counter()
            client.socket.sendall(encode(words))
            reply = client.read()
            took.append(time.perf_counter() - began)
            if isinstance(reply, Exception) or (expected is not None and reply != expected):
                raise SystemExit(f"{words[:3]}: {str(reply)[:100]} instead of {str(expected)[:100]}")
        probe.going = False
        probe.join()
    took.sort()
    others = sorted(probe.took)
    return took, others


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neokv", required=True, help="path of the neokv binary (release)")
    parser.add_argument("--members", type=int, default=200_000)
    parser.add_argument("--delay-ms", type=float, default=30.0)
    parser.add_argument("--limit-ms", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each command")
    parser.add_argument("--only", help="these commands")
    args = parser.parse_args()
    extra = ["--cache-size", str(16 << 20), "--block-cache-size", str(16 << 20)]
    missed = []
    with Server("neokv", neokv=os.path.abspath(args.neokv), shards=1, sync="everysec", extra=extra) as server, \
            tempfile.TemporaryDirectory() as folder:
        fill(server.port, args.members)
        with Client(server.port, timeout=600) as client:
            client.ask("DEBUG", "COMPACT")
        server.kill()
        if args.delay_ms > 0:
            source, library = os.path.join(folder, "slow.c"), os.path.join(folder, "slow.so")
            with open(source, "w") as file:
                file.write(SLOW_DISK)
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
            os.environ.update(LD_PRELOAD=library, NEOKV_READ_DELAY_US=str(int(args.delay_ms * 1000)))
        else:
            os.sync()
            try:
                with open("/proc/sys/vm/drop_caches", "w") as file:
                    file.write("3")
            except PermissionError:
                print("   (the page cache stays: not allowed to drop it)")
        server.launch()
        os.environ.pop("LD_PRELOAD", None)
        if not server.answers(120):
            raise SystemExit(f"no answer after the restart:\n{server.tail()}")
        print(f"== collections of {args.members:,}, {server.disk_bytes() / 1e6:.0f} MB on disk, caches of 16 + 16 MB, "
              f"a read of the disk takes {args.delay_ms:g} ms more", flush=True)
        for name, make in commands(args.members).items():
            if args.only and name not in args.only.split(","):
                continue
            took, others = measure(server, name, make, args.seconds)
            worst = others[len(others) * 99 // 100] * 1000
            good = worst <= args.limit_ms or args.delay_ms <= 0
            if not good:
                missed.append(name)
            print(f"{name:14} {len(took):6} commands, median {took[len(took) // 2] * 1000:7.2f} ms, slowest {took[-1] * 1000:7.2f}; "
                  f"others: {len(others):5} replies, median {others[len(others) // 2] * 1000:6.2f} ms, "
                  f"99 % {worst:6.2f}, slowest {others[-1] * 1000:6.2f}"
                  f"{'' if good else '  MISSED'}", flush=True)
        if not server.alive():
            raise SystemExit(f"the server died\n{server.tail()}")
    print("all met" if not missed else f"MISSED: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
