// The start, which page is shown, and what is around every page: navigation, badge, banner, search,
// shortcuts.

import { dialog, isOpen, showBulks } from './actions.js';
import { begin as beginAuth, canWrite, root, session, who } from './api.js';
import { mount as bulk } from './bulk.js';
import {
	about,
	byId,
	h,
	hms,
	icon,
	int,
	ms,
	nextTheme,
	plain,
	plural,
	prefer,
	prefs,
	put,
	say,
	showTheme,
	size,
} from './dom.js';
import { badge, begin as beginLive, now, restart, state, subscribe, togglePause, watch, whenBack } from './live.js';
import { mount as errors } from './page_errors.js';
import { mount as job } from './page_job.js';
import { mount as jobs } from './page_jobs.js';
import { mount as overview } from './page_overview.js';
import { mount as queue } from './page_queue.js';
import { mount as queues } from './page_queues.js';
import { mount as settings } from './page_settings.js';
import { mount as workers } from './page_workers.js';
import { message, refusal, st } from './parts.js';
import {
	STATES,
	WORDS,
	begin as beginRoute,
	chip,
	go,
	here,
	jobLink,
	link,
	parse,
	restore,
	rewrite,
	written,
} from './route.js';

/** @typedef {(page: Page) => () => void} Mount */
/** @typedef {import('./route.js').Route} Route */

/**
 * Pages by the first part of the path: without and with a name. Schedules come here.
 * @type {Record<string, { title: string, all?: Mount, one?: Mount }>}
 */
const PAGES = {
	overview: { title: 'Overview', all: overview },
	jobs: { title: 'Jobs', all: jobs, one: job },
	errors: { title: 'Errors', all: errors, one: errors },
	bulk: { title: 'Bulk action', one: bulk },
	queues: { title: 'Queues', all: queues, one: queue },
	workers: { title: 'Workers', all: workers },
	settings: { title: 'Settings', all: settings },
};

const RANGE = /^(10m|1h|24h|7d)$/;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const GROUPS = { by: /^(jobs|last|new)$/, queue: NAME, kind: NAME };
/**
 * Parameters that pages understand; the list of jobs knows its own.
 * @type {Record<string, Record<string, RegExp>>}
 */
const KNOWN = {
	overview: { range: RANGE },
	queues: { q: /^[^]{0,200}$/ },
	'queues/': { range: RANGE },
	errors: GROUPS,
	'errors/': GROUPS,
};

/** @param {string} place @param {string} name @param {string} value */
function understood(place, name, value) {
	const known = Object.hasOwn(KNOWN, place) ? KNOWN[place] : {};
	return Object.hasOwn(known, name) && known[name].test(value);
}

/**
 * Takes what is not understood out of a query, and shows it as chips that can be removed.
 * @param {string} place
 * @param {Route} route
 */
function odd(place, { path, query }) {
	const known = new URLSearchParams(query);
	const rest = place === 'jobs' ? [] : [...query].filter(([name, value]) => !understood(place, name, value));
	for (const [name] of rest) known.delete(name);
	const remove = (/** @type {string} */ gone) => () => {
		const pairs = [...query].filter(([name]) => name !== gone);
		go(link(path, Object.fromEntries(pairs)));
	};
	const chips = rest.map(([name, value]) => chip(plain(name), plain(value), false, remove(name)));
	put(byId('odd'), chips.length > 0 ? h('div.chips', { role: 'group', 'aria-label': 'Filters' }, ...chips) : null);
	return known;
}

/** @type {() => void} */
let unmount = () => {};
let unrestore = () => {};
let first = true;

function show() {
	unmount();
	unrestore();
	unmount = () => {};
	pageKeys({});
	const route = here();
	const { path } = route;
	const name = path[0] ?? 'overview';
	const page = Object.hasOwn(PAGES, name) && path.length <= 2 ? PAGES[name] : undefined;
	const mount = path.length === 2 ? page?.one : page?.all;
	const main = byId('main');
	put(main);
	if (!page || !mount) {
		put(byId('odd'));
		crumb('', 'Not found');
		put(
			main,
			message(
				h('p', h('b', 'There is no such page: '), h('code', plain(location.hash))),
				h('p', h('a', { href: '#/' }, 'Overview')),
			),
		);
		return;
	}
	crumb(name, page.title);
	const query = odd(path.length === 2 ? `${name}/` : name, route);
	unmount = mount({
		main,
		path,
		query,
		keys: pageKeys,
		again: show,
		crumb: (parent, title) => crumb(name, plain(title), parent),
		address: (change) => {
			const now = here();
			rewrite(link(now.path, { ...Object.fromEntries(now.query), ...change }));
		},
	});
	if (!first) byId('crumb').querySelector('h1')?.focus({ preventScroll: true });
	unrestore = restore(main);
	first = false;
	document.documentElement.dataset.page = mount === job ? 'job' : name;
}

async function begin() {
	showTheme();
	beginShell();
	beginKeys();
	try {
		await beginAuth(() => {
			showWho();
			restart();
			show();
		});
	} catch (error) {
		// After a login the page goes on by itself.
		if (!session.locked) whenBack(() => location.reload());
		put(
			byId('main'),
			refusal(error, () => location.reload()),
		);
	}
	showWho();
	beginRoute(show);
	show();
	beginLive();
}

/** The build that this page was made by. */
const BUILD = new URL(import.meta.url).pathname.split('/').at(-2);

/** @param {string} page @param {string} title @param {[string, string] | null} [parent] */
function crumb(page, title, parent = null) {
	document.title = `${title} · Windlass`;
	put(
		byId('crumb'),
		parent ? [h('a', { href: parent[1] }, parent[0]), h('span', '/')] : null,
		h('h1', { tabindex: -1 }, title),
	);
	for (const a of document.querySelectorAll('[data-nav]')) {
		if (/** @type {HTMLElement} */ (a).dataset.nav === page) a.setAttribute('aria-current', 'page');
		else a.removeAttribute('aria-current');
	}
}

function showWho() {
	const me = who();
	const name = me.open ? 'open' : (me.name ?? '');
	const what = me.open ? 'this machine only' : canWrite() ? 'admin' : 'Read only';
	put(byId('who'), icon('lock'), h('b', name), ` ${what}`);
	document.documentElement.dataset.role = canWrite() ? 'admin' : 'reader';
}

function showBadge() {
	const { mode, age } = badge();
	const button = byId('live');
	const sec = Math.round(age / 1000);
	const [word, more] = {
		connecting: ['Connecting', ''],
		live: ['Live', ''],
		paused: ['Paused', ''],
		stale: ['Stale', state.snap ? `${sec} s` : ''],
		polling: ['Polling', '5 s'],
	}[mode];
	const cls = `live ${mode === 'polling' ? 'poll' : mode === 'live' ? '' : mode}`.trim();
	if (button.className !== cls) button.className = cls;
	if (button.dataset.is !== word + more) {
		button.dataset.is = word + more;
		put(button, h('b', word), more ? ` ${more}` : null);
		button.setAttribute('aria-label', `Updates: ${word} ${more}. ${mode === 'paused' ? 'Go on' : 'Pause'}`);
	}
	const gone = mode === 'stale';
	for (const node of document.querySelectorAll('[data-write]'))
		if (node instanceof HTMLButtonElement) node.disabled = gone || node.hasAttribute('data-off');
	document.documentElement.classList.toggle('old', gone && age > 15_000);
	banner(gone && (age > 15_000 || !state.snap) ? 'gone' : state.snap && state.snap.build !== BUILD ? 'build' : '');
}

/** @param {string} what */
function banner(what) {
	const place = byId('banner');
	if (place.dataset.is === what) return;
	place.dataset.is = what;
	if (what === 'gone') {
		put(
			place,
			h(
				'div.note.failed',
				{ role: 'alert' },
				icon('st-warn'),
				h(
					'span',
					h('b', `No answer from ${root.host}${state.snap ? ` since ${hms(ms(state.snap.at))}` : ''}.`),
					' The figures shown are from then. Acknowledged jobs are on disk.',
				),
			),
		);
	} else if (what === 'build') {
		put(
			place,
			h(
				'div.note',
				icon('st-warn'),
				h('span', h('b', 'New version.'), ' The server was replaced by another build.'),
				h('button.btn.small', { onclick: () => location.reload() }, 'Reload'),
			),
		);
	} else put(place);
}

/** @param {Snapshot} snap */
function showFoot(snap) {
	const good = snap.health === 'good';
	const foot = byId('foot');
	const text = `${good}${snap.store.kind} · ${size(snap.store.bytes)} · ${about(now() - ms(snap.started_at))}`;
	if (foot.dataset.is !== text) {
		foot.dataset.is = text;
		put(
			foot,
			h('b', good ? st('done', 'Store is good') : st('failed', 'Store is unhealthy')),
			`${snap.store.kind} · ${size(snap.store.bytes)} · ${snap.store.durability}`,
			h('br'),
			`${snap.version} on ${snap.host} · up ${about(now() - ms(snap.started_at))}`,
		);
	}
	const env = byId('env');
	const label = snap.label ?? (who().open ? 'local' : '');
	env.hidden = label === '';
	say(env, label);
	say(document.querySelector('[data-count=queues]'), snap.queues_total ? int(snap.queues_total) : '');
	for (const node of document.querySelectorAll('[data-count=errors]'))
		say(node, snap.errors?.groups ? int(snap.errors.groups) : '');
	say(document.querySelector('[data-count=workers]'), snap.workers.alive ? int(snap.workers.alive) : '');
	document.querySelector('[data-count=workers]')?.classList.toggle('hot', snap.workers.stale > 0);
	byId('live').title = `${plural(snap.counts.processing, 'job')} running. Press . to pause updates`;
}

function beginShell() {
	byId('live').addEventListener('click', togglePause);
	byId('theme').addEventListener('click', () => {
		prefer({ theme: nextTheme() });
		byId('theme').setAttribute('aria-label', `Theme: ${prefs.theme === 'system' ? 'follow the system' : prefs.theme}`);
	});
	const form = byId('search');
	const input = /** @type {HTMLInputElement} */ (form.querySelector('input'));
	byId('find').addEventListener('click', () => {
		form.classList.toggle('shown');
		input.focus();
	});
	document.addEventListener('ask', () => {
		form.classList.add('shown');
		if (input.value === '') input.value = written(here().query);
		input.focus();
	});
	// Suggestions come from what is known anyway, never from a search.
	input.addEventListener('focus', () =>
		put(
			byId('words'),
			...[
				...WORDS.map((word) => (word.includes(':') ? word : `${word}:`)),
				...STATES.map((name) => `state:${name}`),
				...(state.snap?.queues ?? []).slice(0, 50).map((q) => `queue:${q.name}`),
			].map((value) => h('option', { value })),
		),
	);
	form.addEventListener('submit', (event) => {
		event.preventDefault();
		const { job, query } = parse(input.value);
		if (job === null && Object.keys(query).length === 0) return;
		input.value = '';
		input.blur();
		form.classList.remove('shown');
		go(job === null ? link(['jobs'], query) : jobLink(job));
	});
	watch(showBadge);
	subscribe(showFoot);
	subscribe((snap) => canWrite() && showBulks(snap));
}

// Keyboard shortcuts: of every page, and of the one that is shown. Ignored in fields and with modifiers.

/** @type {Record<string, () => unknown>} */
let ofPage = {};
let chord = false;

/** @type {Record<string, string>} */
const PLACES = { o: '#/', j: '#/jobs', e: '#/errors', q: '#/queues', w: '#/workers', ',': '#/settings' };

/** @type {[string, string][]} */
const HELP = [
	['/', 'search'],
	['g then o j e q w ,', 'overview, jobs, errors, queues, workers, settings'],
	['j k', 'next and previous row'],
	['Enter', 'open'],
	['x, Shift x, a', 'select a row, a range, the page'],
	['r c Delete', 'retry, cancel, delete'],
	['p', 'pause or resume the queue'],
	['n', 'show newer jobs'],
	['[ ]', 'newer and older page'],
	['.', 'pause updates'],
	['t', 'theme'],
	['Esc', 'close, then clear'],
];

/** @param {Record<string, () => unknown>} keys */
function pageKeys(keys) {
	ofPage = keys;
}

function help() {
	const close = h('button.btn', { onclick: () => node.close() }, 'Close');
	const node = dialog(
		'Keyboard',
		[h('dl.facts.keys', ...HELP.flatMap(([key, what]) => [h('dt', h('kbd', key)), h('dd', what)]))],
		[close],
	);
}

/** Moves the focus to the link of the next row of a table, or the previous one. @param {number} by */
function step(by) {
	const rows = [...byId('main').querySelectorAll('tbody tr:has(a)')].filter((row) => row.checkVisibility());
	const at = rows.findIndex((row) => row.contains(document.activeElement));
	rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + by))]?.querySelector('a')?.focus();
}

/** @type {Record<string, () => unknown>} */
const ofAll = {
	'/': () => byId('search').querySelector('input')?.focus(),
	'.': togglePause,
	t: () => prefer({ theme: nextTheme() }),
	'?': help,
	j: () => step(1),
	k: () => step(-1),
	g: () => {
		chord = true;
		setTimeout(() => {
			chord = false;
		}, 1200);
	},
};

function beginKeys() {
	document.addEventListener('keydown', (event) => {
		const at = event.target;
		if (!prefs.keys || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isOpen()) return;
		if (at instanceof HTMLInputElement && at.type !== 'checkbox' && at.type !== 'radio') {
			if (event.key === 'Escape') at.blur();
			return;
		}
		if (at instanceof HTMLSelectElement || at instanceof HTMLTextAreaElement) return;
		if (event.key === 'Enter' && at instanceof Element && at.closest('a, button, summary')) return;
		const place = chord ? PLACES[event.key] : undefined;
		chord = false;
		const act = place ? () => go(place) : (ofPage[event.key] ?? ofAll[event.key]);
		// A key that is held down moves on, and does nothing else twice.
		if (!act || (event.repeat && event.key !== 'j' && event.key !== 'k')) return;
		event.preventDefault();
		act();
	});
}

void begin();
