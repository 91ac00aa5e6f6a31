// Does it move, and what needs a look.

import { pauseButton } from './actions.js';
import { get } from './api.js';
import { canWrite } from './auth.js';
import { bars, gather, plot, spark } from './chart.js';
import { h, icon, put, say } from './dom.js';
import { firstRun } from './empty.js';
import { about, hhmm, int, ms, rate, span } from './format.js';
import { subscribe } from './live.js';
import { RANGES, jobs, refusal, segments, whole } from './parts.js';
import { ordered, queueTable } from './queue_table.js';
import { link, queueLink } from './route.js';

/** @param {Page} page */
export function mount({ main, query, address }) {
  const control = new AbortController();
  const table = queueTable(false);
  /** @type {History | null} */
  let past = null;
  let range = /** @type {HistoryRange} */ (RANGES.find(([name]) => name === query.get('range'))?.[0] ?? '10m');
  const step = (/** @type {string} */ title, /** @type {string} */ state) => {
    const parts = { number: h('p', { class: 'big' }), text: h('p'), chart: h('div') };
    return { ...parts, node: h('li', null, h('h2', null, state ? h('span', { class: `is-${state}` }, icon(`st-${state}`, 's')) : null, title), parts.number, parts.text, parts.chart) };
  };
  const [enq, wait, run, done, failed] = [step('In', ''), step('Waiting', 'queued'), step('Running', 'processing'), step('Done', 'done'), step('Failed for good', 'failed')];
  const later = h('p', { class: 'later' });
  const list = h('ul', { class: 'attention' });
  const count = h('span', { class: 'end mute' });
  const legend = h('p', { class: 'legend' });
  const chart = h('div', { class: 'plotbox' });
  const queues = h('span', { class: 'mute' });
  const full = [
    h('section', { class: 'panel', 'aria-label': 'The line: in, waiting, running, done, failed' }, h('ol', { class: 'line' }, ...[enq, wait, run, done, failed].map((one) => one.node)), later),
    h('div', { class: 'cols w-side even flip' },
      h('section', { class: 'panel', 'aria-labelledby': 'att' }, h('header', null, h('h2', { id: 'att' }, 'Needs a look'), count), list),
      h('section', { class: 'panel', 'aria-labelledby': 'tp' }, h('header', null, h('h2', { id: 'tp' }, 'Throughput'), legend, h('span', { class: 'end' }, segments('Range', RANGES, range, (next) => {
        range = next;
        address({ range: next === '10m' ? null : next });
        void load();
      }))), chart)),
    h('section', { class: 'panel', 'aria-labelledby': 'qs' }, h('header', null, h('h2', { id: 'qs' }, 'Queues'), queues, h('span', { class: 'end' }, h('a', { href: '#/queues' }, 'All queues'))), table.node),
  ];
  let shown = '';
  const show = (/** @type {Snapshot} */ snap) => {
    const mode = snap.queues_total === 0 ? 'first' : 'full';
    if (mode !== shown) {
      shown = mode;
      put(main, ...(mode === 'first' ? [firstRun()] : full));
      if (mode === 'full') void load();
    }
    if (mode === 'first') return;
    figures(snap);
    attention(snap);
    table.show(ordered(snap.queues).slice(0, 12));
    say(queues, int(snap.queues_total));
  };
  const number = (/** @type {Element} */ node, /** @type {string} */ text, /** @type {string} */ unit) => {
    if (node.textContent !== text + unit) put(node, text, unit ? h('small', null, unit) : null);
  };
  const figures = (/** @type {Snapshot} */ snap) => {
    const { counts, rates, slots } = snap;
    number(enq.number, rate(rates.enqueued_per_s), '/s');
    say(enq.text, 'enqueued, last 10 s');
    number(wait.number, int(counts.queued), '');
    const oldest = snap.queues.reduce((/** @type {QueueLine | null} */ most, q) => ((q.oldest_ready_age_ms ?? -1) > (most?.oldest_ready_age_ms ?? -1) ? q : most), null);
    say(wait.text, oldest?.oldest_ready_age_ms != null ? `oldest ${span(oldest.oldest_ready_age_ms)}, in ${oldest.name}` : 'nothing is due');
    number(run.number, int(counts.processing), slots.total ? `of ${int(slots.total)} slots` : '');
    const p95 = Math.max(0, ...snap.queues.map((q) => q.run_p95_ms ?? 0));
    say(run.text, slots.total ? `${Math.round((slots.busy / slots.total) * 100)} % busy${p95 ? `, p95 run ${span(p95)}` : ''}` : 'no worker is alive');
    number(done.number, rate(rates.done_per_s), '/s');
    say(done.text, snap.last_done_at ? `the last one ${span(Math.max(0, ms(snap.at) - ms(snap.last_done_at)))} ago` : 'none yet');
    number(failed.number, rate(rates.failed_per_s * 60), '/min');
    const dead = counts.failed === 0 ? 'no dead letters' : `${int(counts.failed)} dead letters`;
    if (failed.text.textContent !== dead) put(failed.text, counts.failed === 0 ? dead : h('a', { href: '#/jobs?state=failed' }, dead));
    const next = snap.next_due ? `, next in ${span(Math.max(0, ms(snap.next_due) - ms(snap.at)))}` : '';
    const fact = (/** @type {string} */ glyph, /** @type {number} */ n, /** @type {string} */ text) => h('span', null, icon(glyph, 's'), h('b', null, int(n)), ` ${text}`);
    put(later, fact('st-scheduled', counts.scheduled, `scheduled${next}`), fact('st-done', counts.done, 'done, kept'), fact('st-cancelled', counts.cancelled, 'cancelled'));
  };
  const attention = (/** @type {Snapshot} */ snap) => {
    const found = looks(snap);
    say(count, found.length ? String(found.length) : '');
    const key = found.map((one) => one.key).join();
    if (list.dataset.is !== key) {
      list.dataset.is = key;
      put(list, ...found.slice(0, 6).map((one) => h('li', null, h('span', { class: one.cls }, icon(one.glyph)), h('strong', null, one.title), one.action(), h('p', null, one.text))),
        found.length > 6 ? h('li', null, h('span'), h('p', { class: 'mute' }, `${found.length - 6} more`)) : null,
        found.length === 0 ? h('li', { class: 'quiet' }, h('span', { class: 'is-done' }, icon('check')), h('strong', null, 'All quiet'), h('p')) : null);
    }
    found.slice(0, 6).forEach((one, at) => say(list.children[at]?.querySelector('p') ?? null, one.text));
    if (found.length === 0) say(list.querySelector('p'), snap.oldest_ready_age_ms === null ? 'nothing is due' : `oldest due job ${span(snap.oldest_ready_age_ms)}`);
  };
  const load = async () => {
    try {
      const wanted = range;
      const found = await get(`history?range=${wanted}&split=queue`, control.signal);
      if (wanted !== range) return;
      past = whole(found);
      if (wanted === '1h') table.history(found.queues ?? []);
      else get('history?range=1h&split=queue', control.signal).then((hour) => table.history(hour.queues ?? [])).catch(() => {});
      draw();
    } catch (error) {
      if (!control.signal.aborted) put(chart, refusal(error, load));
    }
  };
  const draw = () => {
    if (!past) return;
    const { series, step_ms: step } = past;
    const per = (/** @type {number[]} */ values) => values.map((n) => (n * 1000) / step);
    const from = ms(past.from);
    const last = (/** @type {(number | null)[]} */ values) => values.slice(-60);
    const marks = past.marks.map((mark) => ({ at: ms(mark.at), text: mark.what === 'started' ? `${hhmm(ms(mark.at))} restart` : `${mark.queue} ${mark.what}` }));
    const shownMark = marks.filter((mark) => mark.at > from).at(-1);
    put(enq.chart, spark(last(per(series.enqueued)), 'queued'));
    put(wait.chart, spark(last(series.queued), 'queued'));
    put(run.chart, spark(last(series.processing), 'processing'));
    put(done.chart, spark(last(per(series.done)), 'done'));
    const by = Math.ceil(series.failed.length / 60);
    put(failed.chart, bars(gather(last(series.failed), 2), 'failed'));
    const mean = (/** @type {number[]} */ v) => v.reduce((a, b) => a + b, 0) / Math.max(1, v.length);
    put(legend, h('span', { class: 'done' }, 'done'), h('span', { class: 'enq' }, 'enqueued'), h('span', { class: 'failed' }, 'failed'), shownMark ? h('span', { class: 'mark1' }, shownMark.text) : null);
    const unit = (/** @type {number} */ n) => (n >= 10 || Number.isInteger(n) ? int(n) : n.toFixed(1));
    put(chart, plot({
      label: `Throughput: ${rate(mean(per(series.done)))} done and ${rate(mean(per(series.enqueued)))} enqueued per second on average, ${int(series.failed.reduce((a, b) => a + b, 0))} failed`,
      height: 164, lines: 4, unit, axis: { from, step, marks },
      series: [{ name: 'done /s', cls: 'c-done', kind: 'area', values: per(series.done) }, { name: 'enqueued /s', cls: 'c-in', kind: 'dash', values: per(series.enqueued) }],
      strip: { name: 'failed', cls: 'c-failed', kind: 'bars', values: gather(series.failed, by) }, stripUnit: int,
    }));
  };
  const leave = subscribe(show);
  const timer = setInterval(() => {
    if (!document.hidden && shown === 'full' && !chart.contains(document.activeElement) && !chart.querySelector('details[open]')) void load();
  }, 5000);
  return () => {
    leave();
    clearInterval(timer);
    control.abort();
  };
}

/** @typedef {{ key: string, cls: string, glyph: string, title: string, text: string, action: () => Node }} Look */

/** What an operator should look at, worst first. @param {Snapshot} snap @returns {Look[]} */
export function looks(snap) {
  /** @type {Look[]} */
  const found = [];
  const open = (/** @type {string} */ href, /** @type {string} */ word) => () => h('a', { class: 'btn small', href }, word);
  if (snap.health !== 'good') found.push({ key: 'store', cls: 'is-failed', glyph: 'errors', title: 'The store is not good', text: snap.health, action: open('#/settings', 'Open') });
  const { free_bytes: free, bytes } = snap.store;
  if (free !== null && free < 1e9) found.push({ key: 'disk', cls: 'is-failed', glyph: 'errors', title: 'Little space on the disk', text: `${int(free / 1e6)} MB left, the store has ${int(bytes / 1e6)} MB`, action: open('#/settings', 'Open') });
  if (snap.workers.stale > 0) {
    const { stale, stale_jobs: held } = snap.workers;
    found.push({ key: `silent${stale}`, cls: 'is-warn', glyph: 'schedules', title: stale === 1 ? 'A worker is silent' : `${stale} workers are silent`, text: held ? `${jobs(held)} will be queued again when their leases end` : 'they hold no job', action: open('#/workers', 'Open') });
  }
  for (const q of ordered(snap.queues)) {
    if (q.paused && q.counts.queued > 0) {
      const at = q.paused_at ? `since ${hhmm(ms(q.paused_at))}${q.paused_by ? ` by ${q.paused_by}` : ''}, ` : '';
      found.push({ key: `paused ${q.name}`, cls: 'is-warn', glyph: 'pause', title: `${q.name} is paused`, text: `${at}${jobs(q.counts.queued)} wait`, action: () => (canWrite() ? pauseButton(q, 'Resume') : open(queueLink(q.name), 'Open')()) });
    } else if (q.starved) {
      found.push({ key: `starved ${q.name}`, cls: 'is-warn', glyph: 'workers', title: `No worker takes ${q.name}`, text: `${jobs(q.counts.queued)} wait, the oldest for ${about(q.oldest_ready_age_ms ?? 0)}`, action: open(link(['jobs'], { state: 'queued', queue: q.name }), 'Why') });
    } else if ((q.oldest_ready_age_ms ?? 0) > 60_000) {
      found.push({ key: `late ${q.name}`, cls: 'is-warn', glyph: 'schedules', title: `${q.name} is behind`, text: `the oldest job has waited for ${about(q.oldest_ready_age_ms ?? 0)}`, action: open(queueLink(q.name), 'Open') });
    }
  }
  return found;
}

