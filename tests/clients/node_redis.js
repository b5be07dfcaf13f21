// A session with node-redis (its pools, its automatic pipelining, its typed replies).
const assert = require("assert");
const { createClient, commandOptions } = require("redis");

const url = `redis://127.0.0.1:${process.argv[2]}`;

async function main() {
  const r = createClient({ url });
  r.on("error", (error) => {
    throw error;
  });
  await r.connect();
  await r.flushAll();

  assert.equal(await r.set("k", "v", { EX: 100 }), "OK");
  assert.equal(await r.get("k"), "v");
  assert.equal(await r.set("k", "w", { NX: true }), null);
  assert.equal(await r.incrBy("n", 5), 5);
  await r.mSet([["a", "1"], ["b", "2"], ["c", "3"]]);
  assert.deepEqual(await r.mGet(["a", "b", "c", "none"]), ["1", "2", "3", null]);
  await assert.rejects(r.lPush("k", "x"), /WRONGTYPE/);

  // Commands of one tick travel as one pipeline.
  const written = await Promise.all([...Array(1000).keys()].map((i) => r.set(`p:${i}`, String(i))));
  assert(written.every((reply) => reply === "OK"));
  const read = await Promise.all([...Array(1000).keys()].map((i) => r.get(`p:${i}`)));
  assert.deepEqual(read, [...Array(1000).keys()].map(String));

  assert.deepEqual(await r.multi().set("t", "1").incr("t").get("t").exec(), ["OK", 2, "2"]);
  await assert.rejects(
    r.executeIsolated(async (isolated) => {
      await isolated.watch("t");
      await r.set("t", "theirs");
      return isolated.multi().set("t", "mine").exec();
    }),
    /watch/i,
  );
  assert.equal(await r.get("t"), "theirs");

  await r.hSet("h", { name: "x", age: "3" });
  assert.deepEqual({ ...(await r.hGetAll("h")) }, { name: "x", age: "3" });
  await r.rPush("l", ["1", "2", "3"]);
  assert.deepEqual(await r.lRange("l", 0, -1), ["1", "2", "3"]);
  await r.sAdd("s", ["a", "b"]);
  assert.deepEqual((await r.sMembers("s")).sort(), ["a", "b"]);
  await r.zAdd("z", [{ score: 1.5, value: "one" }, { score: 2, value: "two" }]);
  assert.deepEqual(await r.zRangeWithScores("z", 0, -1), [{ value: "one", score: 1.5 }, { value: "two", score: 2 }]);

  const waiting = r.executeIsolated((isolated) => isolated.blPop(commandOptions({}), ["never", "queue"], 10));
  await r.rPush("queue", "job");
  assert.deepEqual({ ...(await waiting) }, { key: "queue", element: "job" });

  const found = new Set();
  for await (const key of r.scanIterator({ MATCH: "p:*", COUNT: 100 })) found.add(key);
  assert.equal(found.size, 1000);
  const fields = [];
  for await (const { field } of r.hScanIterator("h")) fields.push(field);
  assert.deepEqual(fields.sort(), ["age", "name"]);

  await r.quit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
