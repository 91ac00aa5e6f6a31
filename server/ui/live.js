// The one stream of a tab: snapshots, how old they are, and an honest badge about it.

import { Problem, get, send } from './api.js';

const RETRY = [1000, 2000, 4000, 8000, 15_000];
const SILENT = 5000;
/** Up to this age a snapshot is live. */
const FRESH = 3000;
const HIDDEN = 10_000;
const POLL = 5000;
/** Refused streams after which it polls; one that stays silent is enough. */
const REFUSALS = 2;
/** While it polls, a stream is tried again at each of these polls. */
const TRIES = 4;

/** @type {{ snap: Snapshot | null, offset: number, arrived: number, rev: number }} */
export const state = { snap: null, offset: 0, arrived: 0, rev: 0 };

/** @type {Set<(snap: Snapshot) => void>} */
const viewers = new Set();
/** @type {Set<() => void>} */
const watchers = new Set();
/** @type {Set<() => void>} */
const missed = new Set();

let paused = false;
let hidden = false;
let polling = false;
let failures = 0;
/** Streams in a row that were refused: a proxy may not let them through. */
let refused = 0;
let received = false;
/** @type {AbortController | null} */
let stream = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let lastByte = 0;

/** The server's clock, by what it said last. */
export const now = () => Date.now() + state.offset;

/**
 * Called with each snapshot, and at once if there is one.
 * @param {(snap: Snapshot) => void} view @returns {() => void}
 */
export function subscribe(view) {
	viewers.add(view);
	if (state.snap) view(state.snap);
	return () => viewers.delete(view);
}

/** Called when the badge may have changed, each second. @param {() => void} watch */
export function watch(watch) {
	watchers.add(watch);
}

/** Calls this once when the server answers again. @param {() => void} again */
export function whenBack(again) {
	missed.add(again);
}

/** @returns {{ mode: 'connecting' | 'live' | 'paused' | 'stale' | 'polling', age: number }} */
export function badge() {
	const age = state.snap ? Date.now() - state.arrived : 0;
	if (paused || hidden) return { mode: 'paused', age };
	if (!state.snap) return { mode: failures > 0 ? 'stale' : 'connecting', age };
	if (polling) return { mode: age > 11_000 ? 'stale' : 'polling', age };
	return { mode: age < FRESH ? 'live' : 'stale', age };
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
			if (!received) refused = REFUSALS;
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
	received = false;
	if (polling) void poll(control);
	else void follow(control);
}

function lost() {
	stop();
	failures += 1;
	polling = refused >= REFUSALS;
	const wait = RETRY[Math.min(failures, RETRY.length) - 1] * (0.8 + Math.random() * 0.4);
	timer = setTimeout(start, wait);
	tell();
}

/** @param {AbortController} control @param {AbortSignal} [signal] */
async function follow(control, signal = control.signal) {
	try {
		const response = await send('events?feed=snapshot', { signal });
		if (!response.body) throw new Error('no stream');
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		let kept = '';
		for (;;) {
			const { done, value } = await reader.read();
			if (done) break;
			lastByte = Date.now();
			received = true;
			kept += value;
			const parts = kept.split('\n\n');
			kept = parts.pop() ?? '';
			for (const part of parts) take(part);
		}
	} catch (error) {
		if (control.signal.aborted) return;
		// A login begins again.
		if (error instanceof Problem && error.status === 401 && stream === control) return stop();
		if (error instanceof Problem && error.status > 0) refused += 1;
	}
	if (stream === control && !polling) lost();
}

/** @param {string} part */
function take(part) {
	if (!part.startsWith('event: snapshot\n')) return;
	failures = 0;
	refused = 0;
	polling = false;
	arrive(JSON.parse(part.slice(part.indexOf('data: ') + 6)));
}

/**
 * Without a stream: a snapshot every five seconds, until a stream is let through.
 * @param {AbortController} control
 */
async function poll(control) {
	for (let round = 1; stream === control && polling; round += 1) {
		try {
			arrive(await get('snapshot', control.signal));
			failures = 0;
		} catch (error) {
			if (control.signal.aborted) return;
			if (error instanceof Problem && error.status === 401 && stream === control) return stop();
			failures += 1;
		}
		if (round % TRIES === 0) tryStream(control);
		await new Promise((resolve) => setTimeout(resolve, POLL));
	}
}

/** Follows a stream beside the polls; it takes over with its first snapshot. @param {AbortController} control */
function tryStream(control) {
	const silent = new AbortController();
	setTimeout(() => polling && silent.abort(), SILENT);
	void follow(control, AbortSignal.any([control.signal, silent.signal]));
}

/** @param {Snapshot} next */
function arrive(next) {
	state.offset = Date.parse(next.at) - Date.now();
	state.arrived = Date.now();
	if (!next.full && state.snap) {
		const queues = new Map(state.snap.queues.map((q) => [q.name, q]));
		const passed = Date.parse(next.at) - Date.parse(state.snap.at);
		for (const [name, q] of queues) {
			if (q.oldest_ready_age_ms !== null)
				queues.set(name, { ...q, oldest_ready_age_ms: q.oldest_ready_age_ms + passed });
		}
		for (const q of next.queues) queues.set(q.name, q);
		for (const name of next.removed) queues.delete(name);
		next.queues = [...queues.values()];
	}
	state.snap = next;
	state.rev += 1;
	if (next.full) {
		const again = [...missed];
		missed.clear();
		for (const read of again) read();
	}
	if (document.hidden && state.rev > 1) return;
	requestAnimationFrame(() => {
		if (!state.snap) return;
		for (const view of [...viewers]) view(state.snap);
		tell();
		document.documentElement.dataset.rev = String(state.rev);
	});
}
