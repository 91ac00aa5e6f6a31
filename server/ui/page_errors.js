// Dead letters by what they have in common, what to do with them, and bulk actions on their way.

import { act, begin as start, ready, since } from './actions.js';
import { Problem, canWrite, get, search, write } from './api.js';
import { progress } from './bulk.js';
import { bars } from './chart.js';
import { about, awaited, h, hhmm, icon, int, ms, plain, plural, put, say, visible } from './dom.js';
import { subscribe } from './live.js';
import { busy, jobs, message, meter, noDeadLetters, panel, refusal, segments, th, unread } from './parts.js';
import { chip, go, jobLink, link } from './route.js';

const DAY = 86_400_000;
/** Groups on a page. */
const PAGE = 50;
/** @type {['jobs' | 'last' | 'new', string][]} */
const ORDERS = [
	['jobs', 'most jobs'],
	['last', 'latest'],
	['new', 'new first'],
];

/** What was shown last: drawn at once while it is read again. @type {ErrorGroup[]} */
let known = [];

/** @param {ErrorGroup} group */
export const isNew = (group) => since(group.first_at) < DAY;
/** The text of a group, with what differs as slots. @param {ErrorGroup} group @returns {Child[]} */
const title = (group) =>
	group.title.length > 0
		? group.title.map((part) => ('slot' in part ? h('span.ph', plain(part.slot)) : visible(part.text)))
		: ['no error text'];
/** The same as one line. @param {ErrorGroup} group */
export const words = (group) =>
	plain(group.title.map((part) => ('slot' in part ? '…' : part.text)).join('')) || 'no error text';
/** @param {ErrorGroup} group */
const where = (group) =>
	group.queues
		.slice(0, 3)
		.map((q) => q.name)
		.join(', ') + (group.queues.length > 3 ? ` and ${group.queues.length - 3} more` : '');
const groupLink = (/** @type {ErrorGroup} */ group) => link(['errors', group.id]);

/** A table of groups. @param {ErrorGroup[]} groups @param {string} [chosen] */
export function groupTable(groups, chosen = '') {
	const row = (/** @type {ErrorGroup} */ g) =>
		h(
			'tr',
			{
				class: g.id === chosen ? 'on cursor' : null,
				'data-key': g.id,
				onclick: (/** @type {MouseEvent} */ event) =>
					event.target instanceof Element && !event.target.closest('a') && go(groupLink(g)),
			},
			h(
				'td.two',
				h(
					'strong',
					{ title: words(g) },
					h('a', { href: groupLink(g), 'aria-current': g.id === chosen ? 'true' : null }, ...title(g)),
				),
				h('small', h('code', g.kind), ` in ${where(g)}`, isNew(g) ? [' ', h('span.pill.failed', 'new')] : null),
			),
			h('td.fit.w-m', bars(g.hours, 'mini failed')),
			h('td.num.strong', int(g.count)),
			h('td.num.w-l', `${about(since(g.first_at))} ago`),
			h('td.num.w-m', `${about(since(g.last_at))} ago`),
		);
	return h(
		'div.scroll',
		h(
			'table.errs',
			h(
				'thead',
				h(
					'tr',
					th('Error', ''),
					th('24 h', 'w-m'),
					th('Jobs', 'num'),
					th('First seen', 'num w-l'),
					th('Last', 'num w-m'),
				),
			),
			h('tbody', ...groups.map(row)),
		),
	);
}

/** @param {Page} page */
export function mount({ main, path, query, crumb, address }) {
	const chosen = path[1] ?? '';
	const control = new AbortController();
	const [queue, kind] = [query.get('queue'), query.get('kind')];
	const filters = ['queue', 'kind'].filter((name) => query.get(name));
	let by = ORDERS.find(([name]) => name === query.get('by'))?.[0] ?? 'jobs';
	const sum = h('p.soft');
	const list = h('section', { class: chosen ? 'panel w-m' : 'panel', 'aria-label': 'Error groups' });
	const share = h('div');
	const side = h('div');
	const bulks = progress();
	const without = (/** @type {string} */ name) => () => {
		const rest = new URLSearchParams(query);
		rest.delete(name);
		go(link(path, Object.fromEntries(rest)));
	};
	const chips = h(
		'div.chips',
		{ role: 'group', 'aria-label': 'Filters' },
		...filters.map((name) => chip(name, plain(query.get(name) ?? ''), true, without(name))),
	);
	const order = segments('Order', ORDERS, by, (next) => {
		by = next;
		address({ by: next === 'jobs' ? null : next });
		void load();
	});
	if (chosen) crumb(['Errors', '#/errors'], chosen.slice(0, 8));
	put(
		main,
		bulks.node,
		h('div', { class: chosen ? 'listbar w-m' : 'listbar' }, filters.length > 0 ? chips : sum, h('div.end', order)),
		chosen ? h('div.cols.w-side', h('div.stack', list, share), side) : list,
	);
	/** @type {ErrorGroup[]} */
	let shown = [];
	const show = (/** @type {ErrorGroup[]} */ groups) => {
		shown = groups;
		if (filters.length === 0) known = groups;
		if (groups.length > 0) put(list, groupTable(groups, chosen), more);
		else if (filters.length > 0)
			put(list, h('div.body.firstbody', h('p', h('b', 'No dead letter fits these filters.'))));
		else put(list, noDeadLetters());
	};
	/** How many groups are shown: a page, and each that was asked for since. */
	let wanted = PAGE;
	const older = h(
		'button.btn.small',
		{
			onclick: () => {
				wanted += PAGE;
				void busy(older, load);
			},
		},
		'Show more',
	);
	const more = h('footer', { hidden: true }, h('span'), h('span.actions', older));
	let asked = 0;
	let drawn = 0;
	const load = async () => {
		const mine = (asked += 1);
		try {
			/** @type {ErrorGroup[]} */
			const groups = [];
			let next = null;
			do {
				const page = await get(`errors?${search({ by, limit: PAGE, cursor: next, queue, kind })}`, control.signal);
				groups.push(...page.groups);
				next = page.next;
			} while (next !== null && groups.length < wanted);
			// A later answer, maybe in another order, may have been faster.
			if (mine < drawn) return;
			drawn = mine;
			const focus = document.activeElement?.closest('tr')?.dataset.key;
			const had = shown.some((one) => one.id === chosen);
			say(more.firstElementChild, `${plural(groups.length, 'group')} shown`);
			more.hidden = next === null;
			show(groups);
			if (had && !groups.some((one) => one.id === chosen)) void detail();
			if (focus)
				/** @type {HTMLElement | null} */ (list.querySelector(`tr[data-key="${CSS.escape(focus)}"] a`))?.focus();
		} catch (error) {
			if (!control.signal.aborted) unread(list, error, load);
		}
	};
	const none = () =>
		put(
			side,
			message(h('p', h('b', 'No dead letter has this error now.'), ' Its jobs were retried or deleted.')),
		);
	const detail = async () => {
		try {
			const { group, sampled, shared } = await get(`errors/${encodeURIComponent(chosen)}`, control.signal);
			if (group.count === 0) return none();
			crumb(['Errors', '#/errors'], group.kind);
			put(share, sharedPanel(group, sampled, shared));
			if (!side.contains(document.activeElement)) put(side, replayPanel(group, control.signal));
			side.removeAttribute('aria-busy');
		} catch (error) {
			if (control.signal.aborted) return;
			if (error instanceof Problem && error.status === 404) none();
			else unread(side, error, detail);
		}
	};
	let rev = -1;
	let last = 0;
	const leave = subscribe((snap) => {
		bulks.show(snap);
		const { errors } = snap;
		if (!errors) return;
		const totals =
			`${plural(errors.jobs, 'dead letter')} in ${plural(errors.groups, 'group')}. ` +
			'A group has one kind and one error text; numbers, ids, hosts and quoted texts may differ.';
		say(sum, errors.groups === 0 ? '' : totals);
		if (errors.rev === rev || Date.now() - last < 2000) return;
		if (rev >= 0) void load();
		rev = errors.rev;
		last = Date.now();
	});
	if (known.length > 0 && filters.length === 0) show(known);
	else awaited(list, 10);
	if (chosen) awaited(side, 8);
	void load();
	if (chosen) void detail();
	return () => {
		leave();
		control.abort();
	};
}

/**
 * What the newest of a group have in common.
 * @param {ErrorGroup} group
 * @param {number} sampled
 * @param {Shared[]} shared
 */
function sharedPanel(group, sampled, shared) {
	/** @type {[string, string][]} */
	const kinds = [
		['payload', 'Payload'],
		['worker', 'Worker'],
		['exit_code', 'Exit code'],
		['mark', 'Since'],
	];
	const value = (/** @type {Shared} */ one) => {
		if (one.where === 'mark') return `${one.path} ${hhmm(ms(String(one.value)))}`;
		return plain(
			(one.path ? `${one.path.replace(/^\//, '')} = ` : '') +
				(typeof one.value === 'string' ? one.value : JSON.stringify(one.value)),
		);
	};
	const part = (/** @type {Shared} */ one) =>
		h('li', h('code', { title: value(one) }, value(one)), h('b', `${Math.round(one.share * 100)} %`), meter(one.share));
	const found = kinds
		.map(([name, word]) => ({ word, parts: shared.filter((one) => one.where === name).slice(0, 6) }))
		.filter(({ parts }) => parts.length > 0);
	return panel(
		'share',
		`What the ${int(group.count)} share`,
		h('span.end.mute', group.count > sampled ? `by the newest ${int(sampled)}` : ''),
		found.length === 0
			? h('div.body.soft', 'No value is shared by half of them.')
			: h('div.body.facets', ...found.map(({ word, parts }) => h('div', h('h3', word), h('ul', ...parts.map(part))))),
	);
}

/**
 * The jobs of a group, and how to run them again: first a few, then at a pace.
 * @param {ErrorGroup} group
 * @param {AbortSignal} signal
 */
function replayPanel(group, signal) {
	const filter = { state: 'failed', group: group.id };
	const all = link(['jobs'], filter);
	const dry = h('p.soft', 'Counting …');
	const takes = h('p.soft');
	const problem = h('div');
	let count = group.count;
	const field = (/** @type {string} */ label, /** @type {number | ''} */ value, /** @type {string} */ cls = '') =>
		h('input', {
			class: `input ${cls}`,
			'aria-label': label,
			inputmode: 'numeric',
			autocomplete: 'off',
			value,
			oninput: redraw,
		});
	const canary = field('Canary jobs', count > 5 ? 5 : '');
	const fails = field('Failures allowed', 1);
	const pace = field('Jobs per second', 10);
	const typed = field('Number of jobs', '', 'wide');
	const go1 = h('button.btn.go', { 'data-write': true, onclick: () => void busy(go1, retry) });
	const drop = h(
		'button.btn.danger',
		{ 'data-write': true, onclick: () => void busy(drop, () => act('delete', { filter })) },
		icon('trash', 's'),
		h('span'),
	);
	const sure = h('li', h('h3'), h('div.inline', typed, h('span.mute', 'it is more than 100')));
	function redraw() {
		const first = Number(canary.value) || 0;
		sure.hidden = count <= 100;
		say(sure.querySelector('h3'), `Type ${count} to confirm`);
		say(go1, first > 0 && first < count ? `Start with ${int(first)}` : `Retry ${jobs(count)}`);
		const perSecond = Number(pace.value) || 0;
		const paced = first > 0 && first < count ? count - first : count;
		const after = first > 0 && first < count ? ', once the canary has passed' : '';
		const time = about((paced / perSecond) * 1000);
		say(takes, perSecond > 0 ? `${jobs(paced)} take about ${time}${after}.` : 'All at once.');
		say(drop.lastElementChild, `Delete ${int(count)}`);
		go1.disabled = go1.toggleAttribute(
			'data-off',
			count === 0 || (count > 100 && typed.value.replace(/\D/g, '') !== String(count)),
		);
	}
	const look = async () => {
		try {
			const found = await write('POST', 'bulk', { action: 'retry', filter, dry_run: true });
			count = found.matched;
			const names = found.queues.map(
				(/** @type {{ name: string, count: number }} */ q) => `${int(q.count)} in ${q.name}`,
			);
			const where =
				names.length === 1 ? `, all in ${found.queues[0].name}` : names.length > 0 ? `: ${names.join(', ')}` : '';
			put(dry, h('b', int(count)), ` ${count === 1 ? 'job matches' : 'jobs match'}${where}.`);
			redraw();
		} catch (error) {
			if (!signal.aborted) put(dry, refusal(error, look));
		}
	};
	const retry = async () => {
		if (!ready()) return;
		const [first, rate] = [Number(canary.value) || 0, Number(pace.value) || 0];
		try {
			await start('retry', { filter }, count, {
				...(first > 0 && first < count ? { canary: { count: first, max_failed: Number(fails.value) || 0 } } : {}),
				...(rate > 0 ? { pace: { per_s: rate } } : {}),
			});
			typed.value = '';
			redraw();
		} catch (error) {
			put(problem, refusal(error));
			if (error instanceof Problem && error.kind === 'count-changed') void look();
		}
	};
	const steps = canWrite()
		? [
				h(
					'ol.steps',
					h('li', h('h3', 'Dry run'), dry),
					h('li', h('h3', 'Canary'), h('div.inline', 'first ', canary, ' of which ', fails, ' may fail')),
					h('li', h('h3', 'Pace'), h('div.inline', 'then ', pace, ' jobs per second'), takes),
					sure,
				),
				problem,
				h('div.actions', go1, drop),
				h('p.mute', 'Jobs that fail from now on are not part of it.'),
			]
		: [];
	redraw();
	if (canWrite()) void look();
	return panel(
		'rp',
		canWrite()
			? `Retry ${int(count)} ${group.kind} ${count === 1 ? 'job' : 'jobs'}`
			: `${int(count)} ${group.kind} ${count === 1 ? 'job' : 'jobs'}`,
		h('span.end', h('a.btn.bare.small', { href: '#/errors', 'aria-label': 'Close' }, icon('x', 's'))),
		h(
			'div.body.stack',
			h('pre.code.wrap', { tabindex: 0 }, h('span.hot', ...visible(group.sample))),
			h(
				'p.soft',
				'Newest ',
				...group.newest.flatMap((id) => [h('a.mono', { href: jobLink(id) }, String(id)), ' ']),
				h('a', { href: all }, `all ${int(count)}`),
			),
			...steps,
		),
	);
}
