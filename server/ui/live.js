// The one stream of a tab: snapshots, how old they are, and an honest badge about it.

import { Problem, get, send } from './api.js';

const RETRY = [1000, 2000, 4000, 8000, 15_000];
const SILENT = 5000;
const HIDDEN = 10_000;

/** @type {{ snap: Snapshot | null, offset: number, arrived: number, rev: number }} */
export const state = { snap: null, offset: 0, arrived: 0, rev: 0 };

/** @type {Set<(snap: Snapshot) => void>} */
const viewers = new Set();
/** @type {Set<() => void>} */
const watchers = new Set();

let paused = false;
let hidden = false;
let polling = false;
let failures = 0;
/** Streams in a row that were refused or stayed silent: a proxy may not let them through. */
let refused = 0;
let heard = false;
/** @type {AbortController | null} */
let stream = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let lastByte = 0;

/** The server's clock, by what it said last. */
export const now = () => Date.now() + state.offset;

/** Called with each snapshot, and at once if there is one. @param {(snap: Snapshot) => void} view @returns {() => void} */
export function subscribe(view) {
  viewers.add(view);
  if (state.snap) view(state.snap);
  return () => viewers.delete(view);
}

/** Called when the badge may have changed, each second. @param {() => void} watch */
export function watch(watch) {
  watchers.add(watch);
}

/** @returns {{ mode: 'connecting' | 'live' | 'paused' | 'stale' | 'polling', age: number }} */
export function badge() {
  const age = state.snap ? Date.now() - state.arrived : 0;
  if (paused || hidden) return { mode: 'paused', age };
  if (!state.snap) return { mode: failures > 0 ? 'stale' : 'connecting', age };
  if (polling) return { mode: age > 11_000 ? 'stale' : 'polling', age };
  return { mode: age < SILENT ? 'live' : 'stale', age };
}

/** Whether what is shown is too old to act on. */
export const stale = () => badge().mode === 'stale';

export function togglePause() {
  paused = !paused;
  if (paused) stop();
  else start();
  tell();
}

function tell() {
  document.documentElement.dataset.live = badge().mode;
  for (const watch of watchers) watch();
}

export function begin() {
  document.addEventListener('visibilitychange', () => {
    clearTimeout(timer);
    if (document.hidden) {
      timer = setTimeout(() => {
        hidden = true;
        stop();
        tell();
      }, HIDDEN);
    } else if (hidden) {
      hidden = false;
      if (!paused) start();
      tell();
    } else if (!stream && !paused) start();
  });
  setInterval(() => {
    if (stream && !polling && Date.now() - lastByte > SILENT) {
      if (!heard) refused += 1;
      lost();
    }
    if (!hidden) tell();
  }, 1000);
  start();
}

export function stop() {
  clearTimeout(timer);
  stream?.abort();
  stream = null;
}

/** Begins again from nothing, after a login. */
export function restart() {
  failures = 0;
  refused = 0;
  polling = false;
  stop();
  if (!paused && !hidden) start();
}

function start() {
  stop();
  const control = new AbortController();
  stream = control;
  lastByte = Date.now();
  heard = false;
  if (polling) void poll(control);
  else void follow(control);
}

function lost() {
  stop();
  failures += 1;
  polling = refused >= 2;
  const wait = RETRY[Math.min(failures, RETRY.length) - 1] * (0.8 + Math.random() * 0.4);
  timer = setTimeout(start, wait);
  tell();
}

/** @param {AbortController} control */
async function follow(control) {
  try {
    const response = await send('events?feed=snapshot', { signal: control.signal });
    if (!response.body) throw new Error('no stream');
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let kept = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      lastByte = Date.now();
      heard = true;
      kept += value;
      const parts = kept.split('\n\n');
      kept = parts.pop() ?? '';
      for (const part of parts) take(part);
    }
  } catch (error) {
    if (control.signal.aborted) return;
    if (error instanceof Problem && error.status > 0 && error.status !== 401) refused += 1;
  }
  if (stream === control) lost();
}

/** @param {string} part */
function take(part) {
  if (!part.startsWith('event: snapshot\n')) return;
  failures = 0;
  refused = 0;
  arrive(JSON.parse(part.slice(part.indexOf('data: ') + 6)));
}

/** Without a stream: a snapshot every five seconds. @param {AbortController} control */
async function poll(control) {
  while (stream === control) {
    try {
      arrive(await get('snapshot', control.signal));
      failures = 0;
    } catch {
      if (control.signal.aborted) return;
      failures += 1;
    }
    await new Promise((resolve) => setTimeout(resolve, 5000));
  }
}

/** @param {Snapshot} next */
function arrive(next) {
  state.offset = Date.parse(next.at) - Date.now();
  state.arrived = Date.now();
  if (!next.full && state.snap) {
    const queues = new Map(state.snap.queues.map((q) => [q.name, q]));
    const passed = Date.parse(next.at) - Date.parse(state.snap.at);
    for (const [name, q] of queues) {
      if (q.oldest_ready_age_ms !== null) queues.set(name, { ...q, oldest_ready_age_ms: q.oldest_ready_age_ms + passed });
    }
    for (const q of next.queues) queues.set(q.name, q);
    for (const name of next.removed) queues.delete(name);
    next.queues = [...queues.values()];
  }
  state.snap = next;
  state.rev += 1;
  if (document.hidden && state.rev > 1) return;
  requestAnimationFrame(() => {
    if (!state.snap) return;
    for (const view of [...viewers]) view(state.snap);
    tell();
    document.documentElement.dataset.rev = String(state.rev);
  });
}
