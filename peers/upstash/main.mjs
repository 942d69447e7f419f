// Uses @upstash/redis, as it is published, against the HTTP port of Tierce.
//
//     node main.mjs http://127.0.0.1:8080 [token]

import assert from "node:assert/strict";
import { Redis } from "@upstash/redis";

const [url, token = "any"] = process.argv.slice(2);
const redis = new Redis({ url, token });
// Without base64, and without JSON made of what it sends.
const plain = new Redis({ url, token, responseEncoding: false, automaticDeserialization: false });

const done = [];
async function check(name, body) {
  await body();
  done.push(name);
}

await check("strings", async () => {
  assert.equal(await redis.set("s", "grüß\u0000 dich 🐟"), "OK");
  assert.equal(await redis.get("s"), "grüß\u0000 dich 🐟");
  assert.equal(await redis.set("s", "x", { nx: true }), null);
  assert.equal(await redis.set("t", "x", { ex: 100 }), "OK");
  assert.equal(await redis.ttl("t"), 100);
  assert.equal(await redis.get("absent"), null);
  assert.equal(await redis.ping(), "PONG");
  assert.equal(await redis.set("ok", "OK"), "OK");
  assert.equal(await redis.get("ok"), "OK");
});

await check("numbers and objects", async () => {
  assert.equal(await redis.incrby("n", 41), 41);
  assert.equal(await redis.incr("n"), 42);
  await redis.set("o", { a: [1, "two", null], b: true });
  assert.deepEqual(await redis.get("o"), { a: [1, "two", null], b: true });
  assert.equal(await plain.get("o"), '{"a":[1,"two",null],"b":true}');
});

await check("collections", async () => {
  assert.equal(await redis.rpush("l", "a", "b", 3), 3);
  assert.deepEqual(await redis.lrange("l", 0, -1), ["a", "b", 3]);
  assert.equal(await redis.hset("h", { one: 1, two: "zwei" }), 2);
  assert.deepEqual(await redis.hgetall("h"), { one: 1, two: "zwei" });
  assert.equal(await redis.sadd("set", "x", "y"), 2);
  assert.deepEqual((await redis.smembers("set")).sort(), ["x", "y"]);
  assert.equal(await redis.zadd("z", { score: 2, member: "b" }, { score: 1, member: "a" }), 2);
  assert.deepEqual(await redis.zrange("z", 0, -1, { withScores: true }), ["a", 1, "b", 2]);
  assert.match(await redis.xadd("x", "*", { field: "value" }), /^\d+-\d+$/);
  assert.equal(Object.values(await redis.xrange("x", "-", "+"))[0].field, "value");
});

await check("scripts", async () => {
  assert.deepEqual(await redis.eval("return {KEYS[1], ARGV[1]}", ["k"], ["v"]), ["k", "v"]);
  const sum = await redis.scriptLoad("return ARGV[1] + 1");
  assert.equal(await redis.evalsha(sum, [], [41]), 42);
});

await check("pipelines", async () => {
  const pipeline = redis.pipeline();
  pipeline.set("p", 1);
  pipeline.incr("p");
  pipeline.get("p");
  assert.deepEqual(await pipeline.exec(), ["OK", 2, 2]);
  const errors = await redis.pipeline().set("q", "x").incr("q").exec({ keepErrors: true });
  assert.equal(errors[0].result, "OK");
  assert.match(errors[1].error, /not an integer/);
});

await check("transactions", async () => {
  assert.deepEqual(await redis.multi().set("m", 1).incr("m").exec(), ["OK", 2]);
});

await check("errors", async () => {
  await assert.rejects(redis.incr("l"), /WRONGTYPE/);
  await assert.rejects(redis.multi().incr("l").exec(), /WRONGTYPE/);
});

await check("scans", async () => {
  const keys = [];
  let cursor = "0";
  do {
    const [next, found] = await redis.scan(cursor, { match: "*", count: 3 });
    keys.push(...found);
    cursor = next;
  } while (cursor !== "0");
  assert.equal(new Set(keys).size, await redis.dbsize());
});

await check("bytes by fetch", async () => {
  const headers = { Authorization: `Bearer ${token}`, "Upstash-Encoding": "base64" };
  const bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte);
  await fetch(`${url}/set/bytes`, { method: "POST", headers, body: bytes });
  const { result } = await (await fetch(`${url}/get/bytes`, { headers })).json();
  assert.deepEqual(new Uint8Array(Buffer.from(result, "base64")), bytes);
});

await check("subscriptions", async () => {
  const next = (subscriber, event) => new Promise((resolve) => subscriber.on(event, resolve));
  const channel = redis.subscribe("events");
  const pattern = redis.psubscribe("ev*");
  const [message, matched] = [next(channel, "message"), next(pattern, "pmessage")];
  assert.equal(await next(channel, "subscribe"), 1);
  assert.equal(await next(pattern, "psubscribe"), 1);
  assert.equal(await redis.publish("events", { a: [1, "grüß\n"] }), 2);
  assert.deepEqual(await message, { channel: "events", message: { a: [1, "grüß\n"] } });
  assert.deepEqual((await matched).pattern, "ev*");
  await channel.unsubscribe();
  await pattern.unsubscribe();
  while ((await redis.publish("events", "gone")) > 0);
});

console.log(`@upstash/redis: ${done.join(", ")}`);
