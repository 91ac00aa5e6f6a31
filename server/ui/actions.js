// What a person can do to jobs and queues, each with its question before and its undo after.

import { get, search, write } from './api.js';
import { canWrite } from './auth.js';
import { confirm, toast } from './dialog.js';
import { h } from './dom.js';
import { plural } from './format.js';
import { now, stale } from './live.js';
import { busy } from './parts.js';

/** How long a deletion waits before the server is asked. */
const GRACE = 8000;
const AT_ONCE = 4;

/** Whether a write may be sent now; says why not. */
export function ready() {
  if (!canWrite()) return false;
  if (stale()) toast('The server does not answer: nothing was sent');
  return !stale();
}

/** @param {unknown} error */
export function tell(error) {
  toast(error instanceof Error ? error.message : String(error));
}

/** @param {string} name @param {boolean} paused @param {boolean} [undo] */
export async function setPaused(name, paused, undo = true) {
  if (!ready()) return;
  try {
    await write('POST', `queues/${encodeURIComponent(name)}/${paused ? 'pause' : 'resume'}`);
    const back = { label: 'Undo', act: () => void setPaused(name, !paused, false) };
    toast(`${name} is ${paused ? 'paused' : 'resumed'}`, undo ? back : null);
  } catch (error) {
    tell(error);
  }
}

/** A button that pauses or resumes a queue. @param {{ name: string, paused: boolean }} queue @param {Child[]} content */
export function pauseButton(queue, ...content) {
  const button = h('button', { class: 'btn small', type: 'button', 'data-write': true, onclick: () => void busy(button, () => setPaused(queue.name, !queue.paused)) }, ...content, h('span', { class: 'vh' }, ` ${queue.name}`));
  return button;
}

/** @typedef {'retry' | 'cancel' | 'delete'} Verb */
/** @type {Record<Verb, [string, string, string]>} */
const WORDS = { retry: ['Retry', 'retried', 'Do not retry'], cancel: ['Cancel', 'cancelled', 'Do not cancel'], delete: ['Delete', 'deleted', 'Keep them'] };

/** @param {Verb} verb @param {number} id */
const call = (verb, id) => (verb === 'delete' ? write('DELETE', `jobs/${id}`) : write('POST', `jobs/${id}/${verb}`));

/**
 * Asks, does it to each of these jobs, and says how it went.
 * @param {Verb} verb @param {number[]} ids @param {() => void} [after]
 */
export async function act(verb, ids, after = () => {}) {
  if (ids.length === 0 || !ready()) return;
  const [word, done, safe] = WORDS[verb];
  const count = plural(ids.length, 'job');
  if (ids.length > 1 || verb !== 'retry') {
    const body = verb === 'delete' ? 'Payloads, results and attempts go with them. This cannot be undone.' : verb === 'retry' ? 'Each starts again with all its attempts.' : 'Jobs that wait do not run. Jobs that run are told to stop with their next heartbeat.';
    const queues = await byQueue(ids).catch(() => null);
    const facts = queues ? h('dl', { class: 'facts' }, ...queues.flatMap(([name, n]) => [h('dt', null, name), h('dd', null, String(n))])) : null;
    if (!(await confirm({ title: `${word} ${count}?`, body: [h('p', { class: 'soft' }, body), facts], safe, verb: `${word} ${count}`, count: ids.length, danger: verb !== 'retry' }))) return;
  }
  if (verb === 'delete' && ids.length <= 100) {
    let keep = false;
    const waiting = toast(`${count} will be deleted in 8 s`, { label: 'Keep them', act: () => { keep = true; } }, 0);
    await new Promise((resolve) => setTimeout(resolve, GRACE));
    waiting.close();
    if (keep) return;
  }
  await each(verb, ids, done);
  after();
}

/** @param {Verb} verb @param {number[]} ids @param {string} done */
async function each(verb, ids, done) {
  const left = [...ids];
  let good = 0;
  /** @type {string[]} */
  const refused = [];
  const progress = ids.length > 10 ? toast(`0 of ${ids.length} ${done}`, null, 0) : null;
  const work = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift()) {
      try {
        await call(verb, id);
        good += 1;
      } catch (error) {
        refused.push(error instanceof Error ? error.message : String(error));
      }
      progress?.say(`${good + refused.length} of ${ids.length} ${done}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  progress?.close();
  const said = ids.length === 1 && good === 1 ? `Job ${ids[0]} is ${done === 'retried' ? 'queued again' : done}` : `${plural(good, 'job')} ${done}`;
  if (good > 0) toast(said);
  if (refused.length > 0) toast(refused.length === 1 ? refused[0] : `${plural(refused.length, 'job')} refused: ${refused[0]}`);
}

/** @param {number[]} ids @returns {Promise<[string, number][]>} */
async function byQueue(ids) {
  const { jobs } = await get(`jobs?${search({ id: ids.slice(0, 1000).join(','), fields: 'row' })}`);
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const job of jobs) counts.set(job.queue, (counts.get(job.queue) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, 8);
}

/** What may be done to a job in this state. @param {string} state @returns {Verb[]} */
export function verbs(state) {
  if (state === 'failed' || state === 'cancelled') return ['retry', 'delete'];
  return state === 'done' ? ['delete'] : ['cancel'];
}

/** The age of an instant, by the server's clock. @param {string} iso */
export const since = (iso) => Math.max(0, now() - Date.parse(iso));
