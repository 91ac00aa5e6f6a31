// The small parts that pages share: states, teeth, meters, notes, copy buttons, busy buttons.

import { Problem, fileLink, root, session } from './api.js';
import { cap, copy, h, icon, ms, plural, put, redraw, s } from './dom.js';
import { whenBack } from './live.js';

/** @param {string} state @param {string} [word] */
export const st = (state, word) => h('span', { class: `st ${state}` }, icon(`st-${state}`, 's'), word ?? cap(state));

/** @param {string} cls @param {string} glyph @param {string} word */
export const pill = (cls, glyph, word) => h('span', { class: `pill ${cls}` }, icon(glyph, 's'), word);

/** @param {number} part of one */
export function meter(part) {
	const width = Math.round(Math.min(1, part) * 1000) / 10;
	return s(
		'svg',
		{ class: part >= 1 ? 'meter full' : 'meter', viewBox: '0 0 100 6', preserveAspectRatio: 'none' },
		s('rect', { width, height: 6 }),
	);
}

/** Attempts as teeth of a ratchet: used ones are filled. @param {JobRow} job */
export function teeth(job) {
	const total = job.max_retries + 1;
	const used = Math.min(job.attempts, total);
	const last = job.state === 'done' ? 'ok' : job.state === 'processing' ? 'now' : 'bad';
	const shown = Math.min(total, 8);
	const paths = Array.from({ length: shown }, (_, at) => {
		const cls = at >= used ? '' : at === used - 1 ? last : 'bad';
		const x = 1 + at * 9;
		return s('path', { class: cls, d: `M${x},10.5 ${x + 7},1.5 ${x + 7},10.5Z` });
	});
	const width = 1 + shown * 9;
	return h(
		'span.teethcell',
		s('svg', { class: 'teeth', width, height: 12, viewBox: `0 0 ${width} 12`, 'aria-hidden': 'true' }, ...paths),
		`${job.attempts}/${total}`,
	);
}

/**
 * A panel with a heading and what stands beside it.
 * @param {string} id
 * @param {Child} title
 * @param {Child} beside
 * @param {Child[]} children
 */
export const panel = (id, title, beside, ...children) =>
	h('section.panel', { 'aria-labelledby': id }, h('header', h('h2', { id }, title), beside), ...children);

/** A page, or a part of one, that only says something. @param {Child[]} children */
export const message = (...children) => h('section.panel', h('div.body.stack.firstbody', ...children));

/** @param {Child} text @param {string} [cls] */
export const th = (text, cls = '') => h('th', { scope: 'col', class: cls || null }, text);

/**
 * A row of figures, each with its title and a line below. They are updated in place, so that links keep the focus.
 * @param {string} label @param {string[]} titles @param {string} [cls]
 */
export function tiles(label, titles, cls = '') {
	const parts = titles.map((title) => {
		const [figure, text] = [h('p.big'), h('p')];
		return { figure, text, node: h('div', h('h2', title), figure, text) };
	});
	const nodes = parts.map((one) => one.node);
	const node = h('section', { class: `panel tiles ${cls}`.trim(), 'aria-label': label }, ...nodes);
	/**
	 * @param {number} at @param {[string, string?]} figure with its unit
	 * @param {string} shown @param {Child} [text] where it is more than `shown`
	 */
	const set = (at, [number, unit = ''], shown, text = shown) => {
		figure(parts[at].figure, number, unit);
		redraw(parts[at].text, shown, () => text);
		return parts[at].text;
	};
	return { node, set };
}

/** @param {Element} node @param {string} number @param {string} unit */
export const figure = (node, number, unit) =>
	redraw(node, `${number} ${unit}`, () => [number, unit ? h('small', unit) : null]);

/** @param {'warn' | 'failed' | ''} cls @param {Child[]} children */
export const note = (cls, ...children) =>
	h('div', { class: `note ${cls}`.trim() }, icon('st-warn'), h('span', ...children));

/** A refusal in the server's words, with a way on. @param {unknown} error @param {() => void} [again] */
export function refusal(error, again) {
	const problem = error instanceof Problem ? error : null;
	const detail = error instanceof Error ? error.message : String(error);
	return h(
		'div.note.warn',
		{ role: 'alert' },
		icon('st-warn'),
		h(
			'span',
			h('b', detail),
			problem?.request ? [h('br'), h('span.mute.mono', `${problem.kind}, request ${problem.request}`)] : null,
		),
		again ? h('button.btn.small', { onclick: again }, 'Try again') : null,
	);
}

/**
 * Says in a place why it could not be read. What it shows already stays while the server is away or fails: the
 * badge tells how old it is. It is read again when the server is back.
 * @param {HTMLElement} place @param {unknown} error @param {() => void} [again]
 */
export function unread(place, error, again) {
	const shows = place.childElementCount > 0 && !place.querySelector('.unread, .bones');
	const refused = error instanceof Problem && error.status >= 400 && error.status < 500;
	place.removeAttribute('aria-busy');
	if (refused || !shows) delete place.dataset.is;
	if (refused || !shows) put(place, h('div.body.firstbody.unread', refusal(error, again)));
	if (again && !refused) whenBack(again);
}

/** @param {() => string} text @param {string} [label] */
export function copyButton(text, label = 'Copy') {
	const word = document.createTextNode(label);
	return h(
		'button.btn.small',
		{
			onclick: async () => {
				word.data = (await copy(text())) ? 'Copied' : 'Press Ctrl+C';
				setTimeout(() => {
					word.data = label;
				}, 1500);
			},
		},
		icon('copy', 's'),
		word,
	);
}

/** A command with a button that copies it. @param {string} command */
export function command(command) {
	return h(
		'div.withcopy',
		h('pre.code', { tabindex: 0 }, command),
		copyButton(() => command),
	);
}

/**
 * Runs an action with its button busy; a second click does nothing.
 * @param {HTMLButtonElement} button
 * @param {() => Promise<unknown>} action
 */
export async function busy(button, action) {
	if (button.getAttribute('aria-busy') === 'true') return;
	button.setAttribute('aria-busy', 'true');
	try {
		await action();
	} finally {
		button.removeAttribute('aria-busy');
	}
}

/**
 * A choice between a few words.
 * @template {string} T
 * @param {string} name @param {[T, string][]} choices @param {T} chosen @param {(value: T) => void} choose
 */
export function segments(name, choices, chosen, choose) {
	return h(
		'fieldset.seg',
		h('legend.vh', name),
		...choices.map(([value, word]) =>
			h(
				'label',
				h('input', {
					type: 'radio',
					name: name.toLowerCase(),
					value,
					checked: value === chosen,
					onchange: () => choose(value),
				}),
				word,
			),
		),
	);
}

/** @type {[HistoryRange, string][]} */
export const RANGES = [
	['10m', '10 min'],
	['1h', '1 h'],
	['24h', '24 h'],
	['7d', '7 d'],
];

/**
 * Without the last step, which is not over yet, and without the time before there was a store.
 * @param {History} past
 */
export function whole(past) {
	const { queued } = past.series;
	const known = queued.findIndex((n) => n !== null);
	// What is left has at least a dozen steps and a minute.
	const least = 1 + Math.max(12, Math.ceil(60_000 / past.step_ms));
	const skip = Math.max(0, Math.min(known < 0 ? 0 : known - 1, queued.length - least));
	for (const [name, values] of Object.entries(past.series))
		Object.assign(past.series, { [name]: values.slice(skip, -1) });
	// Queues have fewer steps for the same time.
	const part = skip / queued.length;
	past.queues = past.queues?.map(({ name, done }) => ({ name, done: done.slice(Math.floor(part * done.length), -1) }));
	past.from = new Date(ms(past.from) + skip * past.step_ms).toISOString();
	return past;
}

/** @param {number} n */
export const jobs = (n) => plural(n, 'job');
/** @param {number} n */
export const jobsWait = (n) => `${jobs(n)} ${n === 1 ? 'waits' : 'wait'}`;

// What a page says before there is anything to show: how to make it happen, as lines that work here.

/** A curl line for this server. @param {string} path @param {string} body */
export function curl(path, body) {
	const token = session.token ? ` \\\n     -H "authorization: Bearer $TOKEN"` : '';
	const data = body.replaceAll("'", "'\\''");
	return `curl -X POST ${root.href}${path} -H 'content-type: application/json'${token} \\\n     -d '${data}'`;
}

/** @param {string} queue */
export const enqueueLine = (queue) =>
	curl(
		'jobs',
		queue === 'default'
			? '{"kind":"email","payload":{"to":"ada@example.org"}}'
			: `{"queue":"${queue}","kind":"email","payload":{"to":"ada@example.org"}}`,
	);
/** @param {string[]} [queues] */
export const pollLine = (queues) =>
	curl(
		'jobs/poll',
		queues
			? `{"worker":"me-1","queues":${JSON.stringify(queues)},"wait_ms":30000}`
			: '{"worker":"me-1","wait_ms":30000}',
	);

function rope() {
	const strands = Array.from({ length: 36 }, (_, at) =>
		s('path', { d: `M${at * 10},5 ${at * 10 + 4},0 ${at * 10 + 10},0 ${at * 10 + 6},5Z`, fill: 'currentColor' }),
	);
	return s('svg', { class: 'rope', viewBox: '0 0 600 5', preserveAspectRatio: 'none' }, ...strands);
}

/** The Overview of a store without a queue. */
export function firstRun() {
	const mark = document.querySelector('.brand .mark')?.cloneNode(true);
	const step = (/** @type {string} */ title, /** @type {string} */ line, /** @type {Child[]} */ ...after) =>
		h('li', h('h3', title), command(line), h('p.mute', ...after));
	return h(
		'div.first',
		h(
			'header',
			mark,
			h('h2', 'No jobs yet'),
			h('p', 'The store is open. This page fills by itself when the first job comes.'),
		),
		h(
			'section.panel',
			{ 'aria-label': 'First steps' },
			h(
				'div.body.stack.firstbody',
				h(
					'ol.steps',
					step(
						'Enqueue a job',
						enqueueLine('default'),
						'It is answered with ',
						h('code', '202'),
						' and ',
						h('code', '"durability":"fsync"'),
						' once it is on disk. Queues are made by their first job.',
					),
					step(
						'Take it, as a worker in any language',
						pollLine(),
						'Then ',
						h('code', 'POST /jobs/1/complete'),
						' with the token of its lease. Without a report it is queued again after 30 s.',
					),
					step(
						'Or let Windlass run it',
						"windlass enqueue --command 'echo hello; exit 3'",
						'A failing one shows the most: retries, the output of the command, and a dead letter.',
					),
				),
			),
			h(
				'footer',
				h('span.waiting', rope(), 'Waiting for the first job'),
				h('span.actions', h('code', 'windlass serve --demo'), fileLink('openapi.json', 'API')),
			),
		),
	);
}

/**
 * A list without jobs.
 * @param {string | undefined} state
 * @param {string} queue
 * @param {boolean} filtered
 * @param {boolean} more
 */
export function noJobs(state, queue, filtered, more) {
	if (filtered)
		return h(
			'div.body.stack.firstbody',
			h('p', h('b', more ? 'Nothing found so far.' : `No ${state ?? ''} job fits these filters.`)),
		);
	if (state === 'failed') return noDeadLetters();
	return h(
		'div.body.stack.firstbody',
		h('p', h('b', `No ${state ?? ''} job.`)),
		h('p.soft', 'Enqueue one:'),
		command(enqueueLine(queue)),
	);
}

export const noDeadLetters = () =>
	h(
		'div.body.stack.firstbody',
		h('p', st('done', 'No dead letters')),
		h('p.soft', 'A job comes here when its attempts are used up. Try it:'),
		command("windlass enqueue --command 'exit 3' --max-retries 0"),
	);

/** A table without workers. */
export function noWorkers() {
	return h(
		'div.body.stack.firstbody',
		h('p', icon('workers'), ' No worker yet. Workers in any language poll for jobs:'),
		command(pollLine()),
		h('p.soft', 'Worker processes for the built-in kinds:'),
		command('windlass worker start --count 2'),
	);
}
