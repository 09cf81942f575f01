// BullMQ: Node, one process, concurrency 100. Run as `node bullmq.mjs add|work`.
//
// Finished jobs are removed, as its page on going to production recommends. Its page on
// concurrency recommends several processes, but we compare one. It answers requests like
// program.py and writes notes like shared.py. Its events cannot be turned off. The rate limit is an
// option of the worker, and 1 is the most urgent priority. A group is a flow: a parent with children,
// whose results it reads.

import { openSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const require = createRequire(`${process.env.PEER_HOME}/`);
const { FlowProducer, Queue, QueueEvents, Worker } = require('bullmq');

const QUEUE = 'bench';
const NAME = 'job';
const DATA = { to: 'augusta.byron@example.com' };
const CONCURRENCY = 100;
const COUNTED = ['consume', 'priorities', 'overtake', 'open_rate'];
const NOTE_EVERY = 100;
const URGENT = 'urgent';
const SLOW_JOB_S = 0.01;
const RATE_PER_S = 200;
const OPEN_RATE_PER_S = 1_000_000;

const HIGHEST = 1;
const LOWEST = 10;
const priorities = { priorities: [LOWEST, HIGHEST], overtake: [LOWEST] };
const rates = { rate: RATE_PER_S, open_rate: OPEN_RATE_PER_S };

const scenario = process.env.PEER_SCENARIO;
const connection = { url: process.env.PEER_URL, maxRetriesPerRequest: null };
const options = { removeOnComplete: scenario === 'result' ? { count: 1000 } : true };
// Of the jobs that a filled queue repeats.
const inTurn = priorities[scenario]?.map((priority) => ({ ...options, priority })) ?? [options];

const now = () => (performance.timeOrigin + performance.now()) / 1000;

function makeHandler() {
  let notes;
  let number = 0;
  const writeNote = (line) => {
    notes ??= openSync(process.env.PEER_NOTES, 'w');
    writeSync(notes, line);
  };
  const cpu = () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  };
  return async (job) => {
    if (scenario === 'joins') {
      if (job.name !== 'join') return null;
      const values = await job.getChildrenValues();
      number += 1;
      writeNote(`${number} ${now()} ${cpu()}\n`);
      return Object.keys(values).length;
    }
    if (COUNTED.includes(scenario) && job.data !== URGENT) {
      number += 1;
      if (number === 1 || number % NOTE_EVERY === 0) writeNote(`${number} ${now()} ${cpu()}\n`);
    } else if (scenario === 'result') {
      number += 1;
      if (number === 1) writeNote(`1 ${now()} 0\n`);
      return job.data;
    } else {
      writeNote(`${scenario === 'lateness' ? job.data.due : 0} ${now()} 0\n`);
    }
    if (scenario === 'overtake') await sleep(1000 * SLOW_JOB_S);
    return null;
  };
}

async function timeCalls(call, calls, limit) {
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

async function carryOut(queue, events, request) {
  const add = () => queue.add(NAME, DATA, options);
  switch (request.do) {
    case 'add':
      return timeCalls(add, request.jobs, request.limit_s);
    case 'add_many': {
      const many = Array.from({ length: request.jobs_per_call }, (_, number) => {
        return { name: NAME, data: DATA, opts: inTurn[number % inTurn.length] };
      });
      const calls = request.jobs / many.length;
      const timed = await timeCalls(() => queue.addBulk(many), calls, request.limit_s);
      return { ...timed, jobs: timed.jobs * many.length };
    }
    case 'add_one': {
      const at = now();
      await add();
      return { at };
    }
    case 'add_urgent': {
      const at = now();
      await queue.add(NAME, URGENT, { ...options, priority: HIGHEST });
      return { at };
    }
    case 'add_groups': {
      const flows = new FlowProducer({ connection });
      const at = now();
      for (let group = 0; group < request.groups; group += 1) {
        const child = { name: NAME, queueName: QUEUE, data: DATA, opts: options };
        const children = Array.from({ length: request.size }, () => child);
        await flows.add({ name: 'join', queueName: QUEUE, opts: options, children });
      }
      return { at };
    }
    case 'add_delayed':
      for (const due of request.due) {
        const delay = Math.max(0, Math.round(1000 * (due - now())));
        await queue.add(NAME, { due }, { ...options, delay });
      }
      return {};
    case 'wait_for_result': {
      const began = performance.now();
      const job = await add();
      await job.waitUntilFinished(events, 10_000);
      return { ms: performance.now() - began };
    }
    default:
      throw new Error(request.do);
  }
}

async function answer() {
  const queue = new Queue(QUEUE, { connection });
  const events = scenario === 'result' ? new QueueEvents(QUEUE, { connection }) : null;
  await events?.waitUntilReady();
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await carryOut(queue, events, JSON.parse(line))));
  }
  process.exit(0);
}

if (process.argv[2] === 'work') {
  const limiter = rates[scenario] && { max: rates[scenario], duration: 1000 };
  new Worker(QUEUE, makeHandler(), { connection, concurrency: CONCURRENCY, limiter });
} else {
  await answer();
}
