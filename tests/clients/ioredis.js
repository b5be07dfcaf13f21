// A session with ioredis: pipelines, MULTI, WATCH, blocking pops, scan streams, all types, binary values.
const assert = require("assert");
const crypto = require("crypto");
const Redis = require("ioredis");

const port = Number(process.argv[2]);
const connect = () => new Redis({ port, maxRetriesPerRequest: 1 });

async function eventually(condition) {
  const deadline = Date.now() + 10000;
  while (!(await condition())) {
    assert(Date.now() < deadline, "it never came true");
    await new Promise((done) => setTimeout(done, 5));
  }
}

async function main() {
  const r = connect();
  await r.flushall();

  assert.equal(await r.set("k", "v", "EX", 100), "OK");
  assert.equal(await r.get("k"), "v");
  assert.equal(await r.set("k", "w", "NX"), null);
  assert((await r.ttl("k")) > 0);
  assert.equal(await r.incr("n"), 1);
  await r.mset(new Map([["a", 1], ["b", 2], ["c", 3], ["d", 4]]));
  assert.deepEqual(await r.mget("a", "b", "c", "d", "none"), ["1", "2", "3", "4", null]);
  await assert.rejects(r.lpush("k", "x"), /WRONGTYPE/);

  const blob = crypto.randomBytes(2 * 1024 * 1024);
  await r.set("blob", blob);
  assert(blob.equals(await r.getBuffer("blob")));

  const pipeline = r.pipeline();
  for (let i = 0; i < 1000; i++) pipeline.set(`p:${i}`, i).get(`p:${i}`);
  const replies = await pipeline.exec();
  replies.forEach(([error, reply], i) => {
    assert.equal(error, null);
    if (i % 2) assert.equal(reply, String((i - 1) / 2));
  });

  // Unawaited commands share the connection: replies must come in order.
  const many = await Promise.all([...Array(500).keys()].map((i) => r.get(`p:${i}`)));
  assert.deepEqual(many, [...Array(500).keys()].map(String));

  assert.deepEqual(await r.multi().set("t1", 1).set("t2", 2).mget("t1", "t2").exec(),
    [[null, "OK"], [null, "OK"], [null, ["1", "2"]]]);
  const other = connect();
  await r.watch("t1", "t2");
  await other.set("t2", "theirs");
  assert.equal(await r.multi().set("t1", "mine").exec(), null);
  assert.equal(await r.get("t1"), "1");

  assert.equal(await r.hset("h", { name: "x", age: 3 }), 2);
  assert.deepEqual(await r.hgetall("h"), { name: "x", age: "3" });
  assert.equal(await r.rpush("l", 1, 2, 3), 3);
  assert.deepEqual(await r.lrange("l", 0, -1), ["1", "2", "3"]);
  assert.equal(await r.sadd("s", "a", "b"), 2);
  assert.deepEqual((await r.smembers("s")).sort(), ["a", "b"]);
  assert.equal(await r.zadd("z", 1, "one", 2, "two"), 2);
  assert.deepEqual(await r.zrange("z", 0, -1, "WITHSCORES"), ["one", "1", "two", "2"]);
  assert.deepEqual(await r.zrangebyscore("z", "(1", "+inf"), ["two"]);

  const waiting = other.blpop("never", "queue", 10);
  await eventually(async () => (await r.info("clients")).includes("blocked_clients:1"));
  await r.rpush("queue", "job");
  assert.deepEqual(await waiting, ["queue", "job"]);
  assert.equal(await other.blpop("never", 0.01), null);

  const found = new Set();
  for await (const keys of r.scanStream({ match: "p:*", count: 100 })) keys.forEach((key) => found.add(key));
  assert.equal(found.size, 1000);

  await r.select(5);
  assert.equal(await r.dbsize(), 0);

  await r.quit();
  await other.quit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
