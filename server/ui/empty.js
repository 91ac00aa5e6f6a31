// What a page says before there is anything to show: how to make it happen, as lines that work here.

import { root, session } from './api.js';
import { h, icon, s } from './dom.js';
import { command, st } from './parts.js';

/** A curl line for this server. @param {string} path @param {string} body */
export function curl(path, body) {
  const token = session.token ? ` \\\n     -H "authorization: Bearer $TOKEN"` : '';
  return `curl -X POST ${root.href}${path} -H 'content-type: application/json'${token} \\\n     -d '${body.replaceAll("'", "'\\''")}'`;
}

/** @param {string} queue */
export const enqueueLine = (queue) => curl('jobs', queue === 'default' ? '{"kind":"email","payload":{"to":"ada@example.org"}}' : `{"queue":"${queue}","kind":"email","payload":{"to":"ada@example.org"}}`);
/** @param {string[]} [queues] */
export const pollLine = (queues) => curl('jobs/poll', queues ? `{"worker":"me-1","queues":${JSON.stringify(queues)},"wait_ms":30000}` : '{"worker":"me-1","wait_ms":30000}');

function rope() {
  const strands = Array.from({ length: 36 }, (_, at) => s('path', { d: `M${at * 10},5 ${at * 10 + 4},0 ${at * 10 + 10},0 ${at * 10 + 6},5Z`, fill: 'currentColor' }));
  return s('svg', { class: 'rope', viewBox: '0 0 600 5', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, ...strands);
}

/** The Overview of a store without a queue. */
export function firstRun() {
  const mark = document.querySelector('.brand .mark')?.cloneNode(true);
  const step = (/** @type {string} */ title, /** @type {string} */ line, /** @type {Child[]} */ ...after) => h('li', null, h('h3', null, title), command(line), h('p', { class: 'mute' }, ...after));
  return h('div', { class: 'first' },
    h('header', null, mark, h('h2', null, 'Ready, and nothing to haul yet'), h('p', null, 'The store is open and syncs every job before it is acknowledged. This page fills by itself when the first one comes.')),
    h('section', { class: 'panel', 'aria-label': 'First steps' },
      h('div', { class: 'body stack firstbody' }, h('ol', { class: 'steps' },
        step('Enqueue a job', enqueueLine('default'), 'It is answered with ', h('code', null, '202'), ' and ', h('code', null, '"durability":"fsync"'), ' once it is on disk. Queues are made by their first job.'),
        step('Take it, as a worker in any language', pollLine(), 'Then ', h('code', null, 'POST /jobs/1/complete'), ' with the token of its lease. Without a report it is queued again after 30 s.'),
        step('Or let Windlass run it', "windlass enqueue --command 'echo hello; exit 3'", 'A failing one shows the most: retries, the output of the command, and a dead letter.'))),
      h('footer', null, h('span', { class: 'waiting' }, rope(), 'Waiting for the first job'),
        h('span', { class: 'actions' }, h('code', null, 'windlass serve --demo'), h('a', { href: new URL('openapi.json', root).href }, 'API')))));
}

/** A list without jobs. @param {string | undefined} state @param {string} queue @param {boolean} filtered */
export function noJobs(state, queue, filtered) {
  if (state === 'failed' && !filtered) {
    return h('div', { class: 'body stack firstbody' }, h('p', null, st('done', 'No dead letters')), h('p', { class: 'soft' }, 'A job comes here when its attempts are used up. Try it:'), command("windlass enqueue --command 'exit 3' --max-retries 0"));
  }
  return h('div', { class: 'body stack firstbody' }, h('p', null, h('b', null, `No ${state ? `${state} ` : ''}job${filtered ? ' that fits these filters' : ''}.`)), h('p', { class: 'soft' }, 'Enqueue one:'), command(enqueueLine(queue)));
}

/** A table without workers. */
export function noWorkers() {
  return h('div', { class: 'body stack firstbody' }, h('p', null, icon('workers'), ' No worker yet. Workers in any language poll for jobs:'), command(pollLine()), h('p', { class: 'soft' }, 'Worker processes for the built-in kinds:'), command('windlass worker start --count 2'));
}
