// The table of queues, on the Overview and on its own page. Rows keep their place while they change.

import { pauseButton } from './actions.js';
import { canWrite } from './auth.js';
import { spark } from './chart.js';
import { h, icon, keyed, put, say } from './dom.js';
import { int, rate, span } from './format.js';
import { meter, pill } from './parts.js';
import { link, queueLink } from './route.js';

/** @param {number} n @param {string} [cls] */
const number = (n, cls = '') => h('span', { class: n === 0 ? 'mute' : cls }, int(n));

/** @param {boolean} actions whether rows can be paused */
export function queueTable(actions) {
  const body = h('tbody');
  /** @type {Map<string, number[]>} */
  let past = new Map();
  const writes = actions && canWrite();
  const th = (/** @type {string} */ text, /** @type {string} */ cls) => h('th', { scope: 'col', class: cls }, text);
  const node = h('div', { class: 'scroll' }, h('table', { class: 'queues' }, h('thead', null, h('tr', null,
    th('Queue', ''), th('Waiting', 'num'), th('Oldest due', 'num'), th('Running', 'num w-m'), th('Done /s', 'num w-m'), th('Last hour', 'w-m'),
    th('p95 wait', 'num w-l'), th('Scheduled', 'num w-l'), th('Failed', 'num'), writes ? h('th', { scope: 'col', class: 'w-m' }, h('span', { class: 'vh' }, 'Actions')) : null)), body));

  const make = (/** @type {QueueLine} */ q) => {
    const cell = (/** @type {string} */ cls) => h('td', { class: cls });
    return h('tr', null, h('th', { scope: 'row' }, h('a', { href: queueLink(q.name) }, q.name), h('span')),
      cell('num'), cell('num'), cell('num w-m'), cell('num w-m'), cell('fit w-m'), cell('num w-l'), cell('num w-l'), cell('num'), writes ? cell('num w-m') : null);
  };
  /** Draws a cell again only if what it shows is another. @param {Element} cell @param {string} key @param {() => Child} draw */
  const draw = (cell, key, draw) => {
    const known = /** @type {HTMLElement} */ (cell);
    if (known.dataset.is === key) return;
    known.dataset.is = key;
    put(known, draw());
  };
  const update = (/** @type {HTMLElement} */ row, /** @type {QueueLine} */ q) => {
    const [name, waiting, oldest, running, done, hour, p95, scheduled, failed, act] = row.children;
    const c = q.counts;
    draw(name.children[1], `${q.paused}${q.starved}`, () => (q.paused ? pill('warn', 'pause', 'paused') : q.starved ? pill('warn', 'st-warn', 'no worker') : ''));
    draw(waiting, String(c.queued), () => number(c.queued));
    const late = q.paused || q.starved || (q.oldest_ready_age_ms ?? 0) > 60_000;
    draw(oldest, q.oldest_ready_age_ms === null ? '' : span(q.oldest_ready_age_ms) + late, () => (q.oldest_ready_age_ms === null ? '—' : h('span', { class: late ? 'is-warn strong' : '' }, span(q.oldest_ready_age_ms))));
    draw(running, `${c.processing}/${q.concurrency}`, () => h('span', { class: 'runcell' }, q.concurrency ? meter(c.processing / q.concurrency) : null, h('span', null, int(c.processing), h('span', { class: 'limit' }, q.concurrency ? `/ ${q.concurrency}` : ''))));
    say(done, rate(q.done_per_s));
    const line = past.get(q.name);
    draw(hour, line ? line.join() : '', () => (line ? spark(line, 'mini done') : spark([0, 0], 'mini done')));
    say(p95, q.wait_p95_ms === null ? '—' : span(q.wait_p95_ms));
    draw(scheduled, String(c.scheduled), () => number(c.scheduled));
    draw(failed, String(c.failed), () => (c.failed === 0 ? number(0) : h('a', { class: 'is-failed', href: link(['jobs'], { state: 'failed', queue: q.name }) }, int(c.failed))));
    if (act) draw(act, String(q.paused), () => pauseButton(q, icon(q.paused ? 'play' : 'pause', 's'), q.paused ? 'Resume' : 'Pause'));
  };
  return {
    node,
    /** @param {QueueLine[]} queues */
    show: (queues) => keyed(body, queues, (q) => q.name, make, update),
    /** @param {QueueHistory[]} queues */
    history: (queues) => { past = new Map(queues.map((q) => [q.name, q.done])); },
  };
}

/** Trouble first, then by name: the order changes only with trouble. @param {QueueLine[]} queues */
export function ordered(queues) {
  const trouble = (/** @type {QueueLine} */ q) => (q.starved || (q.paused && q.counts.queued > 0) ? 1 : 0);
  return [...queues].sort((a, b) => trouble(b) - trouble(a) || (a.name < b.name ? -1 : 1));
}
