// The store, the settings of the server, of this browser, and of a queue.

import { dialog, ready, tell, toast } from './actions.js';
import { Problem, canWrite, change, fileLink, forget, get, kept, send, who } from './api.js';
import { about, awaited, bytes, cap, h, icon, int, ms, plain, prefer, prefs, put, short, size, span } from './dom.js';
import { now, subscribe } from './live.js';
import { busy, note, panel, refusal, segments, th, tiles, unread } from './parts.js';

/** @param {Page} page */
export function mount({ main, again }) {
	const control = new AbortController();
	const store = tiles('Store and server', ['Store', 'Size', 'Free on disk', 'Commit', 'Jobs kept', 'Windlass']);
	const list = h('section.panel', { 'aria-label': 'Settings' });
	const me = who();
	put(
		main,
		store.node,
		h(
			'div.cols.w-side',
			list,
			h(
				'div.stack',
				panel(
					'me',
					'You',
					h('span.end', me.open ? null : h('button.btn.small', { onclick: forget }, 'Forget token')),
					h(
						'div.body',
						h(
							'dl.facts',
							h('dt', 'Token'),
							h('dd', me.name ?? 'none needed'),
							h('dt', 'Scopes'),
							h('dd', me.scopes.join(', ')),
							me.open ? null : [h('dt', 'Kept in'), h('dd', kept() ? 'this tab, until it is closed' : 'memory only')],
						),
					),
				),
				h(
					'section.panel',
					{ 'aria-labelledby': 'look' },
					h('header', h('h2', { id: 'look' }, 'This browser')),
					h(
						'div.body.form',
						h(
							'div.inline',
							h('span', 'Theme'),
							segments(
								'Theme',
								/** @type {['system' | 'light' | 'dark', string][]} */ ([
									['system', 'system'],
									['light', 'light'],
									['dark', 'dark'],
								]),
								prefs.theme,
								(theme) => prefer({ theme }),
							),
						),
						h(
							'div.inline',
							h('span', 'Times'),
							segments(
								'Times',
								[
									['utc', 'UTC'],
									['local', 'local'],
								],
								prefs.utc ? 'utc' : 'local',
								(zone) => {
									prefer({ utc: zone === 'utc' });
									again();
								},
							),
						),
						h(
							'label.inline',
							h('input', {
								type: 'checkbox',
								checked: prefs.keys,
								onchange: (/** @type {Event} */ e) =>
									prefer({ keys: /** @type {HTMLInputElement} */ (e.target).checked }),
							}),
							' Keyboard shortcuts ',
							h('kbd', '?'),
						),
					),
				),
				panel(
					'chk',
					'Check and copy',
					null,
					h(
						'div.body.stack',
						h('p.soft', 'A check reads the whole store, so it is not a button:'),
						h('pre.code.wrap', { tabindex: 0 }, 'windlass doctor\nwindlass backup /var/backups/windlass.db'),
					),
					h('footer', fileLink('openapi.json', 'openapi.json'), fileLink('metrics', 'metrics')),
				),
			),
		),
	);
	awaited(store.node, 0);
	awaited(list, 16);
	const leave = subscribe((snap) => {
		const { store: disk, health, counts } = snap;
		store.node.removeAttribute('aria-busy');
		const good = health === 'good';
		const stateText = good ? `${disk.kind}, ${disk.durability} on every ack` : health;
		const text = store.set(0, [good ? 'Good' : 'Unhealthy'], stateText);
		text.classList.toggle('is-warn', !good);
		text.title = health;
		store.set(1, bytes(disk.bytes), disk.wal_bytes ? `and ${size(disk.wal_bytes)} of WAL` : disk.kind);
		store.set(2, disk.free_bytes === null ? ['—'] : bytes(disk.free_bytes), 'refuses jobs below 32 MiB');
		store.set(3, [disk.commit_p50_ms.toPrecision(2), 'ms'], `p95 ${disk.commit_p95_ms.toPrecision(2)} ms`);
		const sum = Object.values(counts).reduce((a, b) => a + b, 0);
		store.set(4, short(sum), `${int(counts.done)} done, ${int(counts.failed)} failed`);
		store.set(5, [snap.version], `on ${snap.host}, up ${about(now() - ms(snap.started_at))}`);
	});
	const load = async () => {
		try {
			const { settings } = await get('settings', control.signal);
			put(
				list,
				h(
					'header',
					h('h2', 'Settings'),
					h('span.mute', int(settings.length)),
					h('span.end.mute', 'flag before variable before store before default'),
				),
				h(
					'div.scroll',
					h(
						'table',
						h(
							'thead',
							h(
								'tr',
								th('Name', ''),
								th('What it does', 'w-m'),
								th('Value', 'num'),
								th('Comes from', 'w-m'),
								canWrite() ? th(h('span.vh', 'Actions'), 'w-m') : null,
							),
						),
						h('tbody', ...settings.map(row)),
					),
				),
			);
		} catch (error) {
			if (!control.signal.aborted) unread(list, error, load);
		}
	};
	const row = (/** @type {Setting} */ one) => {
		const fixed = one.origin === 'flag' || one.origin === 'environment';
		const plainly = one.origin === 'default';
		const button = h(
			'button.btn.small',
			{
				'data-write': true,
				'aria-label': `${one.origin === 'store' ? 'Take back' : 'Change'} ${one.name}`,
				onclick: () => void busy(button, () => begin(one.name, one.origin === 'store').catch(tell)),
			},
			one.origin === 'store' ? 'Take back' : 'Change',
		);
		return h(
			'tr',
			h('th', { scope: 'row' }, h('code', one.name)),
			h('td.w-m.soft.cut.wide', { title: one.help }, one.help),
			h('td', { class: plainly ? 'num' : 'num strong' }, one.value),
			h('td', { class: plainly ? 'mute w-m' : 'strong w-m' }, one.origin === 'environment' ? 'variable' : one.origin),
			canWrite() ? h('td.num.w-m', fixed ? h('span.mute', 'fixed at start') : button) : null,
		);
	};
	/**
	 * Writes a setting unless another user has written since it was shown.
	 * @param {Setting} one @param {string | null} value null takes it back @param {string} etag of what was shown
	 */
	const set = async (one, value, etag) => {
		if (!ready()) return;
		const path = `settings/${one.name}`;
		const match = { 'if-match': etag };
		const [method, body] = value === null ? ['DELETE'] : ['PUT', { value }];
		const done = await change(method, path, body, match);
		// What is taken back is answered without a tag.
		const written = tag(done) || tag(await send(path));
		toast(`${one.name} is ${value ?? 'the default again'}`, {
			label: 'Undo',
			act: () => void set(one, one.stored, written).catch(tell),
		});
		await load();
	};
	/** Reads a setting, and changes what was read. @param {string} name @param {boolean} back to take it back */
	const begin = async (name, back) => {
		const response = await send(`settings/${name}`, { signal: control.signal });
		const one = /** @type {Setting} */ (await response.json());
		if (back) await set(one, null, tag(response));
		else edit(one, tag(response));
	};
	const edit = (/** @type {Setting} */ one, /** @type {string} */ etag) => {
		const input = h('input', { id: 'value', class: 'input', value: one.value, autocomplete: 'off' });
		const problem = h('div');
		const save = h(
			'button.btn.go',
			{
				'data-write': true,
				onclick: () =>
					void busy(save, async () => {
						try {
							await set(one, input.value.trim(), etag);
							node.close();
						} catch (error) {
							put(problem, refusal(error));
						}
					}),
			},
			'Save',
		);
		const node = dialog(
			`Change ${one.name}`,
			[
				h('p.soft', `${cap(one.help)}.`),
				h('div.field', h('label', { for: 'value' }, 'Value', h('small', one.allowed)), input),
				h(
					'p.mute',
					`It is kept in the store and holds for every process within seconds. The default is ${one.default}.`,
				),
				problem,
			],
			[h('button.btn', { onclick: () => node.close() }, 'Leave it'), save],
		);
		input.select();
	};
	void load();
	return () => {
		leave();
		control.abort();
	};
}

// The limits of a queue: a form that shows what would change before it is saved, and both values if
// another user has changed them since they were read.

/** @typedef {{ name: string, label: string, unit?: string, fallback: string }} Field */
/** @type {Field[]} */
const FIELDS = [
	{ name: 'concurrency', label: 'Running at once', fallback: 'no limit' },
	{ name: 'max_queued', label: 'Waiting at most', fallback: 'no limit' },
	{ name: 'rate_limit', label: 'Starts at most', fallback: 'no limit' },
	{ name: 'rate_per_ms', label: 'within', unit: 'ms', fallback: '1000' },
	{ name: 'rate_burst', label: 'of these at once', fallback: 'one second’s' },
	{ name: 'aging_ms', label: 'Aging', unit: 'ms', fallback: 'off' },
	{ name: 'timeout_ms', label: 'Timeout', unit: 'ms', fallback: 'default' },
	{ name: 'visibility_timeout_ms', label: 'Visibility timeout', unit: 'ms', fallback: 'default' },
	{ name: 'max_retries', label: 'Retries', fallback: 'default' },
	{ name: 'strategy', label: 'Strategy', fallback: 'default' },
	{ name: 'initial_ms', label: 'First wait', unit: 'ms', fallback: 'default' },
	{ name: 'factor', label: 'Factor', fallback: 'default' },
	{ name: 'cap_ms', label: 'Longest wait', unit: 'ms', fallback: 'default' },
	{ name: 'jitter', label: 'Jitter', unit: '± %', fallback: 'default' },
];

/** @typedef {Record<string, string>} Values */

/** @param {QueueSettings} set @returns {Values} */
function values(set) {
	const text = (/** @type {number | null | undefined} */ n) => (n === null || n === undefined ? '' : String(n));
	const r = set.retry;
	return {
		concurrency: text(set.concurrency),
		max_queued: text(set.max_queued),
		rate_limit: text(set.rate?.limit),
		rate_per_ms: text(set.rate?.per_ms),
		rate_burst: text(set.rate?.burst),
		aging_ms: text(set.aging_ms),
		// Not a field of the form: it is sent back as it was read.
		kinds: set.kinds ? JSON.stringify(set.kinds) : '',
		timeout_ms: text(set.timeout_ms),
		visibility_timeout_ms: text(set.visibility_timeout_ms),
		max_retries: text(set.max_retries),
		strategy: r?.strategy ?? '',
		initial_ms: text(r?.initial_ms),
		factor: text(r?.factor),
		cap_ms: text(r?.cap_ms),
		jitter: r ? text(Math.round(r.jitter * 1000) / 10) : '',
	};
}

/** @param {Values} v */
function body(v) {
	const n = (/** @type {string} */ name) => (v[name] === '' ? null : Number(v[name]));
	const retry =
		v.strategy === ''
			? null
			: {
					strategy: v.strategy,
					...(v.initial_ms ? { initial_ms: n('initial_ms') } : {}),
					...(v.strategy === 'exponential' && v.factor ? { factor: n('factor') } : {}),
					...(v.cap_ms ? { cap_ms: n('cap_ms') } : {}),
					...(v.jitter === '' ? {} : { jitter: Number(v.jitter) / 100 }),
				};
	const rate =
		v.rate_limit + v.rate_per_ms + v.rate_burst === ''
			? null
			: { limit: n('rate_limit'), per_ms: n('rate_per_ms') ?? 1000, burst: n('rate_burst') };
	return {
		concurrency: n('concurrency'),
		max_queued: n('max_queued'),
		rate,
		aging_ms: n('aging_ms'),
		kinds: v.kinds ? JSON.parse(v.kinds) : null,
		timeout_ms: n('timeout_ms'),
		visibility_timeout_ms: n('visibility_timeout_ms'),
		max_retries: n('max_retries'),
		retry,
	};
}

/** @param {Field} f @param {string} v */
const shownAs = (f, v) => (v === '' ? f.fallback : /^\d+$/.test(v) ? int(Number(v)) : v);

/** The limits as text, for who may not change them. @param {HTMLElement} place @param {Values} v */
function readOnly(place, v) {
	const unit = (/** @type {Field} */ f) => (v[f.name] && f.unit ? ` ${f.unit}` : '');
	const facts = FIELDS.flatMap((f) => [h('dt', f.label), h('dd', shownAs(f, v[f.name]), unit(f))]);
	put(place, h('header', h('h2', 'Limits')), h('div.body.stack', h('dl.facts', ...facts), ofKinds(v)));
}

/** The limits of single kinds, which the command line sets. @param {Values} v */
function ofKinds(v) {
	if (!v.kinds) return null;
	/** @type {Record<string, KindLimits>} */
	const kinds = JSON.parse(v.kinds);
	const words = (/** @type {KindLimits} */ { concurrency, rate }) =>
		[
			concurrency === 0 ? 'paused' : concurrency === null ? '' : `${int(concurrency)} running`,
			rate ? `${int(rate.limit)} per ${span(rate.per_ms)}` : '',
		]
			.filter(Boolean)
			.join(', ');
	const facts = Object.entries(kinds).flatMap(([kind, limits]) => [
		h('dt', h('code', plain(kind))),
		h('dd', words(limits)),
	]);
	return h('dl.facts', { 'aria-label': 'Limits of single kinds' }, ...facts);
}

/** The tag of the settings that an answer shows. @param {Response} response */
const tag = (response) => response.headers.get('etag') ?? '';

/** A length of time as settings write it, in ms: `1s`, `1m30s`, `off`. @param {string} text */
function lengthOf(text) {
	/** @type {Record<string, number>} */
	const units = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 };
	return [...text.matchAll(/([\d.]+)(ms|s|m|h|d)/g)].reduce((sum, [, n, unit]) => sum + Number(n) * units[unit], 0);
}

/** The waits between attempts, in words. @param {Values} v @param {(id: string) => string} server its own settings */
function preview(v, server) {
	const retries = Number(v.max_retries || server('max_retries'));
	const own = v.strategy !== '';
	const strategy = v.strategy || server('retry_strategy');
	const initial = own && v.initial_ms ? Number(v.initial_ms) : lengthOf(server('retry_initial'));
	const factor = own && v.factor ? Number(v.factor) : Number(server('retry_factor'));
	const cap = own && v.cap_ms ? Number(v.cap_ms) : lengthOf(server('retry_cap'));
	const waits = Array.from({ length: Math.min(retries, 1000) }, (_, at) =>
		Math.min(
			cap,
			strategy === 'fixed' ? initial : strategy === 'linear' ? initial * (at + 1) : initial * factor ** at,
		),
	);
	if (waits.length === 0) return ['A failed job is not retried.'];
	const shown = waits.slice(0, 5).map(span).join(', ') + (waits.length > 5 ? ', …' : '');
	const sum = about(waits.reduce((a, b) => a + b, 0));
	return ['Waits ', h('b', shown), `: gives up about ${sum} after the first failure.`];
}

/**
 * Fills a panel with the limits of a queue.
 * @param {HTMLElement} place @param {string} name @param {QueueSettings} settings @param {string} etag
 * @param {Setting[]} defaults of the server @param {() => void} reload
 */
export function queueForm(place, name, settings, etag, defaults, reload) {
	const fallback = (/** @type {string} */ id) => defaults.find((one) => one.name === id)?.value ?? '';
	const path = `queues/${encodeURIComponent(name)}`;
	const saved = values(settings);
	if (!canWrite()) return readOnly(place, saved);
	const current = { ...saved };
	const changes = h('div.stack');
	const waits = h('span');
	/** @type {Map<string, HTMLElement>} */
	const boxes = new Map();
	const differ = () => FIELDS.filter((f) => current[f.name] !== saved[f.name]);
	const redraw = () => {
		if (defaults.length > 0) put(waits, ...preview(current, fallback));
		for (const f of FIELDS) boxes.get(f.name)?.classList.toggle('changed', current[f.name] !== saved[f.name]);
		const list = differ();
		const save = h(
			'button.btn.go',
			{ type: 'submit', 'data-write': true },
			`Save ${list.length} ${list.length === 1 ? 'change' : 'changes'}`,
		);
		put(
			changes,
			list.length === 0
				? null
				: note(
						'',
						...list.flatMap((f, at) => [
							at ? ', ' : '',
							`${f.label} `,
							h('b', `${shownAs(f, saved[f.name])} → ${shownAs(f, current[f.name])}`),
						]),
						'. Holds for all workers within 2 s; nothing that runs is stopped.',
					),
			list.length === 0 ? null : h('div.actions', save, h('button.btn', { onclick: reload }, 'Undo')),
		);
	};
	const field = (/** @type {Field} */ f) => {
		const id = `f-${f.name}`;
		const set = (/** @type {string} */ v) => {
			current[f.name] = v.trim().replaceAll(',', '');
			redraw();
		};
		const input =
			f.name === 'strategy'
				? h(
						'select',
						{
							id,
							onchange: (/** @type {Event} */ e) => set(/** @type {HTMLSelectElement} */ (e.target).value),
						},
						...['', 'fixed', 'linear', 'exponential'].map((v) =>
							h('option', { value: v, selected: v === saved.strategy }, v || 'default'),
						),
					)
				: h('input', {
						id,
						class: 'input num',
						inputmode: 'decimal',
						autocomplete: 'off',
						pattern: '[0-9,.]*',
						placeholder: f.fallback,
						value: saved[f.name],
						oninput: (/** @type {Event} */ e) => set(/** @type {HTMLInputElement} */ (e.target).value),
					});
		const box = h(
			'div.field',
			h('label', { for: id }, f.label),
			f.unit ? h('span.unit', input, h('span', f.unit)) : input,
		);
		boxes.set(f.name, box);
		return box;
	};
	const submit = async () => {
		if (!ready() || differ().length === 0) return;
		try {
			const written = tag(await change('PUT', path, body(current), { 'if-match': etag }));
			const back = async () => {
				try {
					await change('PUT', path, body(saved), { 'if-match': written });
					toast(`The limits of ${name} are as before`);
					reload();
				} catch (error) {
					tell(error);
				}
			};
			toast(`The limits of ${name} are saved`, { label: 'Undo', act: () => void back() });
			reload();
		} catch (error) {
			if (error instanceof Problem && error.status === 412) await conflict(error).catch(tell);
			else put(changes, refusal(error));
		}
	};
	/** Shows both values after a conflict. @param {Problem} problem */
	const conflict = async (problem) => {
		const read = await send(path);
		const theirs = values((await read.json()).settings);
		const list = FIELDS.filter((f) => theirs[f.name] !== current[f.name]);
		put(
			changes,
			h(
				'div.note.warn',
				{ role: 'alert' },
				icon('st-warn'),
				h(
					'span',
					h('b', 'Another user has changed these limits.'),
					' ',
					...list.map((f) =>
						h('span.both', `${f.label}: now ${shownAs(f, theirs[f.name])}, yours ${shownAs(f, current[f.name])}. `),
					),
					h('span.mute.mono', `${problem.kind}, request ${problem.request}`),
				),
			),
			h(
				'div.actions',
				h('button.btn', { onclick: reload }, 'Take theirs'),
				h(
					'button.btn',
					{
						onclick: () => {
							etag = tag(read);
							Object.assign(saved, theirs);
							current.kinds = theirs.kinds;
							redraw();
						},
					},
					'Keep mine',
				),
			),
		);
	};
	const rows = Array.from({ length: FIELDS.length / 2 }, (_, at) =>
		h('div.pair', field(FIELDS[at * 2]), field(FIELDS[at * 2 + 1])),
	);
	const form = h(
		'form.body.form',
		{
			onsubmit: (/** @type {SubmitEvent} */ event) => {
				event.preventDefault();
				const button = form.querySelector('button[type=submit]');
				if (button instanceof HTMLButtonElement) void busy(button, submit);
			},
		},
		...rows.slice(0, 3),
		ofKinds(saved),
		h('hr'),
		...rows.slice(3),
		defaults.length > 0 ? h('div.note', waits) : null,
		changes,
	);
	redraw();
	put(place, h('header', h('h2', 'Limits'), h('span.end.mute', 'empty means the default')), form);
}
