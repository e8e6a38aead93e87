// DBOS for TypeScript on PostgreSQL: bench.mjs URL WORKLOAD
import fs from 'node:fs';
import { createRequire } from 'node:module';
const { DBOS } = createRequire(`${process.env.PACKAGES}/`)('@dbos-inc/dbos-sdk');

const DAY = 24 * 60 * 60;
const PAYLOAD = 'x'.repeat(100);
const AT_ONCE = 64; // how many runs are started at a time in W5
const SETTLE = 5_000; // how long the waiting runs are left alone before memory is read
const [url, workload, ...numbers] = process.argv.slice(2);
const [first, second] = numbers.map(Number);

const say = (workload, value, unit, note) => console.log(JSON.stringify({ workload, value: +value.toFixed(3), unit, note }));
const residentMib = () => Number(fs.readFileSync('/proc/self/status', 'utf8').match(/VmRSS:\s+(\d+)/)[1]) / 1024;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const forever = () => new Promise(() => setInterval(() => {}, 1e6));

async function sayRate(workload, steps, work) {
  const began = performance.now();
  await work();
  say(workload, steps / ((performance.now() - began) / 1e3), 'steps/s', `${steps} steps`);
}

// load waits there to be killed, go-on says how long ago it was started.
async function nextStepAsked() {
  if (process.env.START_NS === undefined) {
    console.log('loaded');
    await forever();
  }
  const now = performance.timeOrigin + performance.now();
  say('W3', now - Number(process.env.START_NS) / 1e6, 'ms', `${process.env.W3_STEPS} steps`);
  process.exit(0);
}

let waiting = 0;
const chain = DBOS.registerWorkflow(
  async (steps, thenNext) => {
    for (let n = 0; n < steps; n++) await DBOS.runStep(async () => PAYLOAD, { name: 'step' });
    if (thenNext) await DBOS.runStep(nextStepAsked, { name: 'next' });
  },
  { name: 'chain' },
);
const wait = DBOS.registerWorkflow(
  async () => {
    waiting++;
    await DBOS.recv('go', DAY);
  },
  { name: 'wait' },
);
const run = async (steps, thenNext = false) => (await DBOS.startWorkflow(chain)(steps, thenNext)).getResult();

DBOS.setConfig({ name: 'bench', systemDatabaseUrl: url, logLevel: 'error', applicationVersion: '1', runAdminServer: false });
await DBOS.launch();
switch (workload) {
  case 'w1':
    await sayRate('W1', first, () => run(first));
    break;
  case 'w2':
    await sayRate('W2', first * second, () => Promise.all(Array.from({ length: first }, () => run(second))));
    break;
  case 'load':
    await run(first, true);
    break;
  case 'go-on':
    await forever();
    break;
  case 'w4': {
    const times = [];
    for (let n = 0; n < first; n++) {
      const began = performance.now();
      await run(1);
      times.push(performance.now() - began);
    }
    say('W4', times.sort((a, b) => a - b)[first >> 1], 'ms', `${first} runs`);
    break;
  }
  case 'w5': {
    const [before, began] = [residentMib(), performance.now()];
    let next = 0;
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        while (next++ < first) await DBOS.startWorkflow(wait)();
      }),
    );
    while (waiting < first) await sleep(5);
    say('W5', (performance.now() - began) / 1e3, 's', `${first} runs`);
    await sleep(SETTLE);
    say('W5', residentMib() - before, 'MiB', `${first} runs`);
    break;
  }
  default:
    throw new Error(`unknown workload ${workload}`);
}
process.exit(0);
