// The list of jobs. A page is frozen: its rows stay in place and change there; new ones are offered.

import { act, since, toast, verbs } from './actions.js';
import { canWrite, get, parsed, search, text } from './api.js';
import { progress } from './bulk.js';
import { age, awaited, copy, h, icon, instant, int, ms, plain, plural, put, say, span } from './dom.js';
import { now, subscribe } from './live.js';
import { busy, noJobs, st, teeth, th, unread } from './parts.js';
import { STATES, asked, bulkFilter, chip, counted, go, jobLink, link, queueLink, read, remembered } from './route.js';

const PAGE = 50;
/** @type {Record<string, [string, string]>} */
const ORDER = {
	queued: ['Due', 'last due first'],
	scheduled: ['Due in', 'latest first'],
	processing: ['Runs for', 'latest lease first'],
	done: ['Done', 'newest first'],
	failed: ['Failed', 'newest failure first'],
	cancelled: ['Cancelled', 'newest first'],
	'': ['Enqueued', 'newest first'],
};

/**
 * Selected ids, or all that match: they survive updates and paging, and end with the filter.
 * @type {{ filter: string, ids: Set<number>, all: boolean }}
 */
const selection = { filter: '', ids: new Set(), all: false };

/** The page before each page that was left by Older, by filter and cursor. @type {Map<string, string>} */
const trail = new Map();

/** @param {Page} page */
export function mount({ main, query, keys, address }) {
	const control = new AbortController();
	const { known, unknown } = read(query);
	const state = known.state ?? '';
	const cursor = query.get('after') ?? '';
	const filter = search(known);
	const wanted = asked(known, now());
	if (selection.filter !== filter) Object.assign(selection, { filter, ids: new Set(), all: false });
	const filters = Object.keys(known).filter((name) => name !== 'state');
	/** Whether counters tell how long the list is. */
	const counts = filters.every((name) => name === 'queue');
	/** Whether a bulk action can have the same filter: it takes one id, and a worker only to cancel. */
	const whole = !known.id?.includes(',') && (!known.worker || state === 'processing');
	const writes = canWrite();
	/** @type {JobRow[]} */
	let rows = [];
	/** @type {string | null} */
	let next = null;
	let at = -1;
	let anchor = -1;
	let row = query.get('row');

	const tab = (/** @type {string} */ name) => {
		const n = h('small');
		return {
			name,
			n,
			node: h(
				'a',
				{ href: link(['jobs'], { ...known, state: name || null }), 'aria-current': name === state ? 'page' : null },
				name ? st(name) : 'All',
				name ? n : null,
			),
		};
	};
	const tabs = ['', ...STATES].map(tab);
	const without = (/** @type {string} */ name) => () => {
		const rest = new URLSearchParams(query);
		rest.delete(name);
		rest.delete('after');
		go(link(['jobs'], Object.fromEntries(rest)));
	};
	const chips = h(
		'div.chips',
		{ role: 'group', 'aria-label': 'Filters' },
		...filters.map((name) => chip(name, known[name], true, without(name))),
		...unknown.map(([name, value]) => chip(name, plain(value), false, without(name))),
		h(
			'button.chip.add',
			{
				onclick: () =>
					document.querySelector('.search input')?.dispatchEvent(new CustomEvent('ask', { bubbles: true })),
			},
			icon('plus', 's'),
			'Filter',
		),
		filters.length + unknown.length > 0
			? h('button.btn.bare.small', { onclick: () => go(link(['jobs'], { state: state || null })) }, 'Clear')
			: null,
	);
	const fresh = h('button.btn.small', { hidden: true, onclick: () => reload() });
	const body = h('div.scroll');
	const foot = h('footer');
	const bulk = h('div.bulk', { role: 'region', 'aria-label': 'Selected jobs', hidden: true });
	const bulks = progress();
	put(
		main,
		bulks.node,
		h('nav.states', { 'aria-label': 'Jobs by state' }, ...tabs.map((t) => t.node)),
		h('div.listbar', chips, h('div.end', h('span', ORDER[state][1]), fresh)),
		h('section.panel', { 'aria-label': `${state || 'All'} jobs` }, body, foot),
		bulk,
	);
	main.querySelector('.states [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });

	const all = h('input', {
		type: 'checkbox',
		'aria-label': 'Select the jobs on this page',
		onchange: () => {
			for (const row of rows)
				if (all.checked) selection.ids.add(row.id);
				else selection.ids.delete(row.id);
			selection.all = false;
			selected();
		},
	});
	const texts = state === 'failed' || state === '' || state === 'queued' || state === 'scheduled';
	const head = () =>
		h(
			'thead',
			h(
				'tr',
				writes ? th(all, 'fit') : null,
				th('Job', ''),
				state ? null : th('State', 'w-m'),
				th('Kind', 'w-m'),
				th('Queue', 'w-l'),
				th('Attempts', 'w-m'),
				texts ? th('Error', 'w-m') : state === 'processing' ? th('Worker', 'w-m') : null,
				th('Payload', 'w-l'),
				state === 'queued' || state === 'scheduled' ? null : th('Last run', 'num w-l'),
				th(ORDER[state][0], 'num'),
			),
		);

	/** The instant that the list is ordered by. @param {JobRow} job */
	const instantOf = (job) => {
		if (state === 'queued' || state === 'scheduled') return job.run_at;
		if (state === 'processing') return job.started_at ?? job.updated_at;
		return state === '' ? job.created_at : (job.finished_at ?? job.updated_at);
	};
	/** The same as an age. @param {JobRow} job */
	const when = (job) => {
		if (state === 'scheduled') return span(Math.max(0, ms(job.run_at) - now()));
		return (state === 'processing' ? span : age)(since(instantOf(job)));
	};
	const ran = (/** @type {JobRow} */ job) =>
		job.started_at && job.finished_at ? span(Math.max(0, ms(job.finished_at) - ms(job.started_at))) : '—';

	const make = (/** @type {JobRow} */ job) => {
		const row = h('tr', {
			'data-key': job.id,
			onclick: (/** @type {MouseEvent} */ event) => {
				if (!(event.target instanceof Element) || event.target.closest('a, input')) return;
				move(rows.findIndex((one) => one.id === job.id));
			},
		});
		draw(row, job);
		return row;
	};
	const draw = (/** @type {HTMLElement} */ row, /** @type {JobRow} */ job) => {
		const gone = state !== '' && job.view !== state;
		const box = h('input', {
			type: 'checkbox',
			checked: selection.ids.has(job.id),
			'aria-label': `Select job ${job.id}`,
			onclick: (/** @type {MouseEvent} */ event) => choose(rows.indexOf(job), box.checked, event.shiftKey),
		});
		const error = plain(job.last_error ?? '');
		const detailParts = gone ? [st(job.view), ` since.${error ? ` It was: ${error}` : ''}`] : [error];
		const focus = row.contains(document.activeElement) ? document.activeElement : null;
		const focused = focus instanceof HTMLInputElement ? 'input' : focus?.matches('.plain') ? 'a.plain' : 'a';
		put(
			row,
			writes ? h('td.fit', box) : null,
			h(
				'td.one',
				h('a.mono', { href: jobLink(job.id) }, String(job.id)),
				h('code.only-m', ` ${job.kind}`),
				h(
					'small.only-m',
					state === '' ? [st(job.view), ' '] : null,
					...(detailParts.some((t) => t !== '') ? detailParts : [plain(job.payload_head ?? '')]),
				),
			),
			state ? null : h('td.w-m', st(job.view)),
			h('td.w-m.kind', h('code', job.kind)),
			h('td.w-l', h('a.plain', { href: queueLink(job.queue) }, job.queue)),
			h('td.w-m', teeth(job)),
			texts
				? h('td.cut.err.w-m', { title: error || null }, ...detailParts)
				: state === 'processing'
					? h('td.w-m.mono', job.worker ?? (gone ? st(job.view) : '—'))
					: null,
			h('td.cut.load.mono.w-l', plain(job.payload_head ?? '')),
			state === 'queued' || state === 'scheduled' ? null : h('td.num.w-l', ran(job)),
			h('td.num.age', when(job)),
		);
		row.classList.toggle('gone', gone);
		if (focus) /** @type {HTMLElement | null} */ (row.querySelector(focused))?.focus({ preventScroll: true });
		mark(row, job.id);
	};
	const mark = (/** @type {Element} */ row, /** @type {number} */ id) => {
		row.classList.toggle('on', selection.ids.has(id));
		row.classList.toggle('cursor', rows[at]?.id === id);
		const box = row.querySelector('input');
		if (box) box.checked = selection.ids.has(id);
	};
	const tbody = h('tbody');
	const remark = () => [...tbody.children].forEach((row, n) => rows[n] && mark(row, rows[n].id));
	const choose = (/** @type {number} */ n, /** @type {boolean} */ on, /** @type {boolean} */ range) => {
		const [from, to] = range && anchor >= 0 ? [Math.min(anchor, n), Math.max(anchor, n)] : [n, n];
		for (const row of rows.slice(from, to + 1))
			if (on) selection.ids.add(row.id);
			else selection.ids.delete(row.id);
		anchor = n;
		selection.all = false;
		selected();
	};
	const move = (/** @type {number} */ to) => {
		at = Math.max(0, Math.min(rows.length - 1, to));
		remark();
		row = rows[at] ? String(rows[at].id) : null;
		address({ row });
		const node = tbody.children[at];
		node?.scrollIntoView({ block: 'nearest' });
		node?.querySelector('a')?.focus({ preventScroll: true });
	};
	const chosen = () => (selection.ids.size > 0 ? [...selection.ids] : rows[at] ? [rows[at].id] : []);
	const clear = () => {
		selection.ids.clear();
		selection.all = false;
		selected();
	};
	const doTo = (/** @type {import('./actions.js').Verb} */ verb) =>
		void act(verb, selection.all ? { filter: bulkFilter(wanted) } : { ids: chosen() }, () => {
			clear();
			void refresh();
		});
	const selected = () => {
		remark();
		const n = selection.ids.size;
		all.checked = rows.length > 0 && rows.every((row) => selection.ids.has(row.id));
		bulk.hidden = n === 0;
		if (n === 0) return;
		const button = (
			/** @type {import('./actions.js').Verb} */ verb,
			/** @type {string} */ glyph,
			/** @type {string} */ word,
			/** @type {string} */ key,
		) =>
			h(
				'button',
				{ class: verb === 'retry' ? 'btn small' : 'btn small danger', 'data-write': true, onclick: () => doTo(verb) },
				icon(glyph, 's'),
				word,
				key ? h('kbd', key) : null,
			);
		const can = state
			? verbs(state === 'scheduled' ? 'queued' : state)
			: /** @type {const} */ (['retry', 'cancel', 'delete']);
		const word = selection.all ? 'All that match' : `${int(n)} selected`;
		const more =
			state !== '' && whole && !selection.all && next !== null && rows.every((row) => selection.ids.has(row.id));
		put(
			bulk,
			h('b', word),
			more
				? h(
						'button.btn.small',
						{
							onclick: () => {
								selection.all = true;
								selected();
							},
						},
						counts && snap ? `Select all ${int(total())}` : 'Select all that match',
					)
				: null,
			h('i'),
			can.includes('retry') ? button('retry', 'retry', 'Retry', 'r') : null,
			can.includes('cancel') ? button('cancel', 'st-cancelled', 'Cancel', 'c') : null,
			can.includes('delete') ? button('delete', 'trash', 'Delete', '') : null,
			selection.all
				? null
				: h(
						'button.btn.small',
						{
							onclick: async () =>
								toast(
									(await copy([...selection.ids].join('\n')))
										? `${plural(n, 'id')} copied`
										: 'The browser refused to copy',
								),
						},
						icon('copy', 's'),
						'Copy ids',
					),
			h('button.btn.bare.small', { 'aria-label': 'Clear the selection', onclick: clear }, icon('x', 's')),
		);
	};
	const page = (/** @type {string} */ to) => go(link(['jobs'], { ...known, after: to || null }));
	const older = () => {
		if (next === null) return;
		trail.set(`${filter} ${next}`, cursor);
		page(next);
	};
	/** To the page before, or to the first where that is not known: after a deep link. */
	const newer = () => cursor && page(trail.get(`${filter} ${cursor}`) ?? '');
	const show = () => {
		if (rows.length === 0) {
			put(
				body,
				noJobs(
					state || undefined,
					known.queue ?? 'default',
					!counts || !!known.queue?.includes(',') || cursor !== '',
					reached !== null,
				),
			);
			foot.hidden = cursor === '' && reached === null;
		} else {
			put(tbody, ...rows.map(make));
			put(body, h('table.jobs', head(), tbody));
			foot.hidden = false;
		}
		put(
			foot,
			reached
				? h('span', `${plural(rows.length, 'job')} found; searched back to ${instant(reached, now())}.`)
				: rows.length > 0
					? h('span', `${plural(rows.length, 'job')} ${searches ? 'found' : 'shown'}`)
					: null,
			reached
				? h(
						'button.btn.small',
						{
							onclick: (/** @type {MouseEvent} */ event) =>
								void busy(/** @type {HTMLButtonElement} */ (event.currentTarget), () => load(true)),
						},
						`Search ${int(20_000)} more`,
					)
				: null,
			h(
				'span.actions',
				h('button.btn.small', { disabled: cursor === '', onclick: newer }, 'Newer'),
				h('button.btn.small', { disabled: next === null, onclick: older }, 'Older'),
			),
		);
		selected();
	};
	/** How far a search got that stopped at its bounds. @type {string | null} */
	let reached = null;
	let searches = false;
	/** Lists that were shown: what was asked for one is not drawn in another. */
	let generation = 0;
	let asks = 0;
	const load = async (more = false) => {
		const mine = (asks += 1);
		fresh.hidden = true;
		if (!more) awaited(body, 12);
		try {
			const asked = search({ ...wanted, cursor: more ? next : cursor, fields: 'row', limit: PAGE });
			const found = parsed(await text(`jobs?${asked}`, control.signal));
			if (mine !== asks) return;
			generation += 1;
			rows = more ? [...rows, ...found.jobs] : found.jobs;
			newest = rows.map(placeOf).sort().at(-1) ?? '';
			next = found.next;
			reached = found.reached ?? null;
			searches = found.scanned !== undefined;
			probed = Date.now();
			show();
			at = rows.findIndex((one) => String(one.id) === row);
			remark();
			if (!remembered()) tbody.children[at]?.scrollIntoView({ block: 'nearest' });
		} catch (error) {
			if (!control.signal.aborted && mine === asks) unread(body, error, reload);
		}
	};
	const reload = () => void load();
	/** Where a job stands in the list: later ones are before it. @param {JobRow} job */
	const placeOf = (job) => instantOf(job) + String(job.id).padStart(20, '0');
	/** The place of the first row when the list was read. */
	let newest = '';
	let probed = 0;
	/** Offers what the first page has and the list has not, by the instant that orders them. */
	const probe = async () => {
		const mine = generation;
		const found = await get(`jobs?${search({ ...wanted, fields: 'row', limit: PAGE })}`, control.signal);
		if (mine !== generation) return;
		const known = new Set(rows.map((one) => one.id));
		const newer = found.jobs.filter((/** @type {JobRow} */ one) => !known.has(one.id) && placeOf(one) > newest);
		fresh.hidden = newer.length === 0;
		say(fresh, `Show ${newer.length === PAGE ? `${PAGE} or more` : int(newer.length)} newer`);
	};
	/** Reads the rows that are shown again; they stay where they are. */
	const refresh = async () => {
		const mine = generation;
		if (rows.length === 0) return;
		try {
			const found = await get(
				`jobs?${search({ id: rows.map((row) => row.id).join(','), fields: 'row' })}`,
				control.signal,
			);
			if (mine !== generation) return;
			/** @type {Map<number, JobRow>} */
			const byId = new Map(found.jobs.map((/** @type {JobRow} */ job) => [job.id, job]));
			rows = rows.map((row, n) => {
				const found = byId.get(row.id);
				const node = /** @type {HTMLElement} */ (tbody.children[n]);
				if (!found) node?.classList.add('gone');
				if (!found || (found.updated_at === row.updated_at && found.view === row.view)) return row;
				rows[n] = found;
				draw(node, found);
				return found;
			});
		} catch {
			// The badge says it.
		}
	};
	/** @type {Snapshot | null} */
	let snap = null;
	const total = () => (snap ? counted(snap, state, known.queue) : 0);
	let revs = '';
	let seen = '';
	let last = 0;
	let reading = false;
	const leave = subscribe((next) => {
		snap = next;
		bulks.show(next);
		for (const t of tabs) if (t.name) say(t.n, int(counted(next, t.name, known.queue)));
		[...tbody.children].forEach((row, n) => rows[n] && say(row.querySelector('.age'), when(rows[n])));
		if (body.getAttribute('aria-busy') === 'true' || generation === 0) return;
		const revOf = (/** @type {(name: string) => boolean} */ of) =>
			next.queues
				.filter((q) => of(q.name))
				.map((q) => q.rev)
				.join();
		const mine = new Set(rows.map((row) => row.queue));
		const rev = revOf((name) => mine.has(name));
		const listed = revOf((name) => !known.queue || known.queue.split(',').includes(name));
		// A search reads job by job: it is not repeated often.
		if (listed !== seen && cursor === '' && state !== 'scheduled' && Date.now() - probed > (searches ? 15_000 : 2000)) {
			seen = listed;
			probed = Date.now();
			void probe().catch(() => {});
		}
		if (rev !== revs && Date.now() - last > 2000 && !reading) {
			revs = rev;
			last = Date.now();
			reading = true;
			void refresh().finally(() => {
				reading = false;
			});
		}
	});
	keys({
		j: () => move(at + 1),
		k: () => move(at - 1),
		Enter: () => rows[at] && go(jobLink(rows[at].id)),
		n: () => !fresh.hidden && void load(),
		'[': newer,
		']': older,
		Escape: clear,
		...(writes
			? {
					x: () => at >= 0 && choose(at, !selection.ids.has(rows[at].id), false),
					X: () => at >= 0 && choose(at, true, true),
					a: () => {
						rows.forEach((row) => selection.ids.add(row.id));
						selected();
					},
					r: () => doTo('retry'),
					c: () => doTo('cancel'),
					Delete: () => doTo('delete'),
				}
			: {}),
	});
	void load();
	return () => {
		leave();
		control.abort();
	};
}
