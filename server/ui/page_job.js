// One job: why it is here, what happened to it, what it is made of.

import { act, pauseButton, since, tell, verbs } from './actions.js';
import { Problem, get, root, text, write } from './api.js';
import { canWrite, may } from './auth.js';
import { toast } from './dialog.js';
import { copy, h, icon, put, say } from './dom.js';
import { curl, pollLine } from './empty.js';
import { about, hms, instant, ms, size, span } from './format.js';
import { SHOWN, plain, pretty, visible } from './json.js';
import { now, subscribe } from './live.js';
import { busy, command, copyButton, note, pill, refusal, st, teeth } from './parts.js';
import { go, jobLink, queueLink } from './route.js';

/** @param {Page} page */
export function mount({ main, path, crumb, keys }) {
  const id = path[1];
  crumb(['Jobs', '#/jobs'], id);
  const control = new AbortController();
  const head = h('div', { class: 'jobhead' });
  const why = h('div');
  const life = h('div');
  const tries = h('div');
  const payload = h('div');
  const result = h('div');
  const facts = h('div');
  put(main, head, h('div', { class: 'cols w-side' }, h('div', { class: 'stack' }, why, life, tries), h('div', { class: 'stack' }, payload, result, facts)));
  /** @type {JobRow | null} */
  let job = null;
  let seen = '';
  const load = async () => {
    try {
      const found = /** @type {JobRow} */ (await get(`jobs/${encodeURIComponent(id)}?fields=head`, control.signal));
      const key = found.updated_at + found.state + (found.progress ? '*' : '');
      const first = job === null;
      job = found;
      const [explained, { attempts }] = await Promise.all([get(`jobs/${id}/explain`, control.signal), key === seen ? { attempts: null } : get(`jobs/${id}/attempts`, control.signal)]);
      if (!why.contains(document.activeElement)) put(why, whyPanel(found, explained));
      if (key === seen) return;
      seen = key;
      put(head, ...top(found, load));
      put(life, timeline(found, attempts));
      put(tries, attemptList(found, attempts));
      put(facts, factPanel(found));
      if (first) void stored('Payload', `jobs/${id}/payload`, found.payload_bytes, payload, control.signal);
      if (found.result_bytes != null) void stored('Result', `jobs/${id}/result`, found.result_bytes, result, control.signal);
    } catch (error) {
      if (control.signal.aborted) return;
      const missing = error instanceof Problem && error.status === 404;
      put(main, h('section', { class: 'panel' }, h('div', { class: 'body stack firstbody' }, missing ? [h('p', null, h('b', null, `There is no job ${plain(id)}.`)), h('p', { class: 'soft' }, 'It was deleted, or is older than keep_done, or was never enqueued.'), h('p', null, h('a', { href: '#/jobs' }, 'All jobs'))] : refusal(error, load))));
    }
  };
  void load();
  let rev = -1;
  let last = 0;
  const leave = subscribe((snap) => {
    if (!job) return;
    say(head.querySelector('.ago'), ago(job));
    const next = snap.queues.find((q) => q.name === job?.queue)?.rev ?? 0;
    const live = job.state === 'queued' || job.state === 'processing';
    if ((next !== rev || (live && Date.now() - last > 5000)) && Date.now() - last > 1500) {
      rev = next;
      last = Date.now();
      void load();
    }
  });
  const doTo = (/** @type {import('./actions.js').Verb} */ verb) => job && verbs(job.state).includes(verb) && void act(verb, [job.id], load);
  keys(canWrite() ? { r: () => doTo('retry'), c: () => doTo('cancel'), Delete: () => doTo('delete') } : {});
  return () => {
    leave();
    control.abort();
  };
}

/** @param {JobRow} job */
function ago(job) {
  if (job.view === 'scheduled') return `due in ${about(Math.max(0, ms(job.run_at) - now()))}`;
  if (job.view === 'queued') return `due ${about(since(job.run_at))} ago`;
  if (job.view === 'processing') return `runs for ${span(since(job.started_at ?? job.updated_at))}`;
  return `${job.state} ${about(since(job.finished_at ?? job.updated_at))} ago`;
}

/** @param {JobRow} job @param {() => void} load @returns {Child[]} */
function top(job, load) {
  const tone = { failed: 'failed', done: 'done', processing: 'processing', scheduled: 'scheduled' }[job.view] ?? '';
  const button = (/** @type {import('./actions.js').Verb} */ verb, /** @type {string} */ glyph, /** @type {string} */ cls, /** @type {string} */ word, /** @type {string} */ key) => {
    const node = h('button', { class: `btn ${cls}`, type: 'button', 'data-write': true, onclick: () => void busy(node, () => act(verb, [job.id], load)) }, icon(glyph), word, key ? h('kbd', null, key) : null);
    return node;
  };
  const can = canWrite() ? verbs(job.state) : [];
  const again = async () => {
    try {
      const raw = await text(`jobs/${job.id}/payload`);
      const body = `{"queue":${JSON.stringify(job.queue)},"kind":${JSON.stringify(job.kind)},"priority":${job.priority},"max_retries":${job.max_retries},"payload":${raw}}`;
      const made = await write('POST', 'jobs', body);
      toast(`Job ${made.job.id} is enqueued`, { label: 'Open', act: () => go(jobLink(made.job.id)) });
    } catch (error) {
      tell(error);
    }
  };
  const asCurl = async () => toast((await copy(curl('jobs', `{"queue":"${job.queue}","kind":"${job.kind}","payload":${await text(`jobs/${job.id}/payload`)}}`))) ? 'The curl line is copied' : 'The browser refused to copy');
  return [pill(tone, `st-${job.view}`, job.view.charAt(0).toUpperCase() + job.view.slice(1)), h('h2', null, h('code', null, job.kind), ' in ', h('a', { href: queueLink(job.queue) }, job.queue)), h('span', { class: 'mute ago' }, ago(job)),
    h('div', { class: 'actions' }, can.includes('retry') ? button('retry', 'retry', 'go', 'Retry', 'r') : null, can.includes('cancel') ? button('cancel', 'st-cancelled', 'danger', 'Cancel', 'c') : null,
      may('enqueue') ? h('button', { class: 'btn', type: 'button', 'data-write': true, onclick: () => void again() }, icon('plus'), 'Enqueue a copy') : null,
      h('button', { class: 'btn', type: 'button', onclick: () => void asCurl() }, icon('terminal'), 'Copy as curl'), can.includes('delete') ? button('delete', 'trash', 'danger', 'Delete', '') : null)];
}

/** @type {Record<string, string>} */
const TITLES = { ready: 'It is due and starts as soon as a worker asks.', delayed: 'It waits for its time.', queue_paused: 'Its queue is paused.', no_worker: 'No worker takes it.', concurrency_full: 'Its queue is at its limit.', behind: 'Other jobs are before it.', leased: 'A worker runs it.', done: 'It is done.', cancelled: 'It was cancelled and does not run.' };

/** @param {JobRow} job @param {{ reasons: { code: string, detail: string }[], next_change_at: string | null }} explained */
function whyPanel(job, { reasons, next_change_at: next }) {
  const first = reasons.find((r) => r.code === 'queue_paused' || r.code === 'no_worker' || r.code === 'concurrency_full') ?? reasons[0];
  const code = first?.code ?? job.state;
  const title = code === 'failed' ? `Given up after ${job.attempts} of ${job.max_retries + 1} attempts. It stays here until it is retried.` : TITLES[code] ?? first?.detail ?? job.state;
  /** @type {Child} */
  let fix = null;
  if (code === 'queue_paused' && canWrite()) fix = pauseButton({ name: job.queue, paused: true }, icon('play', 's'), 'Resume');
  if (code === 'no_worker') fix = command(pollLine([job.queue]));
  if (code === 'concurrency_full') fix = h('a', { class: 'btn small', href: queueLink(job.queue) }, 'Limits of the queue');
  if (code === 'failed' && job.last_error) fix = h('pre', { class: 'code wrap', tabindex: 0 }, h('span', { class: 'hot' }, ...visible(job.last_error)));
  return h('section', { class: `panel why ${job.state}`, 'aria-labelledby': 'why' }, h('div', { class: 'sign' }, icon(`st-${job.view}`)), h('div', null, h('h2', { id: 'why' }, title),
    h('ul', null, ...reasons.map((r) => h('li', null, h('code', null, r.code), h('span', null, plain(r.detail))))),
    next ? h('p', { class: 'next' }, `Next change by itself at ${instant(next, now())}.`) : null, fix ? h('div', { class: 'next' }, fix) : null));
}

/** Runs and waits, each as wide as it took. @param {JobRow} job @param {Attempt[]} attempts */
function timeline(job, attempts) {
  /** @type {{ cls: string, from: number, to: number, n: number, text: string }[]} */
  const runs = attempts.map((a, n) => ({ cls: a.outcome === 'released' ? 'processing' : 'failed', from: ms(a.started_at), to: ms(a.ended_at), n: n + 1, text: a.exit_code !== null ? `exit ${a.exit_code}` : a.outcome.replace('_', ' ') }));
  const began = ms(job.started_at);
  if (began && (job.state === 'done' || job.state === 'processing') && !runs.some((r) => r.from === began)) {
    runs.push({ cls: job.state, from: began, to: job.finished_at ? ms(job.finished_at) : now(), n: runs.length + 1, text: job.state === 'done' ? 'done' : 'running' });
  }
  const start = Math.min(ms(job.run_at), runs[0]?.from ?? Infinity);
  /** @type {HTMLElement[]} */
  const items = [];
  /** @type {number[]} */
  const widths = [];
  let at = start;
  for (const run of runs) {
    if (run.from - at > 0) {
      items.push(h('li', { class: 'wait', title: `waited ${span(run.from - at)}` }, h('span', { class: 'vh' }, `waited ${span(run.from - at)}`)));
      widths.push(run.from - at);
    }
    items.push(h('li', { class: `run ${run.cls}` }, h('b', null, String(run.n)), ` ${run.text}, ${span(run.to - run.from)}`));
    widths.push(Math.max(1, run.to - run.from));
    at = run.to;
  }
  const end = job.finished_at ? ms(job.finished_at) : now();
  const bar = h('ol', { class: 'life' }, ...items);
  const sum = widths.reduce((a, b) => a + b, 0);
  // Nothing is drawn so small that it cannot be seen.
  bar.style.gridTemplateColumns = widths.map((w) => `minmax(3px, ${Math.max(0.02, w / sum).toFixed(4)}fr)`).join(' ');
  return h('section', { class: 'panel', 'aria-labelledby': 'life' }, h('header', null, h('h2', { id: 'life' }, 'Timeline'), h('span', { class: 'end mute' }, job.finished_at ? `${span(Math.max(0, end - start))} from due to ${job.state}` : null)),
    h('div', { class: 'body' }, items.length > 0 ? bar : h('p', { class: 'mute' }, 'It has not run yet.'), h('p', { class: 'ends' }, h('span', null, h('b', null, hms(ms(job.run_at))), ' due'), job.finished_at ? h('span', null, h('b', null, hms(end)), ` ${job.state === 'failed' ? 'failed for good' : job.state}`) : null)));
}

/** @param {JobRow} job @param {Attempt[]} attempts */
function attemptList(job, attempts) {
  const list = attempts.map((a, n) => ({ a, n: n + 1 })).reverse();
  return h('section', { class: 'panel', 'aria-labelledby': 'atts' }, h('header', null, h('h2', { id: 'atts' }, 'Attempts'), teeth(job), h('span', { class: 'end mute' }, list.length > 0 ? 'that did not complete, newest first' : 'none has failed')),
    ...list.map(({ a, n }, at) => h('details', { class: 'attempt', open: at === 0 }, h('summary', null, icon('chev', 's tw'), h('b', null, String(n)),
      h('span', null, st(a.outcome === 'released' ? 'cancelled' : 'failed', a.outcome.replace('_', ' ')), a.exit_code !== null ? h('span', { class: 'soft' }, ` exit code ${a.exit_code}`) : null),
      h('span', { class: 'mute mono w-m' }, `${a.worker}, epoch ${a.epoch}`), h('span', { class: 'mute' }, `${hms(ms(a.started_at))}, ran ${span(ms(a.ended_at) - ms(a.started_at))}`)),
    h('div', { class: 'out' }, a.error ? output('error', a.error, false) : null, a.stderr ? output('stderr', a.stderr, a.truncated) : null, a.stdout ? output('stdout', a.stdout, a.truncated) : null, a.error || a.stderr || a.stdout ? null : h('p', { class: 'mute' }, 'Nothing was said.')))));
}

/** @param {string} name @param {string} said @param {boolean} cut */
function output(name, said, cut) {
  const lines = said.replace(/\n$/, '').split('\n');
  const bad = lines.findLastIndex((l) => /error|fatal|panic|exception|refused|timed? ?out/i.test(l));
  return h('div', null, h('p', { class: 'outhead' }, h('b', null, name), h('span', null, `${cut ? 'the end of more, ' : ''}${lines.length} ${lines.length === 1 ? 'line' : 'lines'}, ${size(said.length)}`)),
    h('pre', { class: 'code wrap', tabindex: 0 }, cut ? h('span', { class: 'p' }, '… cut here\n') : null, ...lines.slice(0, 2000).flatMap((l, n) => [name !== 'stdout' && n === bad ? h('span', { class: 'hot' }, ...visible(l)) : visible(l), n < lines.length - 1 ? '\n' : '']).flat()));
}

/** A stored document, as it is. @param {string} title @param {string} path @param {number} bytes @param {HTMLElement} place @param {AbortSignal} signal */
async function stored(title, path, bytes, place, signal) {
  const name = title.toLowerCase();
  const download = h('a', { href: new URL(path, root).href, download: `${path.replaceAll('/', '-')}.json` }, 'Download');
  try {
    const raw = await text(path, signal);
    const more = raw.length > SHOWN ? note('', `Shown are the first ${size(SHOWN)} of ${size(bytes)}. `, download) : null;
    put(place, h('section', { class: 'panel', 'aria-labelledby': name }, h('header', null, h('h2', { id: name }, title), h('span', { class: 'end mute' }, size(bytes), copyButton(() => raw))), h('div', { class: 'body stack' }, h('pre', { class: 'code', tabindex: 0 }, pretty(raw)), more)));
  } catch (error) {
    if (!signal.aborted) put(place, refusal(error));
  }
}

/** @param {JobRow} job */
function factPanel(job) {
  const r = job.retry;
  const policy = r ? `${r.strategy}, ${span(r.initial_ms)}${r.factor ? ` × ${r.factor}` : ''}, cap ${about(r.cap_ms)}, ± ${Math.round(r.jitter * 100)} %` : '';
  /** @type {[string, Child | null][]} */
  const rows = [['Created', instant(job.created_at, now())], ['Due', instant(job.run_at, now())], ['Finished', job.finished_at ? instant(job.finished_at, now()) : null], ['Worker', job.worker ? h('code', null, job.worker) : null], ['Lease ends', job.lease_until ? instant(job.lease_until, now()) : null],
    ['Progress', job.progress != null ? h('code', null, plain(JSON.stringify(job.progress))) : null], ['Priority', String(job.priority)], ['Timeout', job.timeout_ms ? `${about(job.timeout_ms)} per attempt` : 'off'], ['Visibility timeout', about(job.visibility_timeout_ms)], ['Retry', policy], ['Generation', String(job.generation)], ['Idempotency key', job.idempotency_key ? h('code', null, plain(job.idempotency_key)) : null], ['Result', job.result_bytes == null ? h('span', { class: 'mute' }, 'none') : size(job.result_bytes)]];
  return h('section', { class: 'panel', 'aria-labelledby': 'fx' }, h('header', null, h('h2', { id: 'fx' }, 'Facts')), h('div', { class: 'body' }, h('dl', { class: 'facts' }, ...rows.filter(([, v]) => v !== null).flatMap(([k, v]) => [h('dt', null, k), h('dd', null, v)]))),
    h('footer', null, h('code', null, `windlass show ${job.id}`), h('code', { class: 'w-l' }, `windlass explain ${job.id}`)));
}
