// Sends a job with BullMQ. Usage: queue.js PORT, in a folder with what package-lock.json names.
const { Queue } = require("bullmq");
const { Redis } = require("ioredis");

async function main() {
  const connection = new Redis({ port: Number(process.argv[2]), maxRetriesPerRequest: 1 });
  const queue = new Queue("orders", { connection });
  queue.on("error", () => {});
  const sent = await queue.add("order", { number: 1 });
  const { data } = await queue.getJob(sent.id);
  if (data.number !== 1) throw new Error(`got ${JSON.stringify(data)}`);
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error.message);
    process.exit(1);
  },
);
