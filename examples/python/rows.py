"""Rows of a table over gRPC: follows leaders, retries, and does every write once. See README.md."""

import os
import sys
import time

import grpc

from neokv.table.v1 import table_pb2 as api
from neokv.table.v1 import table_pb2_grpc as service


class Rows:
    """One table; asks any node of a cluster, or the one there is."""

    def __init__(self, node, table, timeout=5.0):
        self.node, self.table, self.timeout = node, table, timeout
        self.stubs = {}
        self.client, self.number = os.urandom(16), 0

    def options(self, **more):
        self.number += 1
        return api.WriteOptions(request=api.RequestId(client=self.client, number=self.number), **more)

    def call(self, method, request):
        """Sends the same request until it is answered: the request id makes that safe."""
        node, deadline, pause = self.node, time.monotonic() + self.timeout, 0.002
        while (left := deadline - time.monotonic()) > 0:
            if node not in self.stubs:
                self.stubs[node] = service.TableStub(grpc.insecure_channel(node))
            try:
                reply = getattr(self.stubs[node], method)(request, timeout=left)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                node = self.node
            else:
                if reply.status == api.STATUS_ERROR:
                    raise ValueError(reply.error)
                if reply.status == api.STATUS_NOT_LEADER:
                    node = reply.leader or self.node
                elif reply.status not in (api.STATUS_RETRY, api.STATUS_TIMEOUT, api.STATUS_SLOT_MOVING, api.STATUS_ROUTE_STALE):
                    return reply
            time.sleep(min(pause, max(left, 0)))
            pause = min(pause * 2, 0.2)
        raise TimeoutError(method)

    def get(self, key, **more):
        return self.call("Get", api.GetRequest(table=self.table, key=key, **more))

    def set(self, key, fields, **options):
        request = api.SetRequest(table=self.table, key=key, options=self.options(**options))
        for name, value in fields.items():
            request.fields[name].CopyFrom(value_of(value))
        return self.call("Set", request)

    def incr(self, key, field, amount):
        return self.call("IncrBy", api.IncrByRequest(
            table=self.table, key=key, field=field, amount=value_of(amount), options=self.options()))

    def delete(self, key):
        return self.call("Del", api.DelRequest(table=self.table, key=key, options=self.options()))


def value_of(value):
    if isinstance(value, int):
        return api.Value(int64_value=value) if value < 2**63 else api.Value(uint64_value=value)
    kind = {float: "float64_value", str: "string_value", bytes: "blob_value"}[type(value)]
    return api.Value(**{kind: value})


def plain(reply):
    """The fields of a reply as Python values."""
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in reply.fields.items()}


def main():
    users = Rows(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8379", "users")
    row = users.set("alice", {"name": "Alice", "age": 7})
    print("set      ", api.Status.Name(row.status), "version", row.version)
    row = users.get("alice")
    print("get      ", plain(row), "version", row.version)
    same = users.get("alice", have_version=row.version)
    print("get again", api.Status.Name(same.status))
    print("incr     ", plain(users.incr("alice", "gold", 10)))
    late = users.set("alice", {"age": 8}, expected_version=row.version)
    print("too late ", api.Status.Name(late.status), "is at version", late.version, plain(late))
    print("del      ", api.Status.Name(users.delete("alice").status))
    print("get      ", api.Status.Name(users.get("alice").status))
    try:
        users.set("alice", {"age": "old"})
    except ValueError as error:
        print("refused  ", error)


if __name__ == "__main__":
    main()
