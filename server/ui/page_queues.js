// Every queue.

import { get } from './api.js';
import { h, put, say } from './dom.js';
import { subscribe } from './live.js';
import { ordered, queueTable } from './queue_table.js';
import { enqueueLine } from './empty.js';
import { command } from './parts.js';
import { int } from './format.js';

/** @param {Page} page */
export function mount({ main, query, address }) {
  const table = queueTable(true);
  const filter = h('input', { class: 'input', type: 'search', 'aria-label': 'Filter by name', placeholder: 'Filter by name', value: query.get('q') ?? '', oninput: () => {
    address({ q: filter.value || null });
    redraw();
  } });
  const count = h('span', { class: 'mute' });
  const empty = h('div');
  /** @type {Snapshot | null} */
  let last = null;
  const redraw = () => {
    if (!last) return;
    const found = ordered(last.queues.filter((q) => q.name.includes(filter.value.trim())));
    table.show(found);
    const shown = found.length === last.queues_total ? int(found.length) : `${int(found.length)} of ${int(last.queues_total)}`;
    say(count, shown + (last.more ? ', those with trouble and the busiest' : ''));
    empty.hidden = found.length > 0;
    if (found.length === 0 && empty.childElementCount === 0) {
      put(empty, h('div', { class: 'body stack firstbody' }, h('p', { class: 'soft' }, 'No queue of that name. Queues are made by their first job:'), command(enqueueLine('default'))));
    }
  };
  put(main, h('section', { class: 'panel', 'aria-labelledby': 'qs' }, h('header', null, h('h2', { id: 'qs' }, 'Queues'), count, h('span', { class: 'end' }, filter)), table.node, empty));
  const control = new AbortController();
  const past = () => get('history?range=1h&split=queue', control.signal).then((found) => {
    table.history(found.queues ?? []);
    redraw();
  }).catch(() => {});
  void past();
  const timer = setInterval(past, 60_000);
  const leave = subscribe((snap) => {
    last = snap;
    redraw();
  });
  return () => {
    leave();
    clearInterval(timer);
    control.abort();
  };
}
