// Addresses: the part behind the hash. Pages are mounted for a path; filters are its query.

import { h, icon } from './dom.js';

/** @typedef {{ path: string[], query: URLSearchParams }} Route */

/** @returns {Route} */
export function here() {
	const hash = location.hash.replace(/^#\/?/, '');
	const [path, query = ''] = hash.split('?');
	const parts = path
		.split('/')
		.filter((p) => p !== '')
		.map((p) => {
			try {
				return decodeURIComponent(p);
			} catch {
				return p;
			}
		});
	return { path: parts, query: new URLSearchParams(query) };
}

/** @param {string[]} path @param {Record<string, string | null | undefined>} [query] */
export function link(path, query = {}) {
	const pairs = Object.entries(query).filter((pair) => pair[1] !== null && pair[1] !== undefined && pair[1] !== '');
	// Commas and colons are legible in an address and mean nothing there.
	const text = new URLSearchParams(/** @type {[string, string][]} */ (pairs))
		.toString()
		.replaceAll('%2C', ',')
		.replaceAll('%3A', ':');
	return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export const jobLink = (/** @type {number | string} */ id) => link(['jobs', String(id)]);
export const queueLink = (/** @type {string} */ name) => link(['queues', name]);

/** @type {() => void} */
let mount = () => {};

/**
 * Where each entry of the history was scrolled to, and what had the focus.
 * @type {Map<number, { y: number, focus: string | null }>}
 */
const memory = new Map();
let entry = 0;
let newest = 0;

/** @param {() => void} show */
export function begin(show) {
	mount = show;
	history.scrollRestoration = 'manual';
	entry = Number(history.state?.entry ?? 0);
	newest = entry;
	history.replaceState({ entry }, '');
	addEventListener('popstate', (event) => {
		keep();
		// A link that was followed has no state yet.
		entry = Number(event.state?.entry ?? (newest += 1));
		if (event.state === null) history.replaceState({ entry }, '');
		mount();
	});
}

/** Remembers the place on the page that is left. */
function keep() {
	const focus = document.activeElement?.closest('[data-key]');
	memory.set(entry, { y: scrollY, focus: focus instanceof HTMLElement ? (focus.dataset.key ?? null) : null });
	if (memory.size > 20) memory.delete(memory.keys().next().value ?? 0);
}

/** The place that was remembered for the page that is shown now. */
export const remembered = () => memory.get(entry) ?? null;

/**
 * Goes back to the remembered place as soon as its data is there, unless the person acts first.
 * @param {HTMLElement} main @returns {() => void} ends it
 */
export function restore(main) {
	const end = new AbortController();
	const place = remembered();
	scrollTo(0, place?.y ?? 0);
	if (!place) return () => {};
	const apply = () => {
		const row = place.focus === null ? null : main.querySelector(`[data-key="${CSS.escape(place.focus)}"]`);
		row?.querySelector('a')?.focus({ preventScroll: true });
		scrollTo(0, place.y);
		if ((row || place.focus === null) && Math.abs(scrollY - place.y) < 2) end.abort();
	};
	const changes = new MutationObserver(apply);
	changes.observe(main, { childList: true, subtree: true });
	end.signal.addEventListener('abort', () => changes.disconnect());
	for (const act of ['wheel', 'pointerdown', 'keydown'])
		addEventListener(act, () => end.abort(), { signal: end.signal, capture: true, passive: true });
	setTimeout(() => end.abort(), 5000);
	apply();
	return () => end.abort();
}

/** Goes to an address. @param {string} hash */
export function go(hash) {
	keep();
	newest += 1;
	entry = newest;
	history.pushState({ entry }, '', hash);
	mount();
}

/** The same page with another address: filters while typing, the selected row. @param {string} hash */
export function rewrite(hash) {
	history.replaceState({ entry }, '', hash);
}

// Filters of the list of jobs: what a search means, and the chips that show it.

/** Filters that are one word for one parameter of the API. */
const SEEKS = ['queue', 'kind', 'key', 'id', 'group', 'worker'];
export const STATES = ['queued', 'scheduled', 'processing', 'done', 'failed', 'cancelled'];
/** What belongs to the address and is no filter. */
const OTHERS = ['state', 'after', 'row'];
/** What can be searched for, for the field's suggestions. */
export const WORDS = [
	...SEEKS,
	'state',
	'error',
	'payload',
	'payload/user/id',
	'attempts:>=',
	'priority:>',
	'age:<',
	'from',
	'to',
];

/**
 * What was typed: a job's id, or words like `queue:mail`. Words that mean nothing are kept, so that
 * they can be shown as such.
 * @param {string} text
 * @returns {{ job: string | null, query: Record<string, string> }}
 */
export function parse(text) {
	const typed = text.trim();
	if (/^\d{1,19}$/.test(typed)) return { job: typed, query: {} };
	/** @type {Record<string, string>} */
	const query = Object.create(null);
	for (const word of typed.match(/[^\s:"]+:"[^"]*"|\S+/g) ?? []) {
		const colon = word.indexOf(':');
		const key = word.slice(0, Math.max(0, colon));
		const name = key.startsWith('payload/') ? key : key.toLowerCase();
		const value = word.slice(colon + 1).replace(/^"|"$/g, '');
		if (name === '' || value === '') query.text = query.text ? `${query.text} ${word}` : word;
		else query[name] = name === 'queue' && query.queue ? `${query.queue},${value}` : value;
	}
	return { job: null, query };
}

/** Filters as they would be typed, to be gone on with. @param {URLSearchParams} query */
export const written = (query) =>
	[...query]
		.filter(([name]) => name !== 'after' && name !== 'row')
		.map(([name, value]) => `${name}:${/\s/.test(value) ? `"${value}"` : value} `)
		.join('');

/** @param {URLSearchParams} query @returns {{ known: Record<string, string>, unknown: [string, string][] }} */
export function read(query) {
	/** @type {Record<string, string>} */
	const known = {};
	/** @type {[string, string][]} */
	const unknown = [];
	let pointers = 0;
	for (const [name, value] of query) {
		if (name.startsWith('payload/')) pointers += 1;
		if (pointers < 2 && meaning(name, value, 0)) known[name] = value;
		else if (name === 'state' || !OTHERS.includes(name) || (name === 'row' && !/^\d{1,19}$/.test(value)))
			unknown.push([name, value]);
	}
	return { known, unknown };
}

/** What the API is asked for. @param {Record<string, string>} known @param {number} now */
export const asked = (known, now) =>
	Object.assign({}, ...Object.entries(known).map(([name, value]) => meaning(name, value, now)));

/** The same for a bulk action, which takes numbers as numbers. @param {Record<string, string>} asked */
export const bulkFilter = (asked) =>
	/** @type {Record<string, string | number>} */ (
		Object.fromEntries(
			Object.entries(asked).map(([name, value]) => [name, /^(id|\w+_min)$/.test(name) ? Number(value) : value]),
		)
	);

/** @type {Record<string, number>} */
const UNITS = { s: 1e3, m: 6e4, h: 36e5, d: 864e5 };

/**
 * What one filter means to the API; nothing if it is not understood.
 * @param {string} name @param {string} value @param {number} now
 * @returns {Record<string, string> | null}
 */
function meaning(name, value, now) {
	if (name === 'state') return STATES.includes(value) ? { state: value } : null;
	if (SEEKS.includes(name)) return good(name, value) ? { [name]: value } : null;
	if (value.length > 200) return null;
	if (name === 'error' || name === 'payload') return { [`${name}_contains`]: value };
	if (name.startsWith('payload/')) return { payload_at: name.slice(7), payload_is: value };
	const [, sign, n, unit] = value.match(/^([<>]=?)?(-?\d{1,9})([smhd])?$/) ?? [];
	if ((name === 'attempts' || name === 'priority') && n && !unit && sign !== '<' && sign !== '<=')
		return { [`${name}_min`]: String(Number(n) + (sign === '>' ? 1 : 0)) };
	if (name === 'age' && unit && sign)
		return { [sign.startsWith('<') ? 'from' : 'to']: new Date(now - Number(n) * UNITS[unit]).toISOString() };
	const at = name === 'from' || name === 'to' ? Date.parse(value) : NaN;
	return Number.isNaN(at) ? null : { [name]: new Date(at).toISOString() };
}

/** @param {string} name @param {string} value */
function good(name, value) {
	if (name === 'id') return /^\d{1,19}(,\d{1,19})*$/.test(value);
	if (name === 'key') return /^[\x21-\x7e]{1,255}$/.test(value);
	if (name === 'group') return /^[0-9a-f]{1,32}$/.test(value);
	if (name === 'worker') return value.length <= 200;
	const names = name === 'queue' ? value.split(',') : [value];
	return names.length <= 20 && names.every((one) => /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/.test(one));
}

/**
 * A filter that can be taken off.
 * @param {string} name
 * @param {string} value
 * @param {boolean} understood
 * @param {() => void} remove
 */
export function chip(name, value, understood, remove) {
	return h(
		'span',
		{ class: understood ? 'chip' : 'chip bad' },
		h('b', understood ? name : `${name} not understood`),
		h('span', value),
		h('button', { 'aria-label': `Remove the filter: ${name} ${value}`, onclick: remove }, icon('x', 's')),
	);
}

/**
 * How many jobs a list has, by the counters.
 * @param {Snapshot} snap
 * @param {string} state
 * @param {string | undefined} queue
 */
export function counted(snap, state, queue) {
	const names = queue?.split(',');
	const all = names ? snap.queues.filter((q) => names.includes(q.name)).map((q) => q.counts) : [snap.counts];
	return all.reduce(
		(sum, counts) =>
			sum + (state ? [state] : STATES).reduce((n, name) => n + counts[/** @type {keyof Counts} */ (name)], 0),
		0,
	);
}
