"""redis-py's RedisCluster while nodes die: it works until its input ends, and writes what it saw, one JSON line per call and return.

    storm_py.py HOST:PORT,… GROUP,… SESSION FILE

See tests/cluster/stock/mod.rs for the sessions and for what the lines mean.
"""

import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
import traceback

from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    ClusterDownError,
    ConnectionError,
    MovedError,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.retry import Retry

NODES = [node.rsplit(":", 1) for node in sys.argv[1].split(",")]
GROUPS = sys.argv[2].split(",")
SESSION = int(sys.argv[3])
FILE = os.open(sys.argv[4], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
REST = 0.006
REFUSED = (MovedError, TryAgainError, ClusterDownError, SlotNotCoveredError)
stopped = threading.Event()
# Where it is, if it does not go on.
faulthandler.register(signal.SIGUSR1)


def write(**line):
    # One write per line: threads do not mix within one.
    os.write(FILE, (json.dumps({"at": time.monotonic_ns(), **line}) + "\n").encode())


def fate(error):
    text = str(error)
    # A connection that was not made has carried nothing.
    if isinstance(error, REFUSED) or isinstance(error, ConnectionError) and " connecting to " in text:
        return "refused"
    if not isinstance(error, (RedisError, OSError)):
        traceback.print_exception(error)
    # What else a server says in plain words is not expected.
    if isinstance(error, AssertionError):
        return "surprise"
    if isinstance(error, ResponseError) and not text.startswith("INDOUBT"):
        return "surprise"
    return "unknown"


class Session:
    def __init__(self, number, **settings):
        self.number, self.calls, self.settings = number, 0, settings
        self.client = None

    def cluster(self):
        if self.client is None:
            self.client = RedisCluster(
                startup_nodes=[ClusterNode(host, int(port)) for host, port in NODES],
                socket_timeout=1,
                socket_connect_timeout=1,
                decode_responses=True,
                **self.settings,
            )
        return self.client

    def call(self, op, key, value=None):
        self.calls += 1
        name = {"session": self.number, "call": self.calls}
        write(op=op, key=key, value=value, **name)
        try:
            r = self.cluster()
            if op == "GET":
                seen = r.get(key)
                seen = int(seen) if seen is not None and key.endswith("n") else seen
            elif op == "SET":
                assert r.set(key, value) is True
                seen = None
            elif op == "SWAP":
                seen = r.set(key, value, get=True)
            elif op == "APPEND":
                seen = r.append(key, value)
            elif op == "INCR":
                seen = r.incr(key)
            elif op == "GETDEL":
                seen = r.getdel(key)
            elif op == "SADD":
                seen = r.sadd(key, value)
            write(fate="done", seen=seen, **name)
        # The client fails in other ways, too, while nodes come and go.
        except Exception as error:
            write(fate=fate(error), why=f"{type(error).__name__} {error}", **name)
            time.sleep(0.02)

    def value(self):
        return f"{self.number}-{self.calls + 1}"


def strict(number):
    """Nothing is sent twice unless a node said that it has not happened: so each call happens once or not at all."""
    session = Session(number, retry=Retry(NoBackoff(), 0))
    while not stopped.is_set():
        group = GROUPS[session.calls % len(GROUPS)]
        op, kind = random.choice(
            [("GET", "r")] * 5
            + [("SET", "r")] * 3
            + [("SWAP", "r")] * 2
            + [("GETDEL", "r"), ("GET", "l"), ("GET", "l"), ("APPEND", "l"), ("APPEND", "l"), ("INCR", "n"), ("GET", "n")]
        )
        value = session.value()
        session.call(op, group + kind, value + "," if op == "APPEND" else value)
        time.sleep(REST)


def default(number):
    """As the client comes: it may repeat what it does not know, so its writes are such that this is the same."""
    session = Session(number)
    while not stopped.is_set():
        group = GROUPS[session.calls // 2 % len(GROUPS)]
        if session.calls % 2:
            session.call("GET", group + "r")
        else:
            session.call("SADD", group + "s", session.value())
        time.sleep(REST)


threads = [threading.Thread(target=strict, args=(SESSION,)), threading.Thread(target=default, args=(SESSION + 1,))]
for thread in threads:
    thread.start()
sys.stdin.read()
stopped.set()
for thread in threads:
    thread.join()
