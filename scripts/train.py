#!/usr/bin/env python3
"""Traffic for a neokv that writes down which of its code runs (scripts/profile): commands of every family, one at a time and in
pipelines, by few and many clients; in memory and on disk; with a restart, and reads of what memory does not have then.

    scripts/train.py --neokv path/to/instrumented/neokv --bursts path/to/bursts
"""

import argparse
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from servers import Client, Server  # noqa: E402

KEYS = 200_000
MEMBERS = 20_000
VALUE = "x" * 64
RAND = "__rand_int__"

# What applications do most comes twice.
COMMANDS = [
    (KEYS, "SET", f"key:{RAND}", VALUE),
    (KEYS, "GET", f"key:{RAND}"),
    (KEYS, "SET", f"key:{RAND}", VALUE, "EX", "1000"),
    (KEYS, "GET", f"key:{RAND}"),
    (KEYS, "INCR", f"counter:{RAND}"),
    (KEYS, "MSET", f"key:{RAND}", VALUE, f"other:{RAND}", VALUE),
    (KEYS, "MGET", f"key:{RAND}", f"other:{RAND}", f"none:{RAND}"),
    (KEYS, "EXPIRE", f"key:{RAND}", "1000"),
    (KEYS, "EXISTS", f"key:{RAND}"),
    (MEMBERS, "HSET", "hash", f"field:{RAND}", VALUE),
    (MEMBERS, "HGET", "hash", f"field:{RAND}"),
    (KEYS, "HSET", f"user:{RAND}", "name", VALUE, "visits", "1"),
    (KEYS, "HINCRBY", f"user:{RAND}", "visits", "1"),
    (KEYS, "HGETALL", f"user:{RAND}"),
    (1, "LPUSH", "list", "element"),
    (1, "LRANGE", "list", "0", "9"),
    (KEYS, "RPUSH", f"queue:{RAND}", "element"),
    (KEYS, "LPOP", f"queue:{RAND}"),
    (MEMBERS, "SADD", "set", f"member:{RAND}"),
    (MEMBERS, "SISMEMBER", "set", f"member:{RAND}"),
    (MEMBERS, "ZADD", "scores", RAND, f"member:{RAND}"),
    (MEMBERS, "ZINCRBY", "scores", "1", f"member:{RAND}"),
    (MEMBERS, "ZRANK", "scores", f"member:{RAND}"),
    (1, "ZREVRANGE", "scores", "0", "9", "WITHSCORES"),
    (KEYS, "SETNX", f"lock:{RAND}", "1"),
    (KEYS, "DEL", f"lock:{RAND}"),
    (1, "PING"),
]
LOADS = [(50, 1), (50, 16), (200, 16)]  # clients and pipeline
SECONDS = 0.3


def traffic(server, bursts, commands):
    for space, *command in commands:
        for clients, pipeline in LOADS:
            line = [bursts, "--address", f"127.0.0.1:{server.port}", "--clients", str(clients), "--pipeline", str(pipeline),
                    "--range", str(space), "--seconds", str(SECONDS), "--", *command]
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        with Client(server.port) as client:
            client.ask("DEL", "list")


def end(server):
    """In order: only then does the process write its profile."""
    server.process.send_signal(signal.SIGTERM)
    if server.process.wait(120) != 0:
        raise SystemExit(f"neokv ended with {server.process.returncode}:\n{server.tail()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neokv", required=True)
    parser.add_argument("--bursts", required=True)
    args = parser.parse_args()
    reads = [line for line in COMMANDS if line[1] in ("GET", "HGET", "HGETALL", "ZRANK")]
    for sync, shards in ((None, 1), ("always", 1), ("everysec", 1), ("always", 2)):
        print(f"-- {'in memory' if sync is None else 'log-sync ' + sync}, {shards} of its cores", flush=True)
        with Server("neokv", neokv=args.neokv, shards=shards, sync=sync) as server:
            traffic(server, args.bursts, COMMANDS)
            end(server)
            if sync is not None:
                server.launch()
                if not server.answers(120):
                    raise SystemExit(f"no answer after a restart:\n{server.tail()}")
                traffic(server, args.bursts, reads)
                end(server)


if __name__ == "__main__":
    main()
