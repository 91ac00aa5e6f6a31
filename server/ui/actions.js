// What a person can do to jobs and queues, each with its question before and its undo after; the
// dialogs and toasts that this takes.

import { Problem, get, may, write } from './api.js';
import { byId, h, icon, int, plain, plural, say } from './dom.js';
import { now, stale, subscribe } from './live.js';
import { busy, note } from './parts.js';
import { go, link } from './route.js';

/** How long a deletion waits before the server is asked. */
const GRACE = 8000;

/** Whether a write may be sent now; says why not. @param {string} [scope] */
export function ready(scope = 'admin') {
	if (!may(scope)) return false;
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

/**
 * A button that pauses or resumes a queue.
 * @param {{ name: string, paused: boolean }} queue
 * @param {Child[]} content
 */
export function pauseButton(queue, ...content) {
	const button = h(
		'button.btn.small',
		{ 'data-write': true, onclick: () => void busy(button, () => setPaused(queue.name, !queue.paused)) },
		...content,
		h('span.vh', ` ${queue.name}`),
	);
	return button;
}

/** @typedef {'retry' | 'cancel' | 'delete'} Verb */
/** @type {Record<Verb, [string, string, string]>} */
const WORDS = {
	retry: ['Retry', 'retried', 'Do not retry'],
	cancel: ['Cancel', 'cancelled', 'Do not cancel'],
	delete: ['Delete', 'deleted', 'Keep them'],
};

/** @param {Verb} verb @param {number} id */
const call = (verb, id) => (verb === 'delete' ? write('DELETE', `jobs/${id}`) : write('POST', `jobs/${id}/${verb}`));

/** @typedef {{ ids: number[] } | { filter: Record<string, string | number> }} Target */

/** @typedef {{ matched: number, exact: boolean, queues: { name: string, count: number }[] }} Found */

/** Whether a question is being counted or shown: there is one at a time. */
let asking = false;
/** What was asked for and has not ended: the same is not begun twice. @type {Set<string>} */
const going = new Set();

/**
 * Asks with the count of a dry run, and does it: one job at once, more as a bulk action of the server.
 * @param {Verb} verb @param {Target} target @param {() => void} [after]
 */
export async function act(verb, target, after = () => {}) {
	const one = 'ids' in target && target.ids.length === 1 ? target.ids[0] : null;
	const key = `${verb} ${JSON.stringify(target)}`;
	if (('ids' in target && target.ids.length === 0) || asking || going.has(key) || !ready()) return;
	going.add(key);
	try {
		for (let changed = ''; ;) {
			const found = await question(verb, target, one, changed);
			if (!found) return;
			if (verb === 'delete' && found.matched <= 100 && (await kept(plural(found.matched, 'job')))) return;
			// The server may have gone meanwhile.
			if (!ready()) return;
			try {
				if (one === null) await begin(verb, target, found.matched);
				else {
					await call(verb, one);
					toast(`Job ${one} is ${verb === 'retry' ? 'queued again' : WORDS[verb][1]}`);
				}
				return after();
			} catch (error) {
				if (!(error instanceof Problem) || error.kind !== 'count-changed') throw error;
				changed = error.message;
			}
		}
	} catch (error) {
		tell(error);
	} finally {
		going.delete(key);
	}
}

/**
 * What was counted and agreed to; nothing if there is no such job, or the answer is no.
 * @param {Verb} verb @param {Target} target @param {number | null} one @param {string} changed
 * @returns {Promise<Found | null>}
 */
async function question(verb, target, one, changed) {
	asking = true;
	try {
		if (one !== null && verb === 'retry') return { matched: 1, exact: true, queues: [] };
		const found =
			one === null
				? await write('POST', 'bulk', { action: verb, ...target, dry_run: true })
				: { matched: 1, exact: true, queues: [] };
		if (found.matched === 0) toast('No job matches any more');
		return found.matched > 0 && (await asks(verb, target, found, changed)) ? found : null;
	} finally {
		asking = false;
	}
}

/**
 * @param {Verb} verb
 * @param {Target} target
 * @param {Found} found
 * @param {string} changed
 */
function asks(verb, target, found, changed) {
	const [word, , safe] = WORDS[verb];
	const count = `${found.exact ? '' : 'up to '}${plural(found.matched, 'job')}`;
	const body =
		verb === 'delete'
			? 'Payloads, results and attempts go with them. This cannot be undone.'
			: verb === 'retry'
				? 'Each starts again with all its attempts.'
				: 'Jobs that wait do not run. Running jobs are asked to stop at their next heartbeat.';
	const filter =
		'filter' in target
			? h(
					'p',
					'All that match ',
					h(
						'b',
						Object.entries(target.filter)
							.map(([name, value]) => `${name} ${plain(String(value))}`)
							.join(', '),
					),
					found.exact ? '.' : `. A search found at least ${int(found.matched)}; the action ends at this number.`,
				)
			: null;
	const facts = h('dl.facts', ...found.queues.slice(0, 8).flatMap((q) => [h('dt', q.name), h('dd', int(q.count))]));
	return confirm({
		title: `${word} ${count}?`,
		body: [changed ? note('warn', changed) : null, filter, h('p.soft', body), facts],
		safe,
		verb: `${word} ${count}`,
		count: found.matched,
		danger: verb !== 'retry',
	});
}

/** Waits before jobs are deleted; whether they were kept. @param {string} count */
async function kept(count) {
	let keep = false;
	// It stays while the deletion can be stopped, whatever else is shown.
	const waiting = toast(
		`${count} will be deleted in 8 s`,
		{
			label: 'Keep them',
			act: () => {
				keep = true;
			},
		},
		0,
	);
	waiting.node.dataset.stays = '';
	await new Promise((resolve) => setTimeout(resolve, GRACE));
	waiting.close();
	return keep;
}

/** Starts a bulk action. @param {Verb} verb @param {Target} target @param {number} expect @param {object} [terms] */
export async function begin(verb, target, expect, terms = {}) {
	const { bulk } = await write('POST', 'bulk', { action: verb, ...target, expect, ...terms });
	track(bulk);
}

/** @param {unknown} error */
export const missing = (error) => error instanceof Problem && error.status === 404;

/** Bulk actions that a toast tells of. @type {Set<number>} */
const tracked = new Set();

/** @param {BulkLine | undefined} line */
const ended = (line) => !line || line.state === 'done' || line.state === 'stopped';

/** Shows a toast for each bulk action that is in progress, also after a reload. @param {Snapshot} snap */
export function showBulks(snap) {
	for (const { id } of (snap.bulk ?? []).filter((one) => !ended(one) && !tracked.has(one.id))) {
		tracked.add(id);
		get(`bulk/${id}`).then(
			({ bulk }) => {
				tracked.delete(id);
				track(bulk);
			},
			(error) => missing(error) || tracked.delete(id),
		);
	}
}

/** A toast with the progress of a bulk action, and one with its end. @param {Bulk} bulk */
function track(bulk) {
	if (tracked.has(bulk.id)) return;
	tracked.add(bulk.id);
	const [word, past] = WORDS[bulk.action];
	const open = { label: 'Open', act: () => go(link(['bulk', String(bulk.id)])) };
	const said = toast(`${word} of ${plural(bulk.of, 'job')} is in progress`, open, 0);
	const done = h('span', { 'aria-hidden': 'true' });
	said.node.classList.add('runs');
	said.node.firstElementChild?.after(done);
	let reading = false;
	const leave = subscribe((snap) => {
		const line = (snap.bulk ?? []).find((one) => one.id === bulk.id);
		say(done, `${int(line?.done ?? 0)} done`);
		if (reading || !ended(line)) return;
		reading = true;
		get(`bulk/${bulk.id}`)
			.then(({ bulk: last }) => {
				if (!ended(last)) return;
				leave();
				said.close();
				const refused = last.refused ? `, ${int(last.refused)} refused` : '';
				toast(`${plural(last.done, 'job')} ${past}${refused}`, open);
			})
			.catch((error) => {
				// Ended actions are kept for a limited time.
				if (!missing(error)) return;
				leave();
				said.close();
			})
			.finally(() => (reading = false));
	});
}

/** What may be done to a job in this state. @param {string} state @returns {Verb[]} */
export function verbs(state) {
	if (state === 'failed' || state === 'cancelled') return ['retry', 'delete'];
	return state === 'done' ? ['delete'] : ['cancel'];
}

/** The age of an instant, by the server's clock. @param {string} iso */
export const since = (iso) => Math.max(0, now() - Date.parse(iso));

// Dialogs that ask before something is done, and toasts that tell that it was.

/** @typedef {{ label: string, act: () => void }} ToastAction */

/**
 * @param {string} text
 * @param {ToastAction | null} [action]
 * @param {number} [forMs]
 * @returns {{ node: HTMLElement, close: () => void }}
 */
export function toast(text, action = null, forMs = 10_000) {
	const place = byId('toasts');
	const word = h('b', text);
	const node = h('div.bulk.still', word);
	const close = () => node.remove();
	if (action) {
		node.append(
			h(
				'button.btn.small',
				{
					onclick: () => {
						close();
						action.act();
					},
				},
				action.label,
			),
		);
	}
	node.append(h('button.btn.bare.small', { 'aria-label': 'Dismiss', onclick: close }, icon('x', 's')));
	const passing = [...place.children].filter((one) => !(one instanceof HTMLElement && 'stays' in one.dataset));
	for (const old of passing.slice(0, Math.max(0, passing.length - 2))) old.remove();
	place.append(node);
	if (forMs > 0) setTimeout(close, forMs);
	return { node, close };
}

/**
 * Shows a dialog until it is closed; the focus goes back to where it was.
 * @param {string} title @param {Child[]} body @param {HTMLElement[]} buttons the first is the safe one
 * @returns {HTMLDialogElement}
 */
export function dialog(title, body, buttons) {
	const opener = document.activeElement;
	const node = h(
		'dialog',
		{
			'aria-labelledby': 'dialog-title',
			onclose: () => {
				node.remove();
				if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
			},
		},
		h('header', h('h2', { id: 'dialog-title' }, title)),
		h('div.body', ...body),
		buttons.length > 0 ? h('footer', ...buttons) : null,
	);
	document.body.append(node);
	node.showModal();
	buttons[0]?.focus();
	return node;
}

/**
 * Asks; above a hundred the number has to be typed. The focus starts on the safe button.
 * @param {{ title: string, body: Child[], safe: string, verb: string, count: number, danger?: boolean }} ask
 * @returns {Promise<boolean>}
 */
export function confirm(ask) {
	return new Promise((resolve) => {
		const typed = ask.count > 100;
		const go = h(
			'button',
			{
				class: ask.danger ? 'btn stop' : 'btn go',
				disabled: typed || stale(),
				'data-write': true,
				'data-off': typed,
				onclick: () => {
					if (!ready()) return;
					resolve(true);
					node.close();
				},
			},
			ask.verb,
		);
		const safe = h('button.btn', { onclick: () => node.close() }, ask.safe);
		const input = h('input', {
			id: 'typed',
			class: 'input',
			inputmode: 'numeric',
			autocomplete: 'off',
			oninput: () => {
				const off = input.value.replace(/\D/g, '') !== String(ask.count);
				go.disabled = go.toggleAttribute('data-off', off) || stale();
			},
		});
		const field = typed ? h('div.field', h('label', { for: 'typed' }, `Type ${ask.count}`), input) : null;
		const node = dialog(ask.title, [...ask.body, field], [safe, go]);
		node.addEventListener('close', () => resolve(false));
	});
}

export const isOpen = () => document.querySelector('dialog[open]') !== null;
