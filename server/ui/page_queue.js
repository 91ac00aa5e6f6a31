// One queue: how it flows, what holds it back, its limits.

import { pauseButton, setPaused } from './actions.js';
import { Problem, canWrite, get, search, send } from './api.js';
import { plainly, plot, smooth } from './chart.js';
import { about, awaited, h, hhmm, icon, int, keyed, ms, put, rate, redraw, span } from './dom.js';
import { subscribe } from './live.js';
import { lineOf } from './page_queues.js';
import { queueForm } from './page_settings.js';
import {
	RANGES,
	command,
	enqueueLine,
	jobsWait,
	message,
	meter,
	note,
	pollLine,
	segments,
	th,
	tiles,
	unread,
	whole,
} from './parts.js';
import { link } from './route.js';

/** @param {Page} page */
export function mount({ main, path, query, crumb, keys, address }) {
	const name = path[1];
	crumb(['Queues', '#/queues'], name);
	const control = new AbortController();
	let range = /** @type {HistoryRange} */ (RANGES.find(([r]) => r === query.get('range'))?.[0] ?? '1h');
	const now = tiles('Now', ['Waiting', 'Oldest due', 'Running', 'Done', 'Run time', 'Failed']);
	const flow = chartPanel('Flow', () =>
		segments('Range', RANGES, range, (next) => {
			range = next;
			address({ range: next === '1h' ? null : next });
			void history();
		}),
	);
	const latency = chartPanel('Latency');
	const waiting = chartPanel('Waiting');
	const kinds = h('tbody');
	const title = h('h2', { id: 'act' });
	const pause = h('span.end');
	const held = h('div.body.stack');
	const limits = h('section.panel', { 'aria-label': 'Limits' });
	put(
		main,
		now.node,
		h(
			'div.cols.w-side',
			h(
				'div.stack',
				flow.node,
				h('div.cols.halves', latency.node, waiting.node),
				h(
					'section.panel',
					{ 'aria-labelledby': 'kinds' },
					h(
						'header',
						h('h2', { id: 'kinds' }, 'Kinds'),
						h('span.end', h('a', { href: link(['jobs'], { queue: name }) }, 'Jobs of this queue')),
					),
					h(
						'div.scroll',
						h(
							'table',
							h(
								'thead',
								h(
									'tr',
									...[
										['Kind', ''],
										['Waiting', 'num'],
										['Running', 'num'],
										['Scheduled', 'num w-m'],
										['Done', 'num w-m'],
										['Failed', 'num'],
									].map(([t, c]) => th(t, c)),
								),
							),
							kinds,
						),
					),
				),
			),
			h('div.stack', h('section.panel', { 'aria-labelledby': 'act' }, h('header', title, pause), held), limits),
		),
	);
	awaited(now.node, 0);
	for (const place of [flow.body, latency.body, waiting.body]) awaited(place);
	awaited(limits, 10);
	/** @type {QueueLine | null} */
	let line = null;
	/** @type {string | null} */
	let lastDone = null;
	/** The queue as it was read by itself: a snapshot holds two hundred of many. @type {QueueLine | null} */
	let read = null;
	/** Its latest wait and run times, by its history. @type {Partial<QueueLine>} */
	let times = {};
	/** @type {Snapshot | null} */
	let last = null;
	const show = (/** @type {Snapshot} */ snap) => {
		last = snap;
		const q = snap.queues.find((one) => one.name === name) ?? read;
		if (!q) return;
		line = q;
		now.node.removeAttribute('aria-busy');
		figures(now, q, lastDone ? `last one ${span(Math.max(0, ms(snap.at) - ms(lastDone)))} ago` : '');
		redraw(title, q.paused ? 'Takes jobs and starts none' : 'Takes and starts jobs', () => title.dataset.is);
		if (canWrite())
			redraw(pause, String(q.paused), () =>
				pauseButton(q, icon(q.paused ? 'play' : 'pause', 's'), q.paused ? 'Resume' : 'Pause', h('kbd', 'p')),
			);
		const why = reason(q, snap);
		redraw(held, h('div', why).textContent ?? '', () => why);
	};
	const load = async () => {
		try {
			const response = await send(`queues/${encodeURIComponent(name)}`, { signal: control.signal });
			const found = await response.json();
			read = { ...lineOf(found), ...times };
			if (last) show(last);
			drawKinds(kinds, name, found.kinds);
			return { found, etag: response.headers.get('etag') ?? '' };
		} catch (error) {
			if (control.signal.aborted) return null;
			if (error instanceof Problem && error.status === 404)
				put(
					main,
					message(
						h('p', h('b', error.message)),
						h('p.soft', 'A first job makes it:'),
						command(enqueueLine(name)),
					),
				);
			else unread(limits, error, read ? load : form);
		}
		return null;
	};
	const form = async () => {
		const [got, { settings }] = await Promise.all([
			load(),
			get('settings', control.signal).catch(() => ({ settings: [] })),
		]);
		if (got) queueForm(limits, name, got.found.settings, got.etag, settings, () => void form());
	};
	let asked = 0;
	let drawn = 0;
	const history = async () => {
		const mine = (asked += 1);
		try {
			const past = whole(await get(`history?${search({ range, queue: name })}`, control.signal));
			if (mine < drawn) return;
			drawn = mine;
			draw(past, flow, latency, waiting);
			const { wait_p95_ms: wait, run_p50_ms: run, run_p95_ms: long } = past.series;
			times = { wait_p95_ms: wait.at(-1) ?? null, run_p50_ms: run.at(-1) ?? null, run_p95_ms: long.at(-1) ?? null };
			const { jobs: newest } = await get(
				`jobs?${search({ state: 'done', queue: name, limit: 1, fields: 'row' })}`,
				control.signal,
			);
			lastDone = newest[0]?.finished_at ?? null;
		} catch (error) {
			if (control.signal.aborted) return;
			for (const place of [flow.body, latency.body, waiting.body]) unread(place, error, history);
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

/** @typedef {{ node: Node, legend: HTMLElement, body: HTMLElement }} ChartPanel */

/** @param {string} title @param {() => Node} [end] @returns {ChartPanel} */
function chartPanel(title, end) {
	const [legend, body] = [h('p.legend'), h('div.plotbox')];
	const beside = end ? h('span.end', end()) : null;
	return { legend, body, node: h('section.panel', h('header', h('h2', title), legend, beside), body) };
}

/** @param {HTMLElement} kinds @param {string} name @param {KindCounts[]} counts */
function drawKinds(kinds, name, counts) {
	const number = (/** @type {number} */ n, cls = '') => h('td', { class: `num${cls}${n ? '' : ' mute'}` }, int(n));
	const update = (/** @type {HTMLElement} */ row, /** @type {KindCounts} */ { kind, counts: c }) =>
		redraw(row, JSON.stringify(c), () => [
			h('th', { scope: 'row' }, h('a', { href: link(['jobs'], { queue: name, kind }) }, h('code', kind))),
			number(c.queued),
			number(c.processing),
			number(c.scheduled, ' w-m'),
			number(c.done, ' w-m'),
			c.failed
				? h('td.num', h('a.is-failed', { href: link(['jobs'], { state: 'failed', queue: name, kind }) }, int(c.failed)))
				: number(0),
		]);
	if (kinds.contains(document.activeElement)) return;
	keyed(kinds, counts, (one) => one.kind, () => h('tr'), update);
}

/** @param {ReturnType<typeof tiles>} now @param {QueueLine} q @param {string} lastDone */
function figures({ set }, q, lastDone) {
	const c = q.counts;
	const length = (/** @type {number | null} */ ms) =>
		/** @type {[string, string?]} */ (ms === null ? ['—'] : span(ms).split(/ (?=\D+$)/));
	set(0, [int(c.queued)], `${int(c.scheduled)} scheduled`);
	set(
		1,
		length(q.oldest_ready_age_ms),
		q.wait_p95_ms === null ? 'nothing claimed lately' : `p95 wait ${span(q.wait_p95_ms)}`,
	);
	const part = q.concurrency ? c.processing / q.concurrency : 0;
	const use = part >= 1 ? 'at its limit' : `${Math.round(part * 100)} % of its limit`;
	const limitText = q.concurrency === null ? 'no limit' : use;
	const text = set(
		2,
		[int(c.processing), q.concurrency === null ? '' : `of ${int(q.concurrency)}`],
		limitText,
		q.concurrency === null ? limitText : [meter(part), ` ${limitText}`],
	);
	text.classList.toggle('is-warn', q.concurrency !== null && part >= 1);
	set(3, [rate(q.done_per_s), '/s'], lastDone || `${int(c.done)} kept`);
	set(4, length(q.run_p50_ms), q.run_p95_ms === null ? 'nothing ended lately' : `p95 ${span(q.run_p95_ms)}`);
	const dead = () => h('a', { href: link(['jobs'], { state: 'failed', queue: q.name }) }, 'Dead letters');
	const failed = c.failed > 0 ? 'Dead letters' : 'no dead letters';
	set(5, [int(c.failed)], failed, c.failed > 0 ? dead() : failed);
}

/** What holds it back. @param {QueueLine} q @param {Snapshot} snap @returns {Node[]} */
function reason(q, snap) {
	const c = q.counts;
	const free = Math.max(0, snap.slots.total - snap.slots.busy);
	const full = q.concurrency !== null && c.processing >= q.concurrency;
	const body = (/** @type {Node[]} */ ...parts) => parts;
	if (q.paused)
		return body(
			note(
				'warn',
				h('b', 'It is paused.'),
				q.paused_at ? ` Since ${hhmm(ms(q.paused_at))}${q.paused_by ? ` by ${q.paused_by}` : ''}.` : '',
				' Jobs are stored and wait; running jobs continue.',
			),
		);
	if (q.starved)
		return body(
			note('warn', h('b', 'No worker takes some of its jobs.'), ' This line does:'),
			command(pollLine([q.name])),
		);
	if (full && c.queued > 0)
		return body(
			note(
				'warn',
				h('b', 'The queue is at its concurrency limit.'),
				` ${c.processing} of ${q.concurrency} run, ${jobsWait(c.queued)}; ${free} free slots could take them.`,
			),
		);
	if (c.queued > 0 && free === 0)
		return body(note('', 'All slots of the workers are busy. More workers, or more slots, would help.'));
	return body(
		h(
			'p.soft',
			c.queued > 0
				? `${jobsWait(c.queued)}, the oldest for ${about(q.oldest_ready_age_ms ?? 0)}.`
				: 'No jobs are waiting.',
		),
	);
}

/** @param {History} past @param {ChartPanel} flow @param {ChartPanel} latency @param {ChartPanel} waiting */
function draw(past, flow, latency, waiting) {
	const { series, step_ms: step } = past;
	const per = (/** @type {number[]} */ values) =>
		smooth(
			values.map((n) => (n * 1000) / step),
			step,
		);
	const axis = { from: ms(past.from), step, marks: past.marks.map((m) => ({ at: ms(m.at), text: m.what })) };
	/**
	 * @param {ChartPanel} place
	 * @param {string} label
	 * @param {number} height
	 * @param {(n: number) => string} text of a value in the legend
	 * @param {[string, string, string, 'line' | 'area' | 'dash', (number | null)[]][]} lines
	 * @param {(n: number) => string} [scale]
	 */
	const chart = ({ legend, body }, label, height, text, lines, scale = plainly) => {
		put(
			legend,
			...lines.map(([name, cls, , , values]) => {
				const now = values.at(-1);
				// The names of the thin lines leave no room for figures.
				const figure = cls.endsWith('thin') ? null : h('b', now == null ? '—' : text(now));
				return h('span', { class: cls }, name, ' ', figure);
			}),
		);
		put(
			body,
			plot({
				label,
				height,
				lines: height > 110 ? 4 : 2,
				unit: scale,
				axis,
				series: lines.map(([name, , cls, kind, values]) => ({ name, cls, kind, values })),
			}),
		);
	};
	const s = (/** @type {number} */ n) => `${rate(n)}/s`;
	chart(flow, 'Done and enqueued per second', 150, s, [
		['done', 'done', 'c-done', 'area', per(series.done)],
		['enqueued', 'enq', 'c-in', 'dash', per(series.enqueued)],
	]);
	const length = (/** @type {number} */ n) => (n === 0 ? '0' : span(n).replace('.0 ', ' '));
	chart(
		latency,
		'Wait and run time',
		110,
		span,
		[
			['wait p95', 'wait', 'c-wait', 'line', series.wait_p95_ms],
			['p50', 'waitthin', 'c-wait', 'dash', series.wait_p50_ms],
			['run p95', 'run', 'c-run', 'line', series.run_p95_ms],
			['p50', 'runthin', 'c-run', 'dash', series.run_p50_ms],
		],
		length,
	);
	chart(waiting, 'Jobs that are due', 110, int, [['due', 'acc', 'c-acc', 'area', series.queued]]);
}
