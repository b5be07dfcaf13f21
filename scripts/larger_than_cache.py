#!/usr/bin/env python3
"""Data four times as large as the cache: is it right, and is the speed steady?

Several clients read and write keys at random (strings, hashes, lists, sorted sets), each in its own part of the keys
and with a model of it; every reply is compared with the model. Throughput is printed per second; it is steady if the
slow seconds of the second half (the tenth percentile) reach a share of the median. At the end the server is killed,
started again, and every key compared.

    scripts/larger_than_cache.py --neokv path/to/neokv           512 MB with a cache of 128 MB, 60 s
    scripts/larger_than_cache.py --neokv … --cache-mb 16 --seconds 10
    scripts/larger_than_cache.py --server redis --cache-mb 16 --seconds 5
"""

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from servers import Client, Server, encode  # noqa: E402

VALUE_BYTES = 1000
PER_COLLECTION = 10     # members of a hash, list or sorted set
BATCH = 16
STEADY = 0.3


class Part:
    """One client's keys and what they hold: a number per slot, from which its value is made."""

    def __init__(self, part, slots):
        self.part = part
        self.slots = slots
        self.versions = [0] * slots
        self.dice = random.Random(part)

    def value(self, slot):
        seed = f"{self.part}:{slot}:{self.versions[slot]}:".encode()
        return seed + random.Random(seed).randbytes(VALUE_BYTES - len(seed))

    def key(self, slot):
        """Slots of a collection are next to each other."""
        kind = slot // PER_COLLECTION % 4
        name = slot if kind == 0 else slot // PER_COLLECTION
        return kind, f"part{self.part}:{('string', 'hash', 'list', 'zset')[kind]}:{name}", slot % PER_COLLECTION

    def read(self, slot):
        """A command, and what its reply must be."""
        kind, key, index = self.key(slot)
        if kind == 0:
            return ["GET", key], self.value(slot)
        if kind == 1:
            return ["HGET", key, f"f{index}"], self.value(slot)
        if kind == 2:
            return ["LINDEX", key, str(index)], self.value(slot)
        return ["ZRANGE", key, str(index), str(index)], [self.value(slot)]

    def write(self, slot):
        kind, key, index = self.key(slot)
        old = self.value(slot)
        self.versions[slot] += 1
        new = self.value(slot)
        if kind == 0:
            return [(["SET", key, new], "OK")]
        if kind == 1:
            return [(["HSET", key, f"f{index}", new], 0)]
        if kind == 2:
            return [(["LSET", key, str(index), new], "OK")]
        return [(["ZREM", key, old], 1), (["ZADD", key, str(index), new], 1)]

    def load(self):
        for first in range(0, self.slots, PER_COLLECTION):
            slots = range(first, first + PER_COLLECTION)
            kind, key, _ = self.key(first)
            if kind == 0:
                yield ["MSET"] + [x for slot in slots for x in (self.key(slot)[1], self.value(slot))], "OK"
            elif kind == 1:
                yield ["HSET", key] + [x for slot in slots for x in (f"f{slot - first}", self.value(slot))], PER_COLLECTION
            elif kind == 2:
                yield ["RPUSH", key] + [self.value(slot) for slot in slots], PER_COLLECTION
            else:
                yield ["ZADD", key] + [x for slot in slots for x in (str(slot - first), self.value(slot))], PER_COLLECTION


def converse(client, pairs):
    """Sends all, compares all; says what is wrong."""
    client.socket.sendall(b"".join(encode(command) for command, _ in pairs))
    for command, expected in pairs:
        reply = client.read()
        if reply != expected:
            raise SystemExit(f"{command[:3]}: {str(reply)[:80]} instead of {str(expected)[:80]}")


def batches(pairs, size):
    block = []
    for pair in pairs:
        block.append(pair)
        if len(block) >= size:
            yield block
            block = []
    if block:
        yield block


def work(port, part, slots, seconds, stage, results):
    """One process: loads, waits for the others, then reads and writes; at last tells its model and its speed."""
    mine = Part(part, slots)
    with Client(port, timeout=120) as client:
        for block in batches(mine.load(), 20):
            converse(client, block)
        stage.wait()
        rates, began = [], time.time()
        while time.time() < began + seconds:
            second, done = time.time() + 1, 0
            while time.time() < second:
                pairs = []
                for _ in range(BATCH):
                    slot = mine.dice.randrange(slots)
                    pairs += [mine.read(slot)] if mine.dice.random() < 0.7 else mine.write(slot)
                converse(client, pairs)
                done += len(pairs)
            rates.append(done)
    results.put((part, mine.versions, rates))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=["neokv", "redis"], default="neokv")
    parser.add_argument("--neokv", help="path of the neokv binary (release)")
    parser.add_argument("--cache-mb", type=int, default=128)
    parser.add_argument("--times", type=float, default=4.0, help="the data as a multiple of the cache")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--parts", type=int, default=4, help="clients")
    parser.add_argument("--shards", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.server == "neokv" and not args.neokv:
        parser.error("--neokv is missing")
    neokv = args.neokv and os.path.abspath(args.neokv)
    # Three quarters for values, one for blocks of files.
    sizes = {"--cache-size": args.cache_mb * 3 << 18, "--block-cache-size": args.cache_mb << 18}
    extra = [str(word) for pair in sizes.items() for word in pair] if args.server == "neokv" else []
    slots = int(args.cache_mb * 2**20 * args.times / VALUE_BYTES / args.parts) // PER_COLLECTION * PER_COLLECTION
    with Server(args.server, neokv=neokv, shards=args.shards, sync="everysec", extra=extra) as server:
        print(f"== {args.parts * slots:,} values of {VALUE_BYTES} bytes, cache {args.cache_mb} MB", flush=True)
        results, stage = multiprocessing.Queue(), multiprocessing.Barrier(args.parts)
        workers = [multiprocessing.Process(target=work, args=(server.port, n, slots, args.seconds, stage, results))
                   for n in range(args.parts)]
        for worker in workers:
            worker.start()
        found = []
        while len(found) < args.parts:
            try:
                found.append(results.get(timeout=1))
            except Exception:  # noqa: BLE001  (queue.Empty)
                if not server.alive() or any(worker.exitcode for worker in workers):
                    for worker in workers:
                        worker.terminate()
                    raise SystemExit(f"failed\n{server.tail()}") from None
        for worker in workers:
            worker.join()
        rates = [sum(second) for second in zip(*(rates for _, _, rates in found))]
        memory = server.rss_bytes() / 2**20
        half = sorted(rates[len(rates) // 2:])
        median, slow = statistics.median(half), half[len(half) // 10]
        print(f"   commands per second: {' '.join(f'{rate:,}' for rate in rates)}")
        print(f"   {memory:.0f} MB in memory, {server.disk_bytes() / 1e6:.0f} MB on disk; all replies right", flush=True)

        server.kill()
        server.launch()
        if not server.answers(120):
            raise SystemExit(f"no answer after the restart:\n{server.tail()}")
        for part, versions, _ in found:
            mine = Part(part, slots)
            mine.versions = versions
            with Client(server.port, timeout=120) as client:
                for block in batches((mine.read(slot) for slot in range(slots)), 100):
                    converse(client, block)
        print("   killed, started again: every value is there", flush=True)
    good = slow >= STEADY * median
    print(f"second half: median {median:,.0f}/s, slow seconds {slow:,}/s = {slow / median:.0%}, limit {STEADY:.0%}: "
          f"{'met' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
