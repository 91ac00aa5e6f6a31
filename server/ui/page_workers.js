// Who runs jobs, by machine, and what has run for long.

import { confirm, isOpen, ready, since, tell, toast } from './actions.js';
import { canWrite, get, write } from './api.js';
import { about, awaited, h, icon, int, keyed, ms, plain, plural, put, redraw, s, say, span } from './dom.js';
import { now } from './live.js';
import { busy as busyWhile, noWorkers, pill, th, tiles, unread } from './parts.js';
import { jobLink } from './route.js';

/** The number of jobs that a worker holds; `running` names at most twenty. @param {Worker} w */
const held = (w) => w.running_total;

/** @param {Page} page */
export function mount({ main }) {
	const control = new AbortController();
	const now = tiles('Now', ['Slots', 'Workers', 'Running', 'Longest run'], 'four');
	const workers = workerTable();
	const longest = longestTable();
	put(main, now.node, workers.node, longest.node);
	for (const place of [now.node, workers.body, longest.body]) awaited(place, place === now.node ? 0 : 5);
	let asked = 0;
	let drawn = 0;
	const load = async () => {
		const mine = (asked += 1);
		try {
			const [{ workers: all }, { jobs }] = await Promise.all([
				get('workers?limit=1000', control.signal),
				get('jobs?state=processing&fields=row&limit=1000', control.signal),
			]);
			if (mine < drawn) return;
			drawn = mine;
			jobs.sort((/** @type {JobRow} */ a, /** @type {JobRow} */ b) => ms(a.started_at) - ms(b.started_at));
			now.node.removeAttribute('aria-busy');
			figures(now.set, all, jobs);
			workers.show(all, load);
			longest.show(jobs);
		} catch (error) {
			if (control.signal.aborted) return;
			unread(workers.body, error, load);
			unread(longest.body, error, load);
		}
	};
	void load();
	const timer = setInterval(() => !document.hidden && void load(), 2000);
	return () => {
		clearInterval(timer);
		control.abort();
	};
}

/** @param {ReturnType<typeof tiles>['set']} set @param {Worker[]} workers @param {JobRow[]} running */
function figures(set, workers, running) {
	const alive = workers.filter((w) => w.alive);
	const total = alive.reduce((sum, w) => sum + Math.max(w.slots, held(w)), 0);
	const busy = alive.reduce((sum, w) => sum + held(w), 0);
	const hosts = plural(new Set(workers.map((w) => w.host)).size, 'machine');
	const old = running[0];
	set(0, [int(busy), `of ${int(total)} busy`], `${int(total - busy)} free`);
	set(1, [int(workers.length)], `${alive.length} alive, ${workers.length - alive.length} silent, on ${hosts}`);
	set(2, [int(running.length)], running.length >= 1000 ? 'the first thousand' : 'jobs with a lease');
	set(
		3,
		[old ? span(since(old.started_at ?? old.updated_at)) : '—'],
		old ? `${old.id} ${old.kind}` : 'nothing runs',
		old ? [h('a.mono', { href: jobLink(old.id) }, String(old.id)), ` ${old.kind}`] : 'nothing runs',
	);
}

/** @param {Worker} w @param {() => Promise<void>} load */
async function stop(w, load) {
	const asks = {
		title: `Stop ${w.id}?`,
		body: [
			h('p.soft', `It takes no more jobs, and stops when its ${plural(held(w), 'running job')} have ended.`),
		],
		safe: 'Leave it',
		verb: 'Stop the worker',
		count: 1,
		danger: true,
	};
	if (isOpen() || !ready() || !(await confirm(asks)) || !ready()) return;
	try {
		await write('POST', `workers/${encodeURIComponent(w.id)}/stop`);
		toast(`${w.id} was asked to stop`);
		await load();
	} catch (error) {
		tell(error);
	}
}

/** Workers by machine. Rows keep their place and their nodes, so that the focus stays. */
function workerTable() {
	const body = h('div');
	const rows = h('tbody');
	const foot = h('footer');
	const table = h(
		'div.scroll',
		h(
			'table',
			h(
				'thead',
				h(
					'tr',
					th('Worker', ''),
					th('Kind', 'w-m'),
					th('Takes', 'w-l'),
					th('Slots', ''),
					th('Runs', 'w-l'),
					th('Heartbeat', 'num'),
					th('Up', 'num w-m'),
					canWrite() ? h('th', { scope: 'col', class: 'w-m' }, h('span.vh', 'Actions')) : null,
				),
			),
			rows,
		),
	);
	/** @type {() => Promise<void>} */
	let load = async () => {};
	/** The version that most of a worker's peers run. @type {Map<string, string | null>} */
	let usual = new Map();
	const make = (/** @type {Worker | [string, Worker[]]} */ item) => {
		if (Array.isArray(item)) return group(...item);
		const cells = ['w-m', 'takes w-l', '', 'w-l', '', 'num w-m', ...(canWrite() ? ['num w-m'] : [])];
		return h('tr', h('th', { scope: 'row' }), ...cells.map((cls) => h('td', { class: cls || null })));
	};
	const update = (/** @type {HTMLElement} */ row, /** @type {Worker | [string, Worker[]]} */ w) => {
		if (Array.isArray(w)) return;
		const [name, kind, what, busy, runs, beat, up, act] = /** @type {HTMLElement[]} */ ([...row.children]);
		redraw(name, `${w.alive} ${w.stopping}`, () => [
			h('span.mono', w.id),
			w.alive ? null : [' ', pill('failed', 'st-warn', 'silent')],
			w.stopping ? [' ', pill('warn', 'stop', 'stopping')] : null,
		]);
		const most = usual.get(peers(w));
		const differs = w.version && w.version !== most;
		const notes = [w.kind === 'remote' && w.node && `polls through ${w.node}`, differs && `other workers run ${most}`];
		kind.title = notes.filter(Boolean).join('; ');
		redraw(kind, `${w.kind} ${w.version} ${differs}`, () => [
			w.kind,
			w.version && h('span.w-l', ' ', h(differs ? 'b.strong' : 'small.mute', w.version)),
		]);
		say(what, takes(w));
		what.title = takes(w);
		redraw(busy, `${held(w)}/${w.slots}`, () => [slots(w), ` ${held(w)}`, h('span.mute', `/${w.slots}`)]);
		redraw(runs, w.running.slice(0, 2).join() + held(w), () => [
			...w.running.slice(0, 2).flatMap((id, at) => [at ? ', ' : '', h('a.mono', { href: jobLink(id) }, String(id))]),
			held(w) > 2 ? h('small', ` and ${int(held(w) - 2)} more`) : held(w) === 0 ? h('span.mute', '—') : null,
		]);
		beat.className = w.alive ? 'num' : 'num is-failed strong';
		say(beat, span(since(w.last_heartbeat)));
		say(up, about(since(w.started_at)));
		if (act)
			redraw(act, String(w.kind === 'process' && !w.stopping), () => {
				if (w.kind !== 'process' || w.stopping) return null;
				const button = h(
					'button.btn.small',
					{
						'data-write': true,
						'aria-label': `Stop ${w.id}`,
						onclick: () => void busyWhile(button, () => stop(w, load)),
					},
					icon('stop', 's'),
					'Stop',
				);
				return button;
			});
	};
	return {
		node: h('section.panel', { 'aria-label': 'Workers by machine' }, body),
		body,
		/** @param {Worker[]} workers @param {() => Promise<void>} again */
		show: (workers, again) => {
			load = again;
			usual = usualVersions(workers);
			if (workers.length === 0) return redraw(body, 'none', noWorkers);
			redraw(body, 'table', () => [table, foot]);
			const groups = Map.groupBy(workers, (w) => (w.kind === 'remote' ? `${w.host} remote` : w.host));
			const items = [...groups].sort().flatMap((one) => [one, ...one[1]]);
			keyed(rows, items, (item) => (Array.isArray(item) ? `machine ${item[0]}` : item.id), make, update);
			const gone = silent(workers);
			foot.hidden = gone.length === 0;
			redraw(foot, gone.join(), () => gone.map((text) => h('span', text)));
		},
	};
}

/** The ten jobs that have run for the longest time. */
function longestTable() {
	const body = h('div');
	const rows = h('tbody');
	const all = h('a', { href: '#/jobs?state=processing' });
	const heads = [
		['Job', ''],
		['Kind', ''],
		['Queue', 'w-m'],
		['Worker', 'w-m'],
		['Progress', 'w-m'],
		['Lease ends', 'num w-m'],
		['Runs for', 'num'],
	];
	const table = h(
		'div.scroll',
		h('table', h('thead', h('tr', ...heads.map(([text, cls]) => th(text, cls)))), rows),
	);
	const make = (/** @type {JobRow} */ job) =>
		h(
			'tr',
			h('td', h('a.mono', { href: jobLink(job.id) }, String(job.id))),
			h('td', h('code', job.kind)),
			h('td.w-m', job.queue),
			h('td.mono.w-m'),
			h('td.cut.w-m'),
			h('td.num.w-m'),
			h('td.num'),
		);
	const update = (/** @type {HTMLElement} */ row, /** @type {JobRow} */ job) => {
		const [worker, progress, lease, runs] = [...row.children].slice(3);
		say(worker, job.worker ?? '—');
		say(progress, job.progress == null ? 'none reported' : plain(JSON.stringify(job.progress)));
		progress.classList.toggle('mute', job.progress == null);
		say(lease, job.lease_until ? span(Math.max(0, ms(job.lease_until) - now())) : '—');
		say(runs, span(since(job.started_at ?? job.updated_at)));
	};
	return {
		node: h(
			'section.panel',
			{ 'aria-labelledby': 'lr' },
			h('header', h('h2', { id: 'lr' }, 'Longest running'), h('span.end', all)),
			body,
		),
		body,
		/** @param {JobRow[]} running */
		show: (running) => {
			say(all, `All ${int(running.length)} running`);
			if (running.length === 0) return redraw(body, 'none', () => h('div.body.soft', 'Nothing runs now.'));
			redraw(body, 'table', () => table);
			keyed(rows, running.slice(0, 10), (job) => String(job.id), make, update);
		},
	};
}

/** @param {string} host @param {Worker[]} some */
function group(host, some) {
	const what =
		some[0].kind === 'remote'
			? 'remote workers over HTTP'
			: some[0].kind === 'process'
				? 'worker processes'
				: `server, pid ${some[0].pid ?? '?'}`;
	return h(
		'tr.group',
		h(
			'th',
			{ colspan: canWrite() ? 8 : 7, scope: 'rowgroup' },
			h('b.strong', host.replace(/ remote$/, '')),
			' ',
			h('span.mute', what),
		),
	);
}

/** @param {Worker} w */
function takes(w) {
	const kinds = w.kinds
		? w.kinds.slice(0, 4).join(', ') + (w.kinds.length > 4 ? ` and ${w.kinds.length - 4} more` : '')
		: 'everything';
	return w.queues
		? `${kinds} in ${w.queues.slice(0, 3).join(', ')}`
		: kinds === 'everything'
			? kinds
			: `${kinds} in all queues`;
}

/** Remote workers run programs of their own: those that take the same are compared. @param {Worker} w */
const peers = (w) => (w.kind === 'remote' ? takes(w) : '');

/** @param {Worker[]} workers */
function usualVersions(workers) {
	const known = workers.filter((w) => w.version);
	const same = [...Map.groupBy(known, (w) => `${peers(w)} ${w.version}`).values()].sort((a, b) => a.length - b.length);
	// Of several entries with one key the last counts: that of the most workers.
	return new Map(same.map(([w]) => [peers(w), w.version]));
}

/** @param {Worker} w */
function slots(w) {
	const n = Math.min(w.slots, 16);
	const rects = Array.from({ length: n }, (_, at) =>
		s('rect', { class: at < held(w) ? 'b' : '', x: at * 9 + 0.5, y: 1.5, width: 7, height: 7, rx: 1.5 }),
	);
	return s(
		'svg',
		{ class: 'slots', width: n * 9, height: 11, viewBox: `0 0 ${Math.max(1, n * 9)} 11`, 'aria-hidden': 'true' },
		...rects,
	);
}

/** What happens to the jobs of silent workers. @param {Worker[]} workers */
const silent = (workers) =>
	workers
		.filter((w) => !w.alive)
		.slice(0, 3)
		.map(
			(w) =>
				`${w.id} was last seen ${about(since(w.last_heartbeat))} ago; ` +
				(held(w)
					? `its ${plural(held(w), 'job')} will be queued again when their leases end.`
					: 'it holds no job.'),
		);
