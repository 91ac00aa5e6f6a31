// Does it move, and what needs a look.

import { pauseButton } from './actions.js';
import { canWrite, get } from './api.js';
import { bars, gather, plainly, plot, smooth, spark } from './chart.js';
import { about, awaited, h, hhmm, icon, int, ms, plural, put, rate, redraw, say, size, span } from './dom.js';
import { subscribe } from './live.js';
import { groupTable, isNew, words } from './page_errors.js';
import { ordered, queueTable } from './page_queues.js';
import { RANGES, figure, firstRun, jobs, jobsWait, panel, segments, unread, whole } from './parts.js';
import { link, queueLink } from './route.js';

/** @typedef {import('./chart.js').Values} Values */

/** @param {Page} page */
export function mount({ main, query, keys, address }) {
	const control = new AbortController();
	const table = queueTable(false);
	/** @type {History | null} */
	let past = null;
	let range = /** @type {HistoryRange} */ (RANGES.find(([name]) => name === query.get('range'))?.[0] ?? '10m');
	const step = (/** @type {string} */ title, /** @type {string} */ state) => {
		const parts = { number: h('p.big'), text: h('p'), chart: h('div') };
		return {
			...parts,
			node: h(
				'li',
				h('h2', state ? h('span', { class: `is-${state}` }, icon(`st-${state}`, 's')) : null, title),
				parts.number,
				parts.text,
				parts.chart,
			),
		};
	};
	const [enq, wait, run, done, failed] = [
		step('In', ''),
		step('Waiting', 'queued'),
		step('Running', 'processing'),
		step('Done', 'done'),
		step('Failed for good', 'failed'),
	];
	const later = h('p.later');
	const list = h('ul.attention');
	const count = h('span.end.mute');
	const legend = h('p.legend');
	const chart = h('div.plotbox');
	const queues = h('span.mute');
	/** @type {ErrorGroup[]} */
	let groups = [];
	const errs = h('section.panel', { 'aria-labelledby': 'er', hidden: true });
	const full = [
		h(
			'section.panel',
			{ 'aria-label': 'Jobs: enqueued, waiting, running, done, failed' },
			h('ol.line', ...[enq, wait, run, done, failed].map((one) => one.node)),
			later,
		),
		h(
			'div.cols.w-side.even.flip',
			panel('att', 'Needs a look', count, list),
			h(
				'section.panel',
				{ 'aria-labelledby': 'tp' },
				h(
					'header',
					h('h2', { id: 'tp' }, 'Throughput'),
					legend,
					h(
						'span.end',
						segments('Range', RANGES, range, (next) => {
							range = next;
							address({ range: next === '10m' ? null : next });
							void load();
						}),
					),
				),
				chart,
			),
		),
		panel('qs', 'Queues', [queues, h('span.end', h('a', { href: '#/queues' }, 'All queues'))], table.node),
		errs,
	];
	keys(canWrite() ? { p: table.pause } : {});
	let shown = '';
	const show = (/** @type {Snapshot} */ snap) => {
		const mode = snap.queues_total === 0 ? 'first' : 'full';
		if (mode !== shown) {
			shown = mode;
			put(main, ...(mode === 'first' ? [firstRun()] : full));
			if (mode === 'full') void load();
		}
		if (mode === 'first') return;
		void errors(snap);
		figures(snap);
		attention(snap);
		table.show(ordered(snap.queues).slice(0, 12));
		say(queues, int(snap.queues_total));
	};
	const figures = (/** @type {Snapshot} */ snap) => {
		const { counts, rates, slots } = snap;
		figure(enq.number, rate(rates.enqueued_per_s), '/s');
		say(enq.text, 'enqueued, last 10 s');
		figure(wait.number, int(counts.queued), '');
		const oldest = snap.queues.reduce(
			(/** @type {QueueLine | null} */ most, q) =>
				(q.oldest_ready_age_ms ?? -1) > (most?.oldest_ready_age_ms ?? -1) ? q : most,
			null,
		);
		say(
			wait.text,
			oldest?.oldest_ready_age_ms != null
				? `oldest ${span(oldest.oldest_ready_age_ms)}, in ${oldest.name}`
				: 'nothing is due',
		);
		figure(run.number, int(counts.processing), slots.total ? `of ${int(slots.total)} slots` : '');
		const p95 = Math.max(0, ...snap.queues.map((q) => q.run_p95_ms ?? 0));
		say(
			run.text,
			slots.total
				? `${Math.round((slots.busy / slots.total) * 100)} % busy${p95 ? `, p95 run ${span(p95)}` : ''}`
				: 'no worker is alive',
		);
		figure(done.number, rate(rates.done_per_s), '/s');
		say(
			done.text,
			snap.last_done_at ? `the last one ${span(Math.max(0, ms(snap.at) - ms(snap.last_done_at)))} ago` : 'none yet',
		);
		figure(failed.number, rate(rates.failed_per_s * 60), '/min');
		const dead = counts.failed === 0 ? 'no dead letters' : plural(counts.failed, 'dead letter');
		const alike = counts.failed > 0 && snap.errors ? ` in ${plural(snap.errors.groups, 'group')}` : '';
		const where = snap.errors ? '#/errors' : '#/jobs?state=failed';
		redraw(failed.text, dead + alike, () => [counts.failed === 0 ? dead : h('a', { href: where }, dead), alike]);
		const next = snap.next_due ? `, next in ${span(Math.max(0, ms(snap.next_due) - ms(snap.at)))}` : '';
		const fact = (/** @type {string} */ glyph, /** @type {number} */ n, /** @type {string} */ text) =>
			h('span', icon(glyph, 's'), h('b', int(n)), ` ${text}`);
		redraw(later, `${next}${counts.scheduled} ${snap.retrying} ${counts.done} ${counts.cancelled}`, () => [
			fact('st-scheduled', counts.scheduled, `scheduled${next}`),
			snap.retrying
				? fact(
						'retry',
						snap.retrying,
						snap.retrying === 1 ? 'waits for its next attempt' : 'wait for their next attempt',
					)
				: null,
			fact('st-done', counts.done, 'done, kept'),
			fact('st-cancelled', counts.cancelled, 'cancelled'),
		]);
	};
	const attention = (/** @type {Snapshot} */ snap) => {
		const found = looks(snap, groups);
		say(count, found.length ? String(found.length) : '');
		redraw(list, found.map((one) => one.key).join(), () => [
			...found
				.slice(0, 6)
				.map((one) =>
					h(
						'li',
						h('span', { class: one.cls }, icon(one.glyph)),
						h('strong', one.title),
						one.action(),
						h('p', one.text),
					),
				),
			found.length > 6 ? h('li', h('span'), h('p.mute', `${found.length - 6} more`)) : null,
			found.length === 0 ? h('li.quiet', h('span.is-done', icon('check')), h('strong', 'All quiet'), h('p')) : null,
		]);
		found.slice(0, 6).forEach((one, at) => say(list.children[at]?.querySelector('p') ?? null, one.text));
		if (found.length === 0)
			say(
				list.querySelector('p'),
				snap.oldest_ready_age_ms === null ? 'nothing is due' : `oldest due job ${span(snap.oldest_ready_age_ms)}`,
			);
	};
	let rev = -1;
	let read = 0;
	/** The largest groups of errors, read again when they change. @param {Snapshot} snap */
	const errors = async (snap) => {
		if (!snap.errors || snap.errors.rev === rev || Date.now() - read < 5000) return;
		[rev, read] = [snap.errors.rev, Date.now()];
		try {
			groups = (await get('errors?limit=20', control.signal)).groups;
			errs.hidden = groups.length === 0;
			if (errs.contains(document.activeElement)) return;
			put(
				errs,
				h(
					'header',
					h('h2', { id: 'er' }, 'Errors, by what they have in common'),
					h(
						'span.end',
						h(
							'a',
							{ href: '#/errors' },
							`All ${int(snap.errors.groups)} ${snap.errors.groups === 1 ? 'group' : 'groups'}`,
						),
					),
				),
				groupTable(groups.slice(0, 4)),
			);
		} catch {
			rev = -1;
		}
	};
	let loaded = 0;
	const load = async () => {
		loaded = Date.now();
		try {
			const wanted = range;
			const found = await get(`history?range=${wanted}&split=queue`, control.signal);
			if (wanted !== range) return;
			past = whole(found);
			table.history(past.queues ?? [], RANGES.find(([name]) => name === wanted)?.[1]);
			draw();
		} catch (error) {
			if (!control.signal.aborted) unread(chart, error, load);
		}
	};
	const draw = () => {
		if (!past) return;
		const { series, step_ms: step } = past;
		const per = (/** @type {number[]} */ values) =>
			smooth(
				values.map((n) => (n * 1000) / step),
				step,
			);
		const from = ms(past.from);
		const last = (/** @type {(number | null)[]} */ values) => values.slice(-60);
		const marks = past.marks.map((mark) => ({
			at: ms(mark.at),
			text: mark.what === 'started' ? `${hhmm(ms(mark.at))} restart` : `${mark.queue} ${mark.what}`,
		}));
		const shownMark = marks.filter((mark) => mark.at > from).at(-1);
		/** @type {[{ chart: HTMLElement }, Values, string][]} */
		const sparks = [
			[enq, per(series.enqueued), 'queued'],
			[wait, smooth(series.queued, step), 'queued'],
			[run, smooth(series.processing, step), 'processing'],
			[done, per(series.done), 'done'],
		];
		for (const [step, values, cls] of sparks) redraw(step.chart, last(values).join(), () => spark(last(values), cls));
		redraw(failed.chart, last(series.failed).join(), () => bars(gather(last(series.failed), 2), 'failed'));
		const by = Math.ceil(series.failed.length / 60);
		const mean = (/** @type {Values} */ v) =>
			v.reduce((/** @type {number} */ a, b) => a + (b ?? 0), 0) / Math.max(1, v.length);
		put(
			legend,
			h('span.done', 'done ', h('b', `${rate(mean(per(series.done)))}/s`)),
			h('span.enq', 'enqueued ', h('b', `${rate(mean(per(series.enqueued)))}/s`)),
			h('span.failed', 'failed ', h('b', int(series.failed.reduce((a, b) => a + b, 0)))),
			shownMark ? h('span.mark1', shownMark.text) : null,
		);
		put(
			chart,
			plot({
				label:
					`Throughput: ${rate(mean(per(series.done)))} done and ${rate(mean(per(series.enqueued)))} enqueued ` +
					`per second on average, ${int(series.failed.reduce((a, b) => a + b, 0))} failed`,
				height: 164,
				lines: 4,
				unit: plainly,
				axis: { from, step, marks },
				series: [
					{ name: 'done /s', cls: 'c-done', kind: 'area', values: per(series.done) },
					{ name: 'enqueued /s', cls: 'c-in', kind: 'dash', values: per(series.enqueued) },
				],
				strip: { name: 'failed', cls: 'c-failed', kind: 'bars', values: gather(series.failed, by) },
				stripUnit: int,
			}),
		);
	};
	awaited(main, 12);
	const leave = subscribe(show);
	const timer = setInterval(() => {
		const due = Date.now() - loaded >= (range === '10m' ? 10_000 : 60_000);
		const reads = chart.contains(document.activeElement) || chart.querySelector('details[open]');
		if (due && !document.hidden && shown === 'full' && !reads) void load();
	}, 1000);
	return () => {
		leave();
		clearInterval(timer);
		control.abort();
	};
}

/** @typedef {{ key: string, cls: string, glyph: string, title: string, text: string, action: () => Node }} Look */

/**
 * What an operator should look at, worst first.
 * @param {Snapshot} snap
 * @param {ErrorGroup[]} groups
 * @returns {Look[]}
 */
function looks(snap, groups) {
	/** @type {Look[]} */
	const found = [];
	/**
	 * @param {string} key
	 * @param {string} glyph
	 * @param {string} title
	 * @param {string} text
	 * @param {string | (() => Node)} to an address, or a button
	 */
	const look = (key, glyph, title, text, to, word = 'Open', cls = 'is-warn') => {
		const action = typeof to === 'string' ? () => h('a.btn.small', { href: to }, word) : to;
		found.push({ key, cls, glyph, title, text, action });
	};
	if (snap.health !== 'good')
		look('store', 'errors', 'The store is unhealthy', snap.health, '#/settings', 'Open', 'is-failed');
	const { free_bytes: free, total_bytes: disk, bytes } = snap.store;
	if (free !== null && (disk ? free < disk / 10 : free < 1e9)) {
		const of = disk ? ` of ${size(disk)}` : '';
		const text = `${size(free)}${of} left, the store has ${size(bytes)}`;
		look('disk', 'errors', 'Little space on the disk', text, '#/settings', 'Open', 'is-failed');
	}
	for (const bulk of (snap.bulk ?? []).filter((one) => one.state === 'held')) {
		const text = `its canary failed; ${jobsWait(bulk.of - bulk.done)} for a decision`;
		look(`held ${bulk.id}`, 'pause', 'A bulk action is held', text, link(['bulk', String(bulk.id)]), 'Decide');
	}
	const { stale, stale_jobs: held } = snap.workers;
	if (stale > 0) {
		const text = held ? `${jobs(held)} will be queued again when their leases end` : 'they hold no job';
		const title = stale === 1 ? 'A worker sends no heartbeats' : `${stale} workers send no heartbeats`;
		look(`silent${stale}`, 'schedules', title, text, '#/workers');
	}
	const queues = ordered(snap.queues);
	const waits = (/** @type {QueueLine} */ q) => about(q.oldest_ready_age_ms ?? 0);
	for (const q of queues.filter((one) => one.paused && one.counts.queued > 0)) {
		const text = `${sincePause(q)}${jobsWait(q.counts.queued)}`;
		const resume = canWrite() ? () => pauseButton(q, 'Resume') : queueLink(q.name);
		look(`paused ${q.name}`, 'pause', `${q.name} is paused`, text, resume);
	}
	for (const q of queues.filter((one) => one.starved && !one.paused)) {
		const text = `${jobsWait(q.counts.queued)}, the oldest for ${waits(q)}`;
		const why = link(['jobs'], { state: 'queued', queue: q.name });
		look(`starved ${q.name}`, 'workers', `No worker takes ${q.name}`, text, why, 'Why');
	}
	for (const group of groups.filter((one) => one.count >= 10 && isNew(one))) {
		const text = `${jobs(group.count)} in ${about(ms(snap.at) - ms(group.first_at))}: ${words(group)}`;
		const title = `New error in ${group.queues[0]?.name ?? group.kind}`;
		look(`new ${group.id}`, 'errors', title, text, link(['errors', group.id]), 'Open', 'is-failed');
	}
	for (const q of queues.filter((one) => rises(one, ms(snap.at)) && !one.paused && !one.starved)) {
		const text = `the oldest job has waited for ${waits(q)}`;
		look(`late ${q.name}`, 'schedules', `${q.name} is behind`, text, queueLink(q.name));
	}
	return found;
}

/** @param {QueueLine} q */
function sincePause(q) {
	return q.paused_at ? `since ${hhmm(ms(q.paused_at))}${q.paused_by ? ` by ${q.paused_by}` : ''}, ` : '';
}

/**
 * How old the oldest due job of a queue was: now, and some seconds before.
 * @type {Map<string, { at: number, age: number, before: number }>}
 */
const ages = new Map();

/**
 * Whether the oldest due job has waited for over a minute, and longer than ten seconds ago.
 * @param {QueueLine} q
 * @param {number} at
 */
function rises(q, at) {
	const age = q.oldest_ready_age_ms ?? 0;
	const known = ages.get(q.name);
	if (!known || at - known.at >= 10_000) ages.set(q.name, { at, age, before: known?.age ?? 0 });
	return age > 60_000 && age > (ages.get(q.name)?.before ?? 0);
}
