// One queue: how it flows, what holds it back, its limits.

import { pauseButton, setPaused } from './actions.js';
import { Problem, get, search, send } from './api.js';
import { canWrite } from './auth.js';
import { plot } from './chart.js';
import { h, icon, put } from './dom.js';
import { enqueueLine, pollLine } from './empty.js';
import { about, hhmm, int, ms, rate, span } from './format.js';
import { subscribe } from './live.js';
import { RANGES, big, command, jobs, note, refusal, segments, tile, whole } from './parts.js';
import { queueForm } from './queue_form.js';
import { link } from './route.js';

/** @param {Page} page */
export function mount({ main, path, query, crumb, keys, address }) {
  const name = path[1];
  crumb(['Queues', '#/queues'], name);
  const control = new AbortController();
  let range = /** @type {HistoryRange} */ (RANGES.find(([r]) => r === query.get('range'))?.[0] ?? '1h');
  const tiles = h('section', { class: 'panel tiles', 'aria-label': 'Now' });
  const flow = h('div', { class: 'plotbox' });
  const latency = h('div', { class: 'plotbox' });
  const waiting = h('div', { class: 'plotbox' });
  const kinds = h('tbody');
  const state = h('section', { class: 'panel', 'aria-labelledby': 'act' });
  const limits = h('div');
  const legend = (/** @type {[string, string][]} */ ...parts) => h('p', { class: 'legend' }, ...parts.map(([cls, text]) => h('span', { class: cls }, text)));
  put(main, tiles, h('div', { class: 'cols w-side' }, h('div', { class: 'stack' },
    h('section', { class: 'panel' }, h('header', null, h('h2', null, 'Flow'), legend(['done', 'done'], ['enq', 'enqueued']), h('span', { class: 'end' }, segments('Range', RANGES, range, (next) => {
      range = next;
      address({ range: next === '1h' ? null : next });
      void history();
    }))), flow),
    h('div', { class: 'cols halves' }, h('section', { class: 'panel' }, h('header', null, h('h2', null, 'Latency'), legend(['wait', 'wait p95'], ['waitthin', 'p50'], ['run', 'run p95'], ['runthin', 'p50'])), latency),
      h('section', { class: 'panel' }, h('header', null, h('h2', null, 'Waiting'), legend(['acc', 'due'])), waiting)),
    h('section', { class: 'panel', 'aria-labelledby': 'kinds' }, h('header', null, h('h2', { id: 'kinds' }, 'Kinds'), h('span', { class: 'end' }, h('a', { href: link(['jobs'], { queue: name }) }, 'Jobs of this queue'))),
      h('div', { class: 'scroll' }, h('table', null, h('thead', null, h('tr', null, ...[['Kind', ''], ['Waiting', 'num'], ['Running', 'num'], ['Scheduled', 'num w-m'], ['Done', 'num w-m'], ['Failed', 'num']].map(([t, c]) => h('th', { scope: 'col', class: c }, t)))), kinds)))),
  h('div', { class: 'stack' }, state, limits)));
  /** @type {QueueLine | null} */
  let line = null;
  /** @type {string | null} */
  let lastDone = null;
  const show = (/** @type {Snapshot} */ snap) => {
    const q = snap.queues.find((one) => one.name === name);
    if (!q) return;
    line = q;
    const c = q.counts;
    const full = q.concurrency !== null && c.processing >= q.concurrency;
    const [oldest, unit] = q.oldest_ready_age_ms === null ? ['—', ''] : span(q.oldest_ready_age_ms).split(/ (?=\D+$)/);
    const [run, runUnit] = q.run_p50_ms === null ? ['—', ''] : span(q.run_p50_ms).split(/ (?=\D+$)/);
    const ago = lastDone ? `last one ${span(Math.max(0, ms(snap.at) - ms(lastDone)))} ago` : '';
    put(tiles, tile('Waiting', big(int(c.queued)), h('p', null, `${int(c.scheduled)} scheduled`)), tile('Oldest due', big(oldest, unit), h('p', null, q.wait_p95_ms === null ? 'nothing claimed lately' : `p95 wait ${span(q.wait_p95_ms)}`)),
      tile('Running', big(int(c.processing), q.concurrency === null ? '' : `of ${int(q.concurrency)}`), h('p', { class: full ? 'is-warn' : '' }, full ? 'at its limit' : q.concurrency === null ? 'no limit' : 'below its limit')),
      tile('Done', big(rate(q.done_per_s), '/s'), h('p', null, ago || `${int(c.done)} kept`)), tile('Run time', big(run, runUnit), h('p', null, q.run_p95_ms === null ? 'nothing ended lately' : `p95 ${span(q.run_p95_ms)}`)),
      tile('Failed', big(int(c.failed)), h('p', null, c.failed > 0 ? h('a', { href: link(['jobs'], { state: 'failed', queue: name }) }, 'Dead letters') : 'no dead letters')));
    const mode = [q.paused, q.starved, full, q.paused_at].join();
    if (state.dataset.is === mode) return;
    state.dataset.is = mode;
    put(state, h('header', null, h('h2', { id: 'act' }, q.paused ? 'Takes jobs and starts none' : 'Takes and starts jobs'), h('span', { class: 'end' }, canWrite() ? pauseButton(q, icon(q.paused ? 'play' : 'pause', 's'), q.paused ? 'Resume' : 'Pause', h('kbd', null, 'p')) : null)), reason(q, full, snap));
  };
  const load = async () => {
    try {
      const response = await send(`queues/${encodeURIComponent(name)}`, { signal: control.signal });
      const found = await response.json();
      put(kinds, ...found.kinds.map((/** @type {KindCounts} */ k) => h('tr', null, h('th', { scope: 'row' }, h('a', { href: link(['jobs'], { queue: name, kind: k.kind }) }, h('code', null, k.kind))), ...[[k.counts.queued, ''], [k.counts.processing, ''], [k.counts.scheduled, ' w-m'], [k.counts.done, ' w-m']].map(([n, cls]) => h('td', { class: `num${cls}${n ? '' : ' mute'}` }, int(Number(n)))),
        h('td', { class: 'num' }, k.counts.failed ? h('a', { class: 'is-failed', href: link(['jobs'], { state: 'failed', queue: name, kind: k.kind }) }, int(k.counts.failed)) : h('span', { class: 'mute' }, '0')))));
      return { found, etag: response.headers.get('etag') ?? '' };
    } catch (error) {
      if (control.signal.aborted) return null;
      if (error instanceof Problem && error.status === 404) put(main, h('section', { class: 'panel' }, h('div', { class: 'body stack firstbody' }, h('p', null, h('b', null, error.message)), h('p', { class: 'soft' }, 'A first job makes it:'), command(enqueueLine(name)))));
      else put(limits, refusal(error, () => void form()));
    }
    return null;
  };
  const form = async () => {
    const got = await load();
    if (got) put(limits, queueForm(name, got.found.settings, got.etag, () => void form()));
  };
  const history = async () => {
    try {
      const past = /** @type {History} */ (await get(`history?${search({ range, queue: name })}`, control.signal));
      draw(whole(past), flow, latency, waiting);
      const { jobs: newest } = await get(`jobs?${search({ state: 'done', queue: name, limit: 1, fields: 'row' })}`, control.signal);
      lastDone = newest[0]?.finished_at ?? null;
    } catch (error) {
      if (!control.signal.aborted) put(flow, refusal(error, history));
    }
  };
  void form();
  void history();
  const leave = subscribe(show);
  const timer = setInterval(() => {
    if (document.hidden || main.querySelector('.plot:focus, details[open]')) return;
    void history();
    void load();
  }, 10_000);
  keys(canWrite() ? { p: () => line && void setPaused(name, !line.paused) } : {});
  return () => {
    leave();
    clearInterval(timer);
    control.abort();
  };
}

/** What holds it back. @param {QueueLine} q @param {boolean} full @param {Snapshot} snap */
function reason(q, full, snap) {
  const c = q.counts;
  const free = Math.max(0, snap.slots.total - snap.slots.busy);
  const body = (/** @type {Child[]} */ ...parts) => h('div', { class: 'body stack' }, ...parts);
  if (q.paused) return body(note('warn', h('b', null, 'It is paused.'), ` ${q.paused_at ? `Since ${hhmm(ms(q.paused_at))}${q.paused_by ? ` by ${q.paused_by}` : ''}. ` : ''}Jobs are stored and wait; those that run go on.`));
  if (q.starved) return body(note('warn', h('b', null, 'No worker takes some of its jobs.'), ' This line does:'), command(pollLine([q.name])));
  if (full && c.queued > 0) return body(note('warn', h('b', null, 'The limit holds it back.'), ` ${c.processing} of ${q.concurrency} run, ${jobs(c.queued)} wait; ${free} free slots could take them.`));
  if (c.queued > 0 && free === 0) return body(note('', 'All slots of the workers are busy. More workers, or more slots, would help.'));
  return body(h('p', { class: 'soft' }, c.queued > 0 ? `${jobs(c.queued)} wait, the oldest for ${about(q.oldest_ready_age_ms ?? 0)}.` : 'Nothing waits.'));
}

/** @param {History} past @param {Element} flow @param {Element} latency @param {Element} waiting */
function draw(past, flow, latency, waiting) {
  const { series, step_ms: step } = past;
  const per = (/** @type {number[]} */ values) => values.map((n) => (n * 1000) / step);
  const axis = { from: ms(past.from), step, marks: past.marks.map((m) => ({ at: ms(m.at), text: m.what })) };
  const unit = (/** @type {number} */ n) => (n >= 10 || Number.isInteger(n) ? int(n) : n.toFixed(1));
  put(flow, plot({ label: 'Done and enqueued per second', height: 120, lines: 4, unit, axis, series: [{ name: 'done /s', cls: 'c-done', kind: 'area', values: per(series.done) }, { name: 'enqueued /s', cls: 'c-in', kind: 'dash', values: per(series.enqueued) }] }));
  put(latency, plot({ label: 'Wait and run time', height: 110, lines: 2, unit: (n) => (n === 0 ? '0' : span(n).replace('.0 ', ' ')), axis, series: [{ name: 'wait p95', cls: 'c-wait', kind: 'line', values: series.wait_p95_ms }, { name: 'wait p50', cls: 'c-wait', kind: 'dash', values: series.wait_p50_ms }, { name: 'run p95', cls: 'c-run', kind: 'line', values: series.run_p95_ms }, { name: 'run p50', cls: 'c-run', kind: 'dash', values: series.run_p50_ms }] }));
  put(waiting, plot({ label: 'Jobs that are due', height: 110, lines: 2, unit, axis, series: [{ name: 'due', cls: 'c-acc', kind: 'area', values: series.queued }] }));
}
