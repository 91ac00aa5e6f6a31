// One job: why it is here, what happened to it, what it is made of.

import { act, missing, pauseButton, ready, since, tell, toast, verbs } from './actions.js';
import { canWrite, fileLink, get, may, text, write } from './api.js';
import {
	SHOWN,
	about,
	awaited,
	cap,
	copy,
	h,
	hms,
	icon,
	instant,
	ms,
	plain,
	plural,
	pretty,
	put,
	say,
	size,
	span,
	visible,
} from './dom.js';
import { now, subscribe } from './live.js';
import { busy, command, copyButton, curl, message, note, panel, pill, pollLine, st, teeth, unread } from './parts.js';
import { go, jobLink, link, queueLink } from './route.js';

/** @typedef {{ reasons: { code: string, detail: string }[], next_change_at: string | null }} Explained */

/** @param {Page} page */
export function mount({ main, path, crumb, keys }) {
	const id = path[1];
	crumb(['Jobs', '#/jobs'], id);
	const control = new AbortController();
	const head = h('div.jobhead');
	const why = h('div');
	const life = h('div');
	const tries = h('div');
	const payload = h('div');
	const result = h('div');
	const facts = h('div');
	put(main, head, h('div.cols.w-side', h('div.stack', why, life, tries), h('div.stack', payload, result, facts)));
	awaited(why, 3);
	awaited(tries, 6);
	awaited(facts, 8);
	/** @type {JobRow | null} */
	let job = null;
	let seen = '';
	let asked = 0;
	let drawn = 0;
	/** Number of other dead letters of its group, once it was read. @type {number | null} */
	let alike = null;
	const load = async () => {
		const mine = (asked += 1);
		try {
			const found = /** @type {JobRow} */ (await get(`jobs/${encodeURIComponent(id)}?fields=head`, control.signal));
			const key = found.updated_at + found.state + (found.progress ? '*' : '');
			const [explained, { attempts }] = await Promise.all([
				get(`jobs/${id}/explain`, control.signal),
				key === seen ? { attempts: null } : get(`jobs/${id}/attempts`, control.signal),
			]);
			// A later answer may have been faster.
			if (mine < drawn) return;
			drawn = mine;
			job = found;
			if (found.error_group && !counting) void others(found.error_group);
			if (!why.contains(document.activeElement)) put(why, whyPanel(found, explained, alike, retry));
			if (key === seen || !attempts) return;
			const first = seen === '';
			seen = key;
			put(head, ...top(found, load));
			put(life, timeline(found, attempts));
			put(tries, attemptList(found, attempts));
			put(facts, factPanel(found));
			if (first) void stored('Payload', `jobs/${id}/payload`, found.payload_bytes, payload, control.signal);
			if (found.result_bytes != null)
				void stored('Result', `jobs/${id}/result`, found.result_bytes, result, control.signal);
		} catch (error) {
			if (control.signal.aborted) return;
			if (missing(error)) return put(main, noJob(id));
			for (const place of [tries, facts]) if (seen === '') put(place);
			unread(why, error, load);
		}
	};
	let counting = false;
	const others = async (/** @type {string} */ group) => {
		counting = true;
		try {
			alike = Math.max(0, (await get(`errors/${group}`, control.signal)).group.count - 1);
			void load();
		} catch {
			// The link to the group is there without its number.
		}
	};
	const retry = () => (job ? act('retry', { ids: [job.id] }, load) : Promise.resolve());
	void load();
	let rev = -1;
	let last = 0;
	const leave = subscribe((snap) => {
		if (!job) return;
		say(head.querySelector('.ago'), ago(job));
		const next = snap.queues.find((q) => q.name === job?.queue)?.rev ?? 0;
		const live = job.state === 'queued' || job.state === 'processing';
		if ((next !== rev || (live && Date.now() - last > 5000)) && Date.now() - last > 1500) {
			rev = next;
			last = Date.now();
			void load();
		}
	});
	const doTo = (/** @type {import('./actions.js').Verb} */ verb) =>
		job && verbs(job.state).includes(verb) && void act(verb, { ids: [job.id] }, load);
	keys(canWrite() ? { r: () => doTo('retry'), c: () => doTo('cancel'), Delete: () => doTo('delete') } : {});
	return () => {
		leave();
		control.abort();
	};
}

/** @param {string} id */
const noJob = (id) =>
	message(
		h('p', h('b', `There is no job ${plain(id)}.`)),
		h('p.soft', 'It was deleted, or is older than keep_done, or was never enqueued.'),
		h('p', h('a', { href: '#/jobs' }, 'All jobs')),
	);

/** @param {JobRow} job */
function ago(job) {
	if (job.view === 'scheduled') return `due in ${about(Math.max(0, ms(job.run_at) - now()))}`;
	if (job.view === 'queued') return `due ${about(since(job.run_at))} ago`;
	if (job.view === 'processing') return `runs for ${span(since(job.started_at ?? job.updated_at))}`;
	return `${job.state} ${about(since(job.finished_at ?? job.updated_at))} ago`;
}

/** @param {JobRow} job @param {() => void} load @returns {Child[]} */
function top(job, load) {
	const tone = { failed: 'failed', done: 'done', processing: 'processing', scheduled: 'scheduled' }[job.view] ?? '';
	const button = (
		/** @type {import('./actions.js').Verb} */ verb,
		/** @type {string} */ glyph,
		/** @type {string} */ cls,
		/** @type {string} */ word,
		/** @type {string} */ key,
	) => {
		const node = h(
			'button',
			{
				class: `btn ${cls}`,
				type: 'button',
				'data-write': true,
				onclick: () => void busy(node, () => act(verb, { ids: [job.id] }, load)),
			},
			icon(glyph),
			word,
			key ? h('kbd', key) : null,
		);
		return node;
	};
	const can = canWrite() ? verbs(job.state) : [];
	const copied = h(
		'button.btn',
		{ 'data-write': true, onclick: () => void busy(copied, again) },
		icon('plus'),
		'Enqueue a copy',
	);
	const again = async () => {
		if (!ready('enqueue')) return;
		try {
			const raw = await text(`jobs/${job.id}/payload`);
			const { queue, kind, priority, max_retries } = job;
			const body = `${JSON.stringify({ queue, kind, priority, max_retries }).slice(0, -1)},"payload":${raw}}`;
			const made = await write('POST', 'jobs', body);
			toast(`Job ${made.job.id} is enqueued`, { label: 'Open', act: () => go(jobLink(made.job.id)) });
		} catch (error) {
			tell(error);
		}
	};
	/** @param {string} what @param {(payload: string) => string} line */
	const copier = (what, line) => {
		const put = async () => {
			const done = await copy(line(await text(`jobs/${job.id}/payload`)));
			toast(done ? `The ${what} line is copied` : 'The browser refused to copy');
		};
		return h('button.btn', { onclick: () => void put().catch(tell) }, icon('terminal'), `Copy as ${what}`);
	};
	const quoted = (/** @type {string} */ payload) => payload.replaceAll("'", "'\\''");
	return [
		pill(tone, `st-${job.view}`, job.view.charAt(0).toUpperCase() + job.view.slice(1)),
		h('h2', h('code', job.kind), ' in ', h('a', { href: queueLink(job.queue) }, job.queue)),
		h('span.mute.ago', ago(job)),
		h(
			'div.actions',
			can.includes('retry') ? button('retry', 'retry', 'go', 'Retry', 'r') : null,
			can.includes('cancel') ? button('cancel', 'st-cancelled', 'danger', 'Cancel', 'c') : null,
			may('enqueue') ? copied : null,
			copier('curl', (payload) => curl('jobs', `{"queue":"${job.queue}","kind":"${job.kind}","payload":${payload}}`)),
			copier('CLI', (payload) => `windlass enqueue --queue ${job.queue} ${job.kind} '${quoted(payload)}'`),
			can.includes('delete') ? button('delete', 'trash', 'danger', 'Delete', '') : null,
		),
	];
}

/** @type {Record<string, string>} */
const TITLES = {
	ready: 'It is due and starts as soon as a worker asks.',
	delayed: 'Not due yet.',
	queue_paused: 'Its queue is paused.',
	no_worker: 'No worker takes it.',
	concurrency_full: 'Its queue is at its concurrency limit.',
	kind_full: 'Its kind is at its concurrency limit in this queue.',
	rate_limited: 'Its queue or kind is at its rate.',
	behind: 'Other jobs are before it.',
	leased: 'A worker is running it.',
	done: 'It is done.',
	cancelled: 'It was cancelled and does not run.',
};

/** The limits of a queue that hold a job. */
const LIMITED = new Set(['concurrency_full', 'kind_full', 'rate_limited']);

/** A sentence with its instants as times of the day. @param {string} text */
const timed = (text) => plain(text).replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (iso) => instant(iso, now()));

/**
 * @param {JobRow} job
 * @param {Explained} explained
 * @param {number | null} alike number of other dead letters with its error
 * @param {() => Promise<unknown>} retry
 */
function whyPanel(job, { reasons, next_change_at: next }, alike, retry) {
	const named = ({ code = '' }) => code === 'queue_paused' || code === 'no_worker' || LIMITED.has(code);
	const first = reasons.find(named) ?? reasons[0];
	const code = first?.code ?? job.state;
	const title =
		code === 'failed'
			? `Given up after ${job.attempts} of ${job.max_retries + 1} attempts. It stays here until it is retried.`
			: (TITLES[code] ?? first?.detail ?? job.state);
	/** @type {Child} */
	let fix = null;
	if (code === 'queue_paused' && canWrite())
		fix = pauseButton({ name: job.queue, paused: true }, icon('play', 's'), 'Resume');
	if (code === 'no_worker') fix = command(pollLine([job.queue]));
	if (LIMITED.has(code)) fix = h('a.btn.small', { href: queueLink(job.queue) }, 'Limits of the queue');
	if (code === 'failed' && canWrite()) {
		const button = h('button.btn.small', { 'data-write': true, onclick: () => void busy(button, retry) }, 'Retry');
		fix = [button, h('span', ` It starts again with ${plural(job.max_retries + 1, 'fresh attempt')}.`)];
	}
	const number = alike === null ? 'jobs' : alike === 0 ? 'no other job' : plural(alike, 'other job');
	const see = job.error_group ? h('a', { href: link(['errors', job.error_group]) }, 'see the group') : null;
	const group = see ? h('li', h('code', 'alike'), h('span', `${number} failed like this: `, see)) : null;
	return h(
		'section',
		{ class: `panel why ${job.state}`, 'aria-labelledby': 'why' },
		h('div.sign', icon(`st-${job.view}`)),
		h(
			'div',
			h('h2', { id: 'why' }, title),
			h('ul', ...reasons.map((r) => h('li', h('code', r.code), h('span', timed(r.detail)))), group),
			next ? h('p.next', `Next change by itself at ${instant(next, now())}.`) : null,
			fix ? h('div.next.actions', fix) : null,
		),
	);
}

/** Runs and waits, each as wide as it took. @param {JobRow} job @param {Attempt[]} attempts */
function timeline(job, attempts) {
	/** @type {{ cls: string, from: number, to: number, n: number, text: string }[]} */
	const runs = attempts.map((a, n) => ({
		cls: a.outcome === 'released' ? 'processing' : 'failed',
		from: ms(a.started_at),
		to: ms(a.ended_at),
		n: n + 1,
		text: a.exit_code !== null ? `exit ${a.exit_code}` : a.outcome.replace('_', ' '),
	}));
	const began = ms(job.started_at);
	if (began && (job.state === 'done' || job.state === 'processing') && !runs.some((r) => r.from === began)) {
		runs.push({
			cls: job.state,
			from: began,
			to: job.finished_at ? ms(job.finished_at) : now(),
			n: runs.length + 1,
			text: job.state === 'done' ? 'done' : 'running',
		});
	}
	const start = Math.min(ms(job.run_at), runs[0]?.from ?? Infinity);
	/** @type {HTMLElement[]} */
	const items = [];
	/** @type {number[]} */
	const widths = [];
	let at = start;
	for (const run of runs) {
		if (run.from - at > 0) {
			items.push(
				h('li.wait', { title: `waited ${span(run.from - at)}` }, h('span.vh', `waited ${span(run.from - at)}`)),
			);
			widths.push(run.from - at);
		}
		items.push(h('li', { class: `run ${run.cls}` }, h('b', String(run.n)), ` ${run.text}, ${span(run.to - run.from)}`));
		widths.push(Math.max(1, run.to - run.from));
		at = run.to;
	}
	const end = job.finished_at ? ms(job.finished_at) : now();
	const bar = h('ol.life', ...items);
	const due = ms(job.run_at) <= start;
	const from = due ? 'due' : 'the first attempt';
	const late = runs.length > 0 ? runs[0].from - (due ? start : ms(job.created_at)) : 0;
	const how = due ? `, started ${span(late)} later` : `, ${span(late)} after it was enqueued`;
	const delay = runs.length > 0 && late >= 0 ? how : '';
	const sum = widths.reduce((a, b) => a + b, 0);
	// Nothing is drawn so small that it cannot be seen; the numbers of a few runs are readable.
	const room = runs.length <= 4 ? 'min(124px, 22%)' : runs.length <= 6 ? '28px' : '3px';
	const least = (/** @type {number} */ at) => (items[at].matches('.run') ? room : '3px');
	bar.style.gridTemplateColumns = widths
		.map((w, at) => `minmax(${least(at)}, ${(100 * Math.max(0.02, w / sum)).toFixed(2)}fr)`)
		.join(' ');
	return panel(
		'life',
		'Timeline',
		h('span.end.mute', job.finished_at ? `${span(Math.max(0, end - start))} from ${from} to ${job.state}` : null),
		h(
			'div.body',
			items.length > 0 ? bar : h('p.mute', 'It has not run yet.'),
			h(
				'p.ends',
				h('span', h('b', hms(start)), due ? ' due' : ' first attempt', delay),
				job.finished_at
					? h('span', h('b', hms(end)), ` ${job.state === 'failed' ? 'failed for good' : job.state}`)
					: null,
			),
		),
	);
}

/** @param {JobRow} job @param {Attempt[]} attempts */
function attemptList(job, attempts) {
	const list = attempts.map((a, n) => ({ a, n: n + 1 })).reverse();
	return panel(
		'atts',
		'Attempts',
		[teeth(job), h('span.end.mute', list.length > 0 ? 'that did not complete, newest first' : 'none has failed')],
		...list.map(({ a, n }, at) =>
			h(
				'details.attempt',
				{ open: at === 0 },
				h(
					'summary',
					icon('chev', 's tw'),
					h('b', String(n)),
					h(
						'span',
						st(a.outcome === 'released' ? 'cancelled' : 'failed', cap(a.outcome.replace('_', ' '))),
						a.exit_code !== null ? h('span.soft', ` exit code ${a.exit_code}`) : null,
					),
					h('span.mute.mono.w-m', `${a.worker}, epoch ${a.epoch}`),
					h('span.mute', `${hms(ms(a.started_at))}, ran ${span(ms(a.ended_at) - ms(a.started_at))}`),
				),
				h(
					'div.out',
					// The error of a command only repeats its exit code and the end of stderr.
					a.error && !a.stderr ? output('error', a.error, false) : null,
					a.stderr ? output('stderr', a.stderr, a.truncated) : null,
					a.stdout ? output('stdout', a.stdout, a.truncated) : null,
					a.error || a.stderr || a.stdout ? null : h('p.mute', 'No output.'),
				),
			),
		),
	);
}

/** @param {string} name @param {string} said @param {boolean} cut */
function output(name, said, cut) {
	const lines = said.replace(/\n$/, '').split('\n');
	const bad = lines.findLastIndex((l) => /error|fatal|panic|exception|refused|timed? ?out/i.test(l));
	return h(
		'div',
		h(
			'p.outhead',
			h('b', name),
			h(
				'span',
				`${cut ? 'the end of more, ' : ''}${lines.length} ${lines.length === 1 ? 'line' : 'lines'}, ${size(said.length)}`,
			),
		),
		h(
			'pre.code.wrap',
			{ tabindex: 0 },
			cut ? h('span.p', '… cut here\n') : null,
			...lines
				.slice(0, 2000)
				.flatMap((l, n) => [
					name !== 'stdout' && n === bad ? h('span.hot', ...visible(l)) : visible(l),
					n < lines.length - 1 ? '\n' : '',
				])
				.flat(),
		),
	);
}

/**
 * A stored document, as it is.
 * @param {string} title
 * @param {string} path
 * @param {number} bytes
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 */
async function stored(title, path, bytes, place, signal) {
	const name = title.toLowerCase();
	const download = fileLink(path, 'Download', `${path.replaceAll('/', '-')}.json`);
	try {
		const raw = await text(path, signal);
		const more =
			raw.length > SHOWN ? note('', `Shown are the first ${size(SHOWN)} of ${size(bytes)}. `, download) : null;
		put(
			place,
			h(
				'section.panel',
				{ 'aria-labelledby': name },
				h(
					'header',
					h('h2', { id: name }, title),
					h(
						'span.end.mute',
						size(bytes),
						copyButton(() => raw),
					),
				),
				h('div.body.stack', h('pre.code.wrap.stored', { tabindex: 0 }, pretty(raw)), more),
			),
		);
	} catch (error) {
		if (!signal.aborted) unread(place, error, () => void stored(title, path, bytes, place, signal));
	}
}

/** @param {JobRow} job */
function factPanel(job) {
	const r = job.retry;
	const policy = r
		? `${r.strategy}, ${span(r.initial_ms)}${r.factor ? ` × ${r.factor}` : ''}, ` +
			`cap ${about(r.cap_ms)}, ± ${Math.round(r.jitter * 100)} %`
		: '';
	/** @type {[string, Child | null][]} */
	const rows = [
		['Created', instant(job.created_at, now())],
		['Due', instant(job.run_at, now())],
		['Finished', job.finished_at ? instant(job.finished_at, now()) : null],
		['Worker', job.worker ? h('code', job.worker) : null],
		['Lease ends', job.lease_until ? instant(job.lease_until, now()) : null],
		['Progress', job.progress != null ? h('code', plain(JSON.stringify(job.progress))) : null],
		['Priority', String(job.priority)],
		['Timeout', job.timeout_ms ? `${about(job.timeout_ms)} per attempt` : 'off'],
		['Visibility timeout', about(job.visibility_timeout_ms)],
		['Retry', policy],
		['Generation', String(job.generation)],
		['Idempotency key', job.idempotency_key ? h('code', plain(job.idempotency_key)) : null],
		['Result', job.result_bytes == null ? h('span.mute', 'none') : size(job.result_bytes)],
	];
	return panel(
		'fx',
		'Facts',
		null,
		h('div.body', h('dl.facts', ...rows.filter(([, v]) => v !== null).flatMap(([k, v]) => [h('dt', k), h('dd', v)]))),
		h('footer', h('code', `windlass show ${job.id}`), h('code.w-l', `windlass explain ${job.id}`)),
	);
}
