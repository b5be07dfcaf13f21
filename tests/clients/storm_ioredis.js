// ioredis' Cluster while nodes die: it works until its input ends, and writes what it saw, one JSON line per call and return.
//
//     storm_ioredis.js HOST:PORT,… GROUP,… SESSION FILE
//
// See tests/cluster/stock/mod.rs for the sessions and for what the lines mean.
const fs = require("fs");
const Redis = require("ioredis");

const nodes = process.argv[2].split(",").map((node) => {
  const at = node.lastIndexOf(":");
  return { host: node.slice(0, at), port: Number(node.slice(at + 1)) };
});
const groups = process.argv[3].split(",");
const number = Number(process.argv[4]);
const file = fs.openSync(process.argv[5], "a");
const REST = 6;
let stopped = false;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// CLOCK_MONOTONIC, as in the other clients; nanoseconds do not fit a number, so the digits are written.
function write(line) {
  fs.writeSync(file, `{"at":${process.hrtime.bigint()},${JSON.stringify(line).slice(1)}\n`);
}

function fate(error) {
  const words = error.message.replace("Too many Cluster redirections. Last error: ReplyError: ", "");
  if (/^(MOVED|TRYAGAIN|CLUSTERDOWN|LOADING) /.test(words)) return "refused";
  // What else a server says in plain words is not expected.
  if (error.name === "ReplyError" && !words.startsWith("INDOUBT")) return "surprise";
  return "unknown";
}

class Session {
  constructor(number, settings) {
    this.number = number;
    this.calls = 0;
    this.r = new Redis.Cluster(nodes, {
      // A node that stands still closes no connection: somebody has to ask who leads now.
      slotsRefreshInterval: 1000,
      redisOptions: { commandTimeout: 1500, connectTimeout: 1000 },
      ...settings,
    });
    this.r.on("error", () => {});
  }

  async call(op, key, value) {
    this.calls += 1;
    const name = { session: this.number, call: this.calls };
    write({ ...name, op, key, value });
    try {
      let seen = await this.send(op, key, value);
      if (op === "GET" && key.endsWith("n") && seen !== null) seen = Number(seen);
      if (op === "SET") seen = seen === "OK" ? null : `not OK: ${seen}`;
      write({ ...name, fate: "done", seen });
    } catch (error) {
      write({ ...name, fate: fate(error), why: `${error.name} ${error.message}` });
      await sleep(20);
    }
  }

  send(op, key, value) {
    switch (op) {
      case "GET":
        return this.r.get(key);
      case "SET":
        return this.r.set(key, value);
      case "SWAP":
        return this.r.set(key, value, "GET");
      case "APPEND":
        return this.r.append(key, value);
      case "INCR":
        return this.r.incr(key);
      case "GETDEL":
        return this.r.getdel(key);
      case "SADD":
        return this.r.sadd(key, value);
    }
  }

  value() {
    return `${this.number}-${this.calls + 1}`;
  }
}

const MIX = [
  ...Array(5).fill(["GET", "r"]),
  ...Array(3).fill(["SET", "r"]),
  ...Array(2).fill(["SWAP", "r"]),
  ["GETDEL", "r"],
  ...Array(2).fill(["GET", "l"]),
  ...Array(2).fill(["APPEND", "l"]),
  ["INCR", "n"],
  ["GET", "n"],
];

// Nothing is sent twice unless a node said that it has not happened: so each call happens once or not at all.
async function strict(number) {
  const session = new Session(number, { retryDelayOnFailover: 0 });
  while (!stopped) {
    const group = groups[session.calls % groups.length];
    const [op, kind] = MIX[Math.floor(Math.random() * MIX.length)];
    const value = session.value();
    await session.call(op, group + kind, op === "APPEND" ? `${value},` : value);
    await sleep(REST);
  }
}

// As the client comes: it may repeat what it does not know, so its writes are such that this is the same.
async function asItComes(number) {
  const session = new Session(number, {});
  while (!stopped) {
    const group = groups[Math.floor(session.calls / 2) % groups.length];
    if (session.calls % 2) await session.call("GET", `${group}r`);
    else await session.call("SADD", `${group}s`, session.value());
    await sleep(REST);
  }
}

process.stdin.resume();
process.stdin.on("end", () => {
  stopped = true;
});
Promise.all([strict(number), asItComes(number + 1)]).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
