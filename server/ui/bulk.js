// Bulk actions: strips of those on their way, and the page of one.

import { missing, ready, tell } from './actions.js';
import { canWrite, get, write } from './api.js';
import { about, awaited, cap, h, icon, instant, int, keyed, plural, put } from './dom.js';
import { now, subscribe } from './live.js';
import { busy, jobs, meter, note, st, unread } from './parts.js';
import { link } from './route.js';

/** @type {Record<BulkState, [string, string]>} */
const STATES = {
	canary: ['processing', 'Canary'],
	running: ['processing', 'Running'],
	held: ['scheduled', 'Held'],
	done: ['done', 'Done'],
	stopped: ['cancelled', 'Stopped'],
};
const active = (/** @type {BulkState} */ state) => state === 'canary' || state === 'held' || state === 'running';

/** @param {Bulk} bulk */
const headline = (bulk) => `${cap(bulk.action)} of ${jobs(bulk.of)}`;

/** Where it is, in words. @param {Bulk} bulk */
function status(bulk) {
	const { canary, state } = bulk;
	const rest = int(Math.max(0, bulk.of - bulk.done - bulk.refused));
	const pace = bulk.pace ? ` at ${bulk.pace.per_s}/s` : '';
	const refused = bulk.refused ? `, ${int(bulk.refused)} refused` : '';
	if (state === 'canary' && canary)
		return (
			`canary of ${canary.count}: ${int(canary.passed)} done, ${int(canary.failed)} failed, ` +
			`${int(canary.released - canary.passed - canary.failed)} still to end. The other ${rest} follow${pace} ` +
			`if at most ${plural(canary.max_failed, 'job')} of them fail.`
		);
	if (state === 'held' && canary)
		return (
			`held: ${int(canary.failed)} of the first ${canary.count} failed, ${int(canary.max_failed)} may. ` +
			`${rest} wait for your decision.`
		);
	const left = state === 'running' && bulk.eta_ms != null ? `, about ${about(bulk.eta_ms)} left` : '';
	const end = state === 'stopped' ? 'when it was stopped' : state === 'done' ? 'done' : `done${pace}`;
	return `${int(bulk.done)} of ${int(bulk.of)} ${end}${refused}${left}.`;
}

/** Buttons to go on or to stop. @param {Bulk} bulk @param {() => void} after */
function steer(bulk, after) {
	if (!canWrite() || !active(bulk.state)) return null;
	const button = (/** @type {string} */ what, /** @type {Child[]} */ ...content) => {
		const node = h(
			'button',
			{
				class: what === 'stop' ? 'btn small danger' : 'btn small',
				'data-write': true,
				onclick: () =>
					void busy(node, async () => {
						if (ready()) await write('POST', `bulk/${bulk.id}/${what}`).catch(tell);
						after();
					}),
			},
			...content,
		);
		return node;
	};
	return h(
		'span.actions',
		bulk.state === 'running' ? null : button('continue', 'Release the rest now'),
		button('stop', icon('stop', 's'), 'Stop'),
	);
}

/** Strips of the bulk actions that are on their way. */
export function progress() {
	const node = h('div.stack');
	/** `bulk` is null once the server does not keep it. @type {Map<number, { line: BulkLine, bulk: Bulk | null }>} */
	const seen = new Map();
	let reading = false;
	const read = async (/** @type {BulkLine[]} */ lines) => {
		for (const line of lines) {
			const old = seen.get(line.id);
			if (old && old.line.state === line.state && old.line.done === line.done) continue;
			const { bulk } = await get(`bulk/${line.id}`).catch((error) => {
				if (missing(error)) return { bulk: null };
				throw error;
			});
			seen.set(line.id, { line, bulk });
		}
	};
	const show = (/** @type {Snapshot} */ snap) => {
		const lines = (snap.bulk ?? []).filter((line) => active(line.state)).slice(0, 4);
		if (reading || (lines.length === 0 && node.childElementCount === 0)) return;
		reading = true;
		read(lines)
			.catch(() => {})
			.finally(() => {
				reading = false;
				keyed(
					node,
					lines.filter((line) => seen.get(line.id)?.bulk),
					(line) => String(line.id),
					() => h('section.panel.op', { 'aria-label': 'Bulk action' }),
					(strip, line) => draw(strip, /** @type {Bulk} */ (seen.get(line.id)?.bulk)),
				);
			});
	};
	const draw = (/** @type {HTMLElement} */ strip, /** @type {Bulk} */ bulk) => {
		const statusText = status(bulk);
		if (strip.dataset.is === statusText) return;
		strip.dataset.is = statusText;
		put(
			strip,
			h('b', h('a.plain', { href: link(['bulk', String(bulk.id)]) }, headline(bulk))),
			h('span', { class: bulk.state === 'held' ? 'is-warn' : 'soft' }, statusText),
			steer(bulk, () => seen.delete(bulk.id)),
			meter(bulk.of ? (bulk.done + bulk.refused) / bulk.of : 0),
		);
	};
	return { node, show };
}

/** One bulk action. @param {Page} page */
export function mount({ main, path, crumb }) {
	const id = path[1];
	crumb(['Errors', '#/errors'], `bulk ${id}`);
	const control = new AbortController();
	const panel = h('section.panel', { 'aria-labelledby': 'bk' });
	put(main, panel);
	awaited(panel);
	/** @type {Bulk | null} */
	let bulk = null;
	const load = async () => {
		try {
			bulk = /** @type {Bulk} */ ((await get(`bulk/${encodeURIComponent(id)}`, control.signal)).bulk);
			draw(bulk);
		} catch (error) {
			if (control.signal.aborted) return;
			if (missing(error)) {
				bulk = null;
				put(
					panel,
					h(
						'div.body.firstbody',
						h('p', h('b', 'There is no such bulk action.'), ' Ended actions are kept for a limited time.'),
					),
				);
			} else unread(panel, error, load);
		}
	};
	const draw = (/** @type {Bulk} */ b) => {
		const [cls, word] = STATES[b.state];
		const filter = b.filter
			? Object.entries(b.filter)
					.map(([name, value]) => `${name} ${value}`)
					.join(', ')
			: 'chosen jobs';
		/** @type {[string, Child][]} */
		const facts = [
			['State', st(cls, word)],
			['Jobs', filter],
			['Asked by', b.by ?? 'no token'],
			['Jobs that ended by', instant(b.as_of, now())],
			['Pace', b.pace ? `${b.pace.per_s} per second` : 'no limit'],
			[
				'Canary',
				b.canary
					? `first ${b.canary.count}, of which ${b.canary.max_failed} may fail: ` +
						`${b.canary.passed} done, ${b.canary.failed} failed`
					: 'none',
			],
			['Done', `${int(b.done)} of ${int(b.of)}`],
			['Refused', int(b.refused)],
		];
		put(
			panel,
			h('header', h('h2', { id: 'bk' }, headline(b)), h('span.end', steer(b, load))),
			h(
				'div.body.stack',
				h('p', cap(status(b))),
				meter(b.of ? (b.done + b.refused) / b.of : 0),
				b.state === 'held'
					? note(
							'warn',
							'Look at what failed before you go on: ',
							h('a', { href: '#/jobs?state=failed' }, 'newest dead letters'),
						)
					: null,
				h('dl.facts.narrow', ...facts.flatMap(([k, v]) => [h('dt', k), h('dd', v)])),
			),
		);
	};
	const leave = subscribe((snap) => {
		const line = (snap.bulk ?? []).find((one) => String(one.id) === id);
		if (
			bulk &&
			active(bulk.state) &&
			(!line || line.done !== bulk.done + bulk.refused || line.state !== bulk.state) &&
			!panel.contains(document.activeElement)
		)
			void load();
	});
	void load();
	return () => {
		leave();
		control.abort();
	};
}
