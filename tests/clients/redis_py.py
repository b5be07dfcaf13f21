"""A session with redis-py: pipelines, WATCH, blocking pops, scans, all types, RESP2 and RESP3, big binary values."""

import os
import sys
import threading
import time

import redis

PORT = int(sys.argv[1])


def connect(**options):
    return redis.Redis(port=PORT, **options)


def eventually(condition):
    deadline = time.time() + 10
    while not condition():
        assert time.time() < deadline, "it never came true"
        time.sleep(0.005)


def strings(r):
    assert r.set("greeting", "hello", ex=100) is True
    assert r.get("greeting") == b"hello"
    assert 0 < r.ttl("greeting") <= 100
    assert r.set("greeting", "other", nx=True) is None
    assert r.set("greeting", "bye", get=True) == b"hello"
    assert r.ttl("greeting") == -1
    assert r.incr("counter", 5) == 5
    assert r.incrbyfloat("float", 0.25) == 0.25
    assert r.mset({f"m:{i}": i for i in range(50)}) is True
    assert r.mget([f"m:{i}" for i in range(50)]) == [str(i).encode() for i in range(50)]
    assert r.delete(*[f"m:{i}" for i in range(50)]) == 50
    assert r.append("greeting", "!") == 4
    assert r.getrange("greeting", -2, -1) == b"e!"
    assert r.setbit("bits", 100, 1) == 0 and r.bitcount("bits") == 1
    try:
        r.lpush("greeting", "x")
        raise AssertionError("a list command on a string must fail")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE") or "wrong kind" in str(error)


def big_values(r):
    for size in (64 * 1024, 5 * 1024 * 1024):
        blob = os.urandom(size)
        assert r.set("blob", blob) is True
        assert r.strlen("blob") == size
        assert r.get("blob") == blob
        assert r.getrange("blob", size - 10, -1) == blob[-10:]
    assert r.hset("blobs", mapping={bytes([i]): os.urandom(100) for i in range(256)}) == 256
    assert set(r.hkeys("blobs")) == {bytes([i]) for i in range(256)}


def pipelines(r):
    pipe = r.pipeline(transaction=False)
    for i in range(1000):
        pipe.set(f"p:{i}", i)
        pipe.get(f"p:{i}")
    replies = pipe.execute()
    assert replies[1::2] == [str(i).encode() for i in range(1000)]
    with r.pipeline(transaction=True) as pipe:
        pipe.incr("tx").incr("tx").get("tx")
        assert pipe.execute() == [1, 2, b"2"]
    pipe = r.pipeline(transaction=False)
    pipe.set("s", "x").lpush("s", "y").get("s")
    replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and isinstance(replies[1], redis.ResponseError) and replies[2] == b"x"


def transactions(r):
    """Increments by read, compute, write under WATCH from many clients lose nothing."""
    r.set("watched", 0)
    r.set("mirror", 0)

    def work():
        mine = connect()
        for _ in range(50):
            while True:
                with mine.pipeline() as pipe:
                    try:
                        pipe.watch("watched", "mirror")
                        value = int(pipe.get("watched")) + 1
                        pipe.multi()
                        pipe.set("watched", value)
                        pipe.set("mirror", value)
                        pipe.execute()
                        break
                    except redis.WatchError:
                        continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.mget("watched", "mirror") == [b"200", b"200"]
    assert r.transaction(lambda pipe: pipe.multi() or pipe.incr("watched"), "watched") == [201]


def collections(r):
    assert r.hset("h", mapping={"name": "x", "age": 3}) == 2
    assert r.hgetall("h") == {b"name": b"x", b"age": b"3"}
    assert r.hincrby("h", "age", 4) == 7
    assert r.hmget("h", "age", "none") == [b"7", None]
    assert r.rpush("l", *range(10)) == 10
    assert r.lrange("l", -3, -1) == [b"7", b"8", b"9"]
    assert r.lmove("l", "l2", "LEFT", "RIGHT") == b"0"
    assert r.lpos("l", 5) == 4
    assert r.sadd("a", 1, 2, 3) == 3 and r.sadd("b", 2, 3, 4) == 3
    assert r.sinter("a", "b") == {b"2", b"3"}
    assert r.sunionstore("c", "a", "b") == 4
    assert r.smismember("a", [1, 9]) == [1, 0]
    assert r.zadd("z", {"one": 1, "two": 2, "three": 3}) == 3
    assert r.zrange("z", 0, -1, withscores=True)[0][0] == b"one"
    assert r.zrangebyscore("z", "(1", "+inf") == [b"two", b"three"]
    assert r.zrank("z", "three") == 2
    assert r.zincrby("z", 10, "one") == 11
    assert r.zrevrange("z", 0, 0) == [b"one"]
    assert [m for m, _ in r.zpopmin("z", 2)] == [b"two", b"three"]
    assert r.sort("l", desc=True, start=0, num=2) == [b"9", b"8"]
    assert r.rename("c", "renamed") is True
    assert r.type("renamed") == b"set"


def scans(r):
    r.flushdb()
    pipe = r.pipeline(transaction=False)
    for i in range(5000):
        pipe.set(f"scan:{i}", i)
    for i in range(100):
        pipe.rpush(f"scanlist:{i}", i)
    pipe.execute()
    assert r.dbsize() == 5100
    assert len(set(r.scan_iter("scan:*", count=100))) == 5000
    assert len(set(r.scan_iter(_type="list"))) == 100
    assert len(r.keys("scan:*")) == 5000
    r.hset("bighash", mapping={i: i for i in range(2000)})
    assert len(dict(r.hscan_iter("bighash"))) == 2000
    r.sadd("bigset", *range(2000))
    assert len(set(r.sscan_iter("bigset"))) == 2000
    r.zadd("bigzset", {str(i): i for i in range(2000)})
    assert len(dict(r.zscan_iter("bigzset"))) == 2000


def blocking(r):
    got = []

    def wait():
        got.append(connect().blpop(["never", "queue"], timeout=10))

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: r.info("clients")["blocked_clients"] == 1)
    assert r.rpush("queue", "job") == 1
    thread.join()
    assert [tuple(item) for item in got] == [(b"queue", b"job")]
    assert r.blpop("never", timeout=0.01) is None
    assert r.brpop("never", timeout=0.01) is None
    assert r.bzpopmin("never", timeout=0.01) is None


def expiry(r):
    r.set("short", 1, px=30)
    eventually(lambda: r.get("short") is None)
    r.set("long", 1)
    assert r.expire("long", 100) and r.persist("long") and r.ttl("long") == -1
    assert not r.expire("none", 1)


def server(r):
    assert r.ping()
    assert r.info()["redis_version"].startswith("7.")
    assert r.config_get("maxmemory")["maxmemory"] is not None
    assert r.client_setname("tester") and r.client_getname() in ("tester", b"tester")
    assert any(client["name"] == "tester" for client in r.client_list())
    assert r.command_count() > 100
    assert len(r.time()) == 2
    other = connect(db=3)
    other.set("only3", 1)
    assert r.get("only3") is None and other.get("only3") == b"1"


for protocol in (2, 3):
    client = connect(protocol=protocol)
    client.flushall()
    for scene in (strings, big_values, pipelines, transactions, collections, scans, blocking, expiry, server):
        try:
            scene(client)
        except Exception:
            print(f"in {scene.__name__} with RESP{protocol}", file=sys.stderr)
            raise
