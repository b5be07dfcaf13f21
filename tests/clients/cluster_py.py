"""A session with redis-py's RedisCluster: spread keys, tags, pipelines, transactions, scans, all nodes."""

import sys

import redis
from redis.cluster import ClusterNode, RedisCluster

HOST, PORT = sys.argv[1], int(sys.argv[2])


def main():
    r = RedisCluster(startup_nodes=[ClusterNode(HOST, PORT)])
    assert len(r.get_nodes()) == 3
    r.flushall(target_nodes=RedisCluster.PRIMARIES)
    for i in range(100):
        assert r.set(f"k:{i}", i) is True
    for i in range(100):
        assert r.get(f"k:{i}") == str(i).encode()
    assert r.dbsize(target_nodes=RedisCluster.PRIMARIES) == 100
    assert r.mset_nonatomic({f"k:{i}": -i for i in range(100)})
    assert r.mget_nonatomic([f"k:{i}" for i in range(100)]) == [str(-i).encode() for i in range(100)]
    assert sorted(r.scan_iter("k:*")) == sorted(f"k:{i}".encode() for i in range(100))

    pipe = r.pipeline()
    for i in range(100):
        pipe.set(f"p:{i}", i).get(f"p:{i}")
    assert pipe.execute() == [v for i in range(100) for v in (True, str(i).encode())]

    assert r.mset({"{t}a": 1, "{t}b": 2}) is True
    assert r.mget("{t}a", "{t}b") == [b"1", b"2"]
    assert r.rpush("{t}l", "x", "y") == 2
    assert r.lmove("{t}l", "{t}m") == b"x"
    assert r.zadd("{t}z", {"one": 1, "two": 2}) == 2
    assert r.zunionstore("{t}u", ["{t}z", "{t}z"]) == 2
    assert r.delete("{t}a", "{t}b", "{t}l", "{t}m", "{t}z", "{t}u") == 6
    try:
        r.execute_command("MGET", "a", "b")
        raise AssertionError("keys of two slots")
    except redis.exceptions.RedisClusterException:
        pass

    # A transaction at the node of its slot.
    node = r.get_redis_connection(r.get_node_from_key("{tx}a"))
    with node.pipeline() as tx:
        tx.watch("{tx}a")
        tx.multi()
        tx.set("{tx}a", 1)
        tx.incr("{tx}a")
        assert tx.execute() == [True, 2]
    r.close()


main()
