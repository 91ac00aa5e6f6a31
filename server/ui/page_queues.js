// Every queue, and the table of queues that the Overview shows too.

import { pauseButton, setPaused } from './actions.js';
import { canWrite, get } from './api.js';
import { gather, smooth, spark } from './chart.js';
import { awaited, h, icon, int, keyed, put, rate, redraw, say, span } from './dom.js';
import { subscribe } from './live.js';
import { command, enqueueLine, meter, panel, pill, th, whole } from './parts.js';
import { link, queueLink } from './route.js';

/** Rows at once; a filter finds the others. */
const ROWS = 500;

/** @param {Page} page */
export function mount({ main, query, keys, address }) {
	const table = queueTable(true);
	const filter = h('input.input', {
		type: 'search',
		'aria-label': 'Filter by name',
		placeholder: 'Filter by name',
		value: query.get('q') ?? '',
		oninput: () => {
			address({ q: filter.value || null });
			refresh();
		},
	});
	const count = h('span.mute');
	const rest = h('p.mute');
	const empty = h('div.body.stack.firstbody');
	/** @type {Snapshot | null} */
	let last = null;
	/** Every queue, read when snapshots do not hold all of them. @type {QueueLine[]} */
	let others = [];
	const refresh = () => {
		if (!last) return;
		const known = new Set(last.queues.map((q) => q.name));
		const all = [...last.queues, ...(last.more ? others.filter((q) => !known.has(q.name)) : [])];
		const found = ordered(all.filter((q) => q.name.includes(filter.value.trim())));
		table.show(found.slice(0, ROWS));
		say(
			count,
			found.length === last.queues_total ? int(found.length) : `${int(found.length)} of ${int(last.queues_total)}`,
		);
		if (empty.getAttribute('aria-busy')) put(empty);
		rest.hidden = found.length <= ROWS;
		say(rest, `${int(found.length - ROWS)} more: filter by name to see them.`);
		empty.hidden = found.length > 0;
		if (found.length === 0 && empty.childElementCount === 0) {
			put(
				empty,
				h('p.soft', 'No queue of that name. Queues are made by their first job:'),
				command(enqueueLine('default')),
			);
		}
	};
	put(main, panel('qs', 'Queues', [count, h('span.end', filter)], table.node, h('div.tail', rest), empty));
	awaited(empty, 8);
	keys(canWrite() ? { p: table.pause } : {});
	const control = new AbortController();
	const past = () =>
		get('history?range=1h&split=queue', control.signal)
			.then((found) => table.history(whole(found).queues ?? []))
			.catch(() => {});
	const readAll = () =>
		get('queues', control.signal)
			.then((found) => (others = found.queues.map(lineOf)))
			.catch(() => {});
	let ticks = 0;
	const tick = () => {
		if (document.hidden) return;
		if (ticks % 6 === 0) void past();
		if (last?.more) void readAll();
		ticks += 1;
	};
	const leave = subscribe((snap) => {
		const first = last === null;
		last = snap;
		if (first) tick();
		refresh();
	});
	const timer = setInterval(tick, 10_000);
	return () => {
		leave();
		clearInterval(timer);
		control.abort();
	};
}

/**
 * A queue of the API as a line of a snapshot, with what only snapshots know left out.
 * @param {Queue} q
 * @returns {QueueLine}
 */
export const lineOf = ({ name, paused, counts, oldest_ready_age_ms, rates, settings }) => ({
	name,
	paused,
	counts,
	oldest_ready_age_ms,
	paused_at: null,
	paused_by: null,
	concurrency: settings.concurrency,
	enqueued_per_s: rates.enqueued_per_s,
	done_per_s: rates.done_per_s,
	wait_p95_ms: null,
	run_p95_ms: null,
	run_p50_ms: null,
	starved: false,
	rev: 0,
});

// The table of queues, on the Overview and on its own page. Rows keep their place while they change.

/** A line of about sixty points, over neighbours so that bursts are no spikes. @param {number[]} done */
const thin = (done) => smooth(gather(done, Math.ceil(done.length / 60)), 2500);

/** @param {number} n @param {string} [cls] */
const number = (n, cls = '') => h('span', { class: n === 0 ? 'mute' : cls }, int(n));

/** @param {boolean} actions whether rows can be paused */
export function queueTable(actions) {
	const body = h('tbody');
	/** @type {Map<string, (number | null)[]>} */
	let past = new Map();
	const writes = actions && canWrite();
	const hour = th('Last hour', 'w-m');
	const node = h(
		'div.scroll',
		h(
			'table.queues',
			h(
				'thead',
				h(
					'tr',
					th('Queue', ''),
					th('Waiting', 'num'),
					th('Oldest due', 'num'),
					th('Running', 'num w-m'),
					th('Done /s', 'num w-m'),
					hour,
					th('p95 wait', 'num w-l'),
					th('Scheduled', 'num w-l'),
					th('Failed', 'num'),
					writes ? h('th', { scope: 'col', class: 'w-m' }, h('span.vh', 'Actions')) : null,
				),
			),
			body,
		),
	);

	const make = (/** @type {QueueLine} */ q) => {
		const cell = (/** @type {string} */ cls) => h('td', { class: cls });
		return h(
			'tr',
			h('th', { scope: 'row' }, h('a', { href: queueLink(q.name) }, q.name), h('span')),
			cell('num'),
			cell('num'),
			cell('num w-m'),
			cell('num w-m'),
			cell('fit w-m'),
			cell('num w-l'),
			cell('num w-l'),
			cell('num'),
			writes ? cell('num w-m') : null,
		);
	};
	const update = (/** @type {HTMLElement} */ row, /** @type {QueueLine} */ q) => {
		const [name, waiting, oldest, running, done, hour, p95, scheduled, failed, act] = row.children;
		const c = q.counts;
		redraw(name.children[1], `${q.paused}${q.starved}`, () =>
			q.paused ? pill('warn', 'pause', 'paused') : q.starved ? pill('warn', 'st-warn', 'no worker') : '',
		);
		redraw(waiting, String(c.queued), () => number(c.queued));
		const late = q.paused || q.starved || (q.oldest_ready_age_ms ?? 0) > 60_000;
		redraw(oldest, q.oldest_ready_age_ms === null ? '' : span(q.oldest_ready_age_ms) + late, () =>
			q.oldest_ready_age_ms === null
				? '—'
				: h('span', { class: late ? 'is-warn strong' : '' }, span(q.oldest_ready_age_ms)),
		);
		redraw(running, `${c.processing}/${q.concurrency}`, () =>
			h(
				'span.runcell',
				q.concurrency ? meter(c.processing / q.concurrency) : null,
				h('span', int(c.processing), h('span.limit', q.concurrency ? `/ ${q.concurrency}` : '')),
			),
		);
		say(done, rate(q.done_per_s));
		const line = past.get(q.name) ?? [0, 0];
		redraw(hour, line.join(), () => spark(line, 'mini done'));
		say(p95, q.wait_p95_ms === null ? '—' : span(q.wait_p95_ms));
		redraw(scheduled, String(c.scheduled), () => number(c.scheduled));
		redraw(failed, String(c.failed), () =>
			c.failed === 0
				? number(0)
				: h('a.is-failed', { href: link(['jobs'], { state: 'failed', queue: q.name }) }, int(c.failed)),
		);
		if (act)
			redraw(act, String(q.paused), () =>
				pauseButton(q, icon(q.paused ? 'play' : 'pause', 's'), q.paused ? 'Resume' : 'Pause'),
			);
	};
	/** @type {Map<string, QueueLine>} */
	let shown = new Map();
	return {
		node,
		/** Pauses or resumes the queue whose row has the focus. */
		pause: () => {
			const q = shown.get(document.activeElement?.closest('tr')?.dataset.key ?? '');
			if (q) void setPaused(q.name, !q.paused);
		},
		/** @param {QueueLine[]} queues */
		show: (queues) => {
			shown = new Map(queues.map((q) => [q.name, q]));
			keyed(body, queues, (q) => q.name, make, update);
		},
		/** @param {QueueHistory[]} queues @param {string} [range] how far back they go */
		history: (queues, range = 'hour') => {
			past = new Map(queues.map((q) => [q.name, thin(q.done)]));
			say(hour, `Last ${range === '1 h' ? 'hour' : range}`);
			keyed(body, [...shown.values()], (q) => q.name, make, update);
		},
	};
}

/** Trouble first, then by name: the order changes only with trouble. @param {QueueLine[]} queues */
export function ordered(queues) {
	const trouble = (/** @type {QueueLine} */ q) => (q.starved || (q.paused && q.counts.queued > 0) ? 1 : 0);
	return [...queues].sort((a, b) => trouble(b) - trouble(a) || (a.name < b.name ? -1 : 1));
}
