// Uses a server through ioredis, as applications in Node do: publish/subscribe, transactions, blocking commands and
// scripts. The arguments are the server's host and port.
import assert from "node:assert/strict";
import { once } from "node:events";
import { Redis } from "ioredis";

const [host, port] = [process.argv[2], Number(process.argv[3])];

/** Long enough for any reply of a server that works, on a busy machine, in milliseconds. */
const PATIENCE_MS = 20_000;

const clients = [];

/** Another connection, which is closed at the end of its case. */
function connect() {
  const client = new Redis({ host, port, maxRetriesPerRequest: 0, commandTimeout: PATIENCE_MS });
  clients.push(client);
  return client;
}

async function messages(client) {
  const subscriber = connect();
  assert.equal(await subscriber.subscribe("news"), 1);
  assert.equal(await subscriber.psubscribe("n*"), 2);
  const both = Promise.all([once(subscriber, "message"), once(subscriber, "pmessage")]);
  assert.equal(await client.publish("news", "hello"), 2);
  assert.deepEqual(await both, [["news", "hello"], ["n*", "news", "hello"]]);
  assert.equal(await subscriber.unsubscribe("news"), 1);
  assert.equal(await client.publish("news", "again"), 1);
}

async function transaction(client) {
  const replies = await client.multi().set("a", "1").incrby("a", 4).get("a").rpush("list", "x", "y").exec();
  assert.deepEqual(replies, [[null, "OK"], [null, 5], [null, "5"], [null, 2]]);
}

/** A transaction fails when another client has changed what it watches, and its repetition does not. */
async function watched(client) {
  const other = connect();
  await client.set("counter", "0");
  for (const isDisturbed of [true, false]) {
    await client.watch("counter");
    const next = Number(await client.get("counter")) + 1;
    if (isDisturbed) await other.incr("counter");
    const replies = await client.multi().set("counter", next).exec();
    assert.deepEqual(replies, isDisturbed ? null : [[null, "OK"]]);
  }
  assert.equal(await client.get("counter"), "2");
}

async function failing(client) {
  const [[none, ok], [error], [, after]] = await client.multi().set("text", "x").incr("text").get("text").exec();
  assert.deepEqual([none, ok, after], [null, "OK", "x"]);
  assert.match(error.message, /^ERR value is not an integer/);
  await assert.rejects(client.multi().call("nosuchcommand").exec(), /EXECABORT/);
}

async function blocking(client) {
  const waiter = connect();
  const id = await waiter.client("ID");
  const element = waiter.blpop("jobs", 0);
  while (!(await client.client("LIST", "ID", id)).includes("cmd=blpop")) await new Promise(setImmediate);
  assert.equal(await client.rpush("jobs", "job"), 1);
  assert.deepEqual(await element, ["jobs", "job"]);
  assert.equal(await waiter.blpop("jobs", 0.01), null);
}

/** A sliding window of calls, kept in a sorted set by a script that is known by its name. */
async function script(client) {
  client.defineCommand("allow", {
    numberOfKeys: 1,
    lua: `
      local now, window, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
      redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now - window)
      if redis.call("ZCARD", KEYS[1]) >= most then return 0 end
      redis.call("ZADD", KEYS[1], now, ARGV[4])
      redis.call("PEXPIRE", KEYS[1], window)
      return 1`,
  });
  const calls = [[1000, "a"], [1001, "b"], [1002, "c"], [1999, "d"], [2001, "e"]];
  const allowed = [];
  for (const [now, id] of calls) allowed.push(await client.allow("calls", now, 1000, 2, id));
  assert.deepEqual(allowed, [1, 1, 0, 0, 1]);
  await client.script("FLUSH");
  const replies = await client.pipeline().allow("others", 1, 1000, 1, "a").allow("others", 2, 1000, 1, "b").exec();
  assert.deepEqual(replies, [[null, 1], [null, 0]]);
}

const cases = [
  ["messages reach channels and patterns", messages],
  ["a transaction is executed as one", transaction],
  ["a transaction fails when what it watches has changed", watched],
  ["errors inside of a transaction are those of their commands", failing],
  ["a client that blocks is served", blocking],
  ["a script limits calls", script],
];

for (const [name, run] of cases) {
  const client = connect();
  const expired = setTimeout(() => {
    console.error(`ioredis: ${name}: nothing came`);
    process.exit(1);
  }, PATIENCE_MS);
  try {
    await client.flushall();
    await run(client);
  } catch (error) {
    console.error(`ioredis: ${name}:`, error);
    process.exit(1);
  }
  clearTimeout(expired);
  clients.splice(0).forEach((each) => each.disconnect());
}
console.log(`ioredis: ${cases.length} cases`);
