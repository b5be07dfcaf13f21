// A session with ioredis' Cluster: spread keys, tags, pipelines, transactions, blocking pops, scans of all nodes.
const assert = require("assert");
const Redis = require("ioredis");

const [host, port] = [process.argv[2], Number(process.argv[3])];

async function main() {
  const r = new Redis.Cluster([{ host, port }], { clusterRetryStrategy: () => 100 });
  await r.set("first", "1");
  const masters = r.nodes("master");
  assert.equal(masters.length, 3);
  await Promise.all(masters.map((node) => node.flushall()));

  for (let i = 0; i < 100; i++) assert.equal(await r.set(`k:${i}`, i), "OK");
  const values = await Promise.all([...Array(100).keys()].map((i) => r.get(`k:${i}`)));
  assert.deepEqual(values, [...Array(100).keys()].map(String));

  const found = new Set();
  for (const node of masters) {
    for await (const keys of node.scanStream({ match: "k:*", count: 10 })) keys.forEach((key) => found.add(key));
  }
  assert.equal(found.size, 100);

  const pipeline = r.pipeline();
  for (let i = 0; i < 50; i++) pipeline.set(`{p}:${i}`, i).get(`{p}:${i}`);
  const replies = await pipeline.exec();
  replies.forEach(([error, reply], i) => {
    assert.equal(error, null);
    if (i % 2) assert.equal(reply, String((i - 1) / 2));
  });

  assert.deepEqual(await r.multi().set("{t}a", 1).incr("{t}a").exec(), [[null, "OK"], [null, 2]]);
  await assert.rejects(r.mget("a", "b"), /CROSSSLOT|same slot/);

  const other = new Redis.Cluster([{ host, port }]);
  const popped = other.blpop("{l}", 0);
  await r.rpush("{l}", "x");
  assert.deepEqual(await popped, ["{l}", "x"]);
  other.disconnect();
  r.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
