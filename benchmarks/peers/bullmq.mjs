// BullMQ: Node, one process, concurrency 100. Run as `node bullmq.mjs add|work`.
//
// Jobs that are done are removed, as its page on going to production asks for. Its page on
// concurrency recommends several processes; here one is to be compared. Asked and answered as in
// program.py, noted as in handler.py. Its events cannot be turned off.

import { openSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(`${process.env.PEER_HOME}/`);
const { Queue, QueueEvents, Worker } = require('bullmq');

const QUEUE = 'bench';
const NAME = 'job';
const DATA = { to: 'augusta.byron@example.com' };
const CONCURRENCY = 100;
const NOTE_EVERY = 100;

const scenario = process.env.PEER_SCENARIO;
const connection = { url: process.env.PEER_URL, maxRetriesPerRequest: null };
const removed = { removeOnComplete: scenario === 'result' ? { count: 1000 } : true };

const now = () => (performance.timeOrigin + performance.now()) / 1000;

function handler() {
  let notes;
  let number = 0;
  const note = (line) => {
    notes ??= openSync(process.env.PEER_NOTES, 'w');
    writeSync(notes, line);
  };
  const cpu = () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  };
  return async (job) => {
    number += 1;
    if (scenario === 'consume') {
      if (number === 1 || number % NOTE_EVERY === 0) note(`${number} ${now()} ${cpu()}\n`);
    } else if (scenario === 'result') {
      if (number === 1) note(`1 ${now()} 0\n`);
      return job.data;
    } else {
      note(`${scenario === 'lateness' ? job.data.due : 0} ${now()} 0\n`);
    }
    return null;
  };
}

async function timed(call, calls, limit) {
  const began = performance.now();
  let jobs = 0;
  let s = 0;
  while (jobs < calls && s < limit) {
    await call();
    jobs += 1;
    s = (performance.now() - began) / 1000;
  }
  return { jobs, s };
}

async function done(queue, events, asked) {
  const add = () => queue.add(NAME, DATA, removed);
  switch (asked.do) {
    case 'add':
      return timed(add, asked.jobs, asked.limit_s);
    case 'add_many': {
      const many = Array(asked.a_call).fill({ name: NAME, data: DATA, opts: removed });
      const told = await timed(() => queue.addBulk(many), asked.jobs / many.length, asked.limit_s);
      return { ...told, jobs: told.jobs * many.length };
    }
    case 'once': {
      const at = now();
      await add();
      return { at };
    }
    case 'delay':
      for (const due of asked.due) {
        const delay = Math.max(0, Math.round(1000 * (due - now())));
        await queue.add(NAME, { due }, { ...removed, delay });
      }
      return {};
    case 'wait': {
      const began = performance.now();
      const job = await add();
      await job.waitUntilFinished(events, 10_000);
      return { ms: performance.now() - began };
    }
    default:
      throw new Error(asked.do);
  }
}

async function answer() {
  const queue = new Queue(QUEUE, { connection });
  const events = scenario === 'result' ? new QueueEvents(QUEUE, { connection }) : null;
  await events?.waitUntilReady();
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await done(queue, events, JSON.parse(line))));
  }
  process.exit(0);
}

if (process.argv[2] === 'work') {
  new Worker(QUEUE, handler(), { connection, concurrency: CONCURRENCY });
} else {
  await answer();
}
