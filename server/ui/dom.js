// Building and patching the page, and values as people read them. Text only ever becomes a text node:
// nothing here parses markup.

const SVG = 'http' + '://www.w3.org/2000/svg';

/**
 * Fills an element: attributes, listeners (`onclick: f`), properties (`value`, `checked`), children.
 * @param {Element} node
 * @param {Props | null | undefined} props
 * @param {Child[]} children
 */
function fill(node, props, children) {
	for (const [name, value] of Object.entries(props ?? {})) {
		if (value === null || value === undefined || value === false) continue;
		if (typeof value === 'function') node.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
		else if (name === 'value' || name === 'checked' || name === 'open') Reflect.set(node, name, value);
		else node.setAttribute(name, value === true ? '' : String(value));
	}
	node.append(...flat(children));
}

/**
 * @param {Child[]} children
 * @returns {(Node | string)[]}
 */
function flat(children) {
	return children
		.flat(3)
		.filter((c) => c !== null && c !== undefined && c !== false)
		.map((c) => (c instanceof Node ? c : String(c)));
}

/**
 * An element: `h('p.soft', { title }, 'text')`; attributes and listeners may be left out. A button
 * submits nothing unless it says so.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T | `${T}.${string}`} tag
 * @param {(Props | Child)[]} rest
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, ...rest) {
	const [name, ...classes] = tag.split('.');
	const node = /** @type {HTMLElementTagNameMap[T]} */ (document.createElement(name));
	if (classes.length > 0) node.className = classes.join(' ');
	if (name === 'button') node.setAttribute('type', 'button');
	const [props] = rest;
	const bare = props === null || typeof props !== 'object' || props instanceof Node || Array.isArray(props);
	fill(node, bare ? null : props, /** @type {Child[]} */ (bare ? rest : rest.slice(1)));
	return node;
}

/**
 * @param {string} tag
 * @param {Props} [props]
 * @param {Child[]} children
 * @returns {SVGElement}
 */
export function s(tag, props, ...children) {
	const node = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
	if (tag === 'svg') node.setAttribute('aria-hidden', 'true');
	fill(node, props, children);
	return node;
}

/** An icon of the sprite in index.html. @param {string} name @param {string} [cls] */
export function icon(name, cls = '') {
	return s(
		'svg',
		{ class: `i ${cls}`.trim(), viewBox: '0 0 16 16', 'aria-hidden': 'true' },
		s('use', { href: `#i-${name}` }),
	);
}

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
	const node = document.getElementById(id);
	if (!node) throw new Error(`no element ${id}`);
	return node;
}

/** Sets a text if it is another one. @param {Element | null} node @param {string} text */
export function say(node, text) {
	if (node && node.textContent !== text) node.textContent = text;
}

/**
 * Draws the children of an element again only if what they show is another.
 * @param {Element} node @param {string} shown @param {() => Child} draw
 */
export function redraw(node, shown, draw) {
	const { dataset } = /** @type {HTMLElement} */ (node);
	if (dataset.is === shown) return;
	dataset.is = shown;
	put(node, draw());
}

/** Replaces the children of an element; it is not awaited any more. @param {Element} node @param {Child[]} children */
export function put(node, ...children) {
	node.removeAttribute('aria-busy');
	node.replaceChildren(...flat(children));
}

/**
 * Marks an empty place as awaited until `put` draws it; after 150 ms bones of about its height are shown.
 * @param {Element} place @param {number} [rows]
 */
export function awaited(place, rows = 4) {
	place.setAttribute('aria-busy', 'true');
	setTimeout(() => {
		if (place.getAttribute('aria-busy') !== 'true' || place.childElementCount > 0) return;
		place.append(h('div.bones', ...Array.from({ length: rows }, () => h('span.bone'))));
	}, 150);
}

/**
 * Makes the children of a parent those of a list, by key: known ones are updated in place and only
 * moved if their order changed, so that focus and scroll stay.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} key
 * @param {(item: T) => HTMLElement} make
 * @param {(node: HTMLElement, item: T) => void} update
 */
export function keyed(parent, items, key, make, update) {
	const known = new Map(
		[...parent.children].map((c) => [/** @type {HTMLElement} */ (c).dataset.key ?? '', /** @type {HTMLElement} */ (c)]),
	);
	const focus = document.activeElement;
	let at = parent.firstElementChild;
	for (const item of items) {
		const k = key(item);
		let node = known.get(k);
		known.delete(k);
		if (!node) {
			node = make(item);
			node.dataset.key = k;
		}
		update(node, item);
		if (node === at) at = at.nextElementSibling;
		else parent.insertBefore(node, at);
	}
	for (const node of known.values()) node.remove();
	// An element that is moved loses the focus.
	if (focus instanceof HTMLElement && focus !== document.activeElement && parent.contains(focus))
		focus.focus({ preventScroll: true });
}

/** Copies a text; where the clipboard is not allowed, selects it for the person to copy. @param {string} text */
export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
		return true;
	} catch {
		const area = h('textarea.vh', { 'aria-hidden': 'true', value: text });
		document.body.append(area);
		area.select();
		const done = document.execCommand('copy');
		area.remove();
		return done;
	}
}

// Numbers, ages and instants as people read them.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** @param {number} n */
export const int = (n) => whole.format(n);

/** One decimal below a hundred. @param {number} n */
export function rate(n) {
	return n >= 100 ? int(n) : (Math.round(n * 10) / 10).toFixed(1);
}

/** 9.82 M, for tiles. @param {number} n @returns {[string, string]} */
export function short(n) {
	if (n < 100_000) return [int(n), ''];
	return n < 1e6 ? [(n / 1e3).toFixed(0), 'k'] : [(n / 1e6).toFixed(2), 'M'];
}

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${int(n)} ${n === 1 ? one : many}`;

/** A length of time: 7 ms, 0.4 s, 41 s, 1 m 05 s, 2 h 04 m, 3 d. @param {number} ms */
export function span(ms) {
	if (ms < 100) return `${Math.max(0, Math.round(ms))} ms`;
	if (ms < 9_950) return `${(ms / 1000).toFixed(1).replace(/\.0$/, '')} s`;
	const sec = Math.round(ms / 1000);
	if (sec < 60) return `${sec} s`;
	if (sec < 3600) return `${Math.floor(sec / 60)} m ${String(sec % 60).padStart(2, '0')} s`;
	const min = Math.floor(sec / 60);
	if (min < 2880) return `${Math.floor(min / 60)} h ${String(min % 60).padStart(2, '0')} m`;
	return `${Math.floor(min / 1440)} d`;
}

/** A length of time in one unit, for sentences: 41 min, 3 h. @param {number} ms */
export function about(ms) {
	if (ms < 60_000) return span(ms < 1000 ? ms : Math.round(ms / 1000) * 1000);
	if (ms < 5_400_000) return `${Math.round(ms / 60_000)} min`;
	return ms < 129_600_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** An age in a table: below a second it is "now". @param {number} ms */
export const age = (ms) => (ms < 1000 ? 'now' : span(Math.floor(ms / 1000) * 1000));

/** @param {number} n @returns {[string, string]} */
export function bytes(n) {
	const units = ['B', 'kB', 'MB', 'GB', 'TB'];
	let at = 0;
	let value = n;
	while (value >= 999.5 && at < units.length - 1) {
		value /= 1000;
		at += 1;
	}
	return [
		at === 0 ? int(value) : value.toPrecision(3).replace(/\.?0+$/, (z) => (z.startsWith('.') ? '' : z)),
		units[at],
	];
}

/** @param {number} n */
export const size = (n) => bytes(n).join(' ');

/** @param {Date} d @param {Intl.DateTimeFormatOptions} options */
function local(d, options) {
	return new Intl.DateTimeFormat('en-GB', {
		...options,
		hourCycle: 'h23',
		timeZone: prefs.utc ? 'UTC' : undefined,
	}).format(d);
}

/** 14:05. @param {number} ms */
export const hhmm = (ms) => local(new Date(ms), { hour: '2-digit', minute: '2-digit' });

/** 14:05:11. @param {number} ms */
export const hms = (ms) => local(new Date(ms), { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** 17 Nov. @param {number} ms */
export const day = (ms) => local(new Date(ms), { day: 'numeric', month: 'short' });

/** 14:05:11.274 UTC, with the day if it is not today's. @param {string} iso @param {number} now */
export function instant(iso, now) {
	const at = Date.parse(iso);
	const zone = prefs.utc ? ' UTC' : '';
	const time = `${hms(at)}.${iso.slice(20, 23)}${zone}`;
	return day(at) === day(now) ? time : `${day(at)} ${time}`;
}

/** @param {string | null | undefined} iso */
export const ms = (iso) => (iso ? Date.parse(iso) : NaN);

/** A word with a capital. @param {string} text */
export const cap = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// What this browser remembers of its owner's taste. Nothing here leaves the browser.

const KEY = 'windlass';

/** @typedef {{ theme: 'system' | 'light' | 'dark', utc: boolean, keys: boolean }} Prefs */

/** @returns {Prefs} */
function load() {
	/** @type {Prefs} */
	const known = { theme: 'system', utc: true, keys: true };
	try {
		const kept = JSON.parse(localStorage.getItem(KEY) ?? '{}');
		if (kept.theme === 'light' || kept.theme === 'dark') known.theme = kept.theme;
		if (kept.utc === false) known.utc = false;
		if (kept.keys === false) known.keys = false;
	} catch {
		// Storage that is off or holds something else: the defaults hold.
	}
	return known;
}

export const prefs = load();

/** @param {Partial<Prefs>} change */
export function prefer(change) {
	Object.assign(prefs, change);
	try {
		localStorage.setItem(KEY, JSON.stringify(prefs));
	} catch {
		// It holds for this tab.
	}
	showTheme();
}

export function showTheme() {
	if (prefs.theme === 'system') delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = prefs.theme;
}

/** The next theme, for the button and the key. @returns {Prefs['theme']} */
export function nextTheme() {
	return prefs.theme === 'system' ? 'light' : prefs.theme === 'light' ? 'dark' : 'system';
}

// JSON for people: stored text is indented token by token and never parsed into numbers, so that an
// integer of any size stays as it is. What cannot be seen is shown by its code point.

/** Characters that are shown; the rest is a download. */
export const SHOWN = 256 * 1024;
/** Tokens that are coloured. The rest is plain text, in blocks that are laid out once they are scrolled to. */
const COLOURED = 3000;
const BLOCK = 1000;

const TOKEN = /"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^\s{}[\],:"]+|\s+/gsu;
// Control characters, bidi marks and invisible separators; line ends and tabs are shown as such.
// eslint-disable-next-line no-control-regex
const HIDDEN =
	/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;

/**
 * A text with what cannot be seen made visible, as nodes.
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function visible(text) {
	/** @type {(Node | string)[]} */
	const out = [];
	let from = 0;
	for (const found of text.matchAll(HIDDEN)) {
		if (found.index > from) out.push(text.slice(from, found.index));
		const code = found[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, '0');
		out.push(h('span.ph', `U+${code}`));
		from = found.index + 1;
	}
	if (from < text.length) out.push(text.slice(from));
	return out;
}

/** The same as plain text, for attributes and table cells. @param {string} text */
export function plain(text) {
	return text.replace(HIDDEN, (c) => `U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`);
}

/**
 * Stored JSON text, indented and coloured.
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function pretty(text) {
	const out = document.createDocumentFragment();
	let depth = 0;
	let line = '';
	const flush = (/** @type {'p' | 'block'} */ cls) => {
		if (line) out.append(h(`span.${cls}`, line));
		line = '';
	};
	const solid = (text.slice(0, SHOWN).match(TOKEN) ?? []).filter((t) => t.trim() !== '');
	const indent = () => `\n${'  '.repeat(Math.min(depth, 40))}`;
	let from = COLOURED;
	solid.forEach((token, at) => {
		const next = solid[at + 1];
		if (at === COLOURED) flush('p');
		if (token === '{' || token === '[') {
			depth += 1;
			line += token;
			if (next !== '}' && next !== ']') line += indent();
		} else if (token === '}' || token === ']') {
			const empty = solid[at - 1] === '{' || solid[at - 1] === '[';
			depth = Math.max(0, depth - 1);
			line += empty ? token : indent() + token;
		} else if (token === ',') {
			line += token;
			if (at - from < BLOCK) line += indent();
			else {
				flush('block');
				from = at;
				// A block begins a line by itself.
				line = indent().slice(1);
			}
		} else if (token === ':') line += ': ';
		else if (at >= COLOURED) line += plain(token);
		else {
			flush('p');
			const kind = token.startsWith('"') ? (next === ':' ? 'k' : 's') : 'n';
			out.append(h('span', { class: kind }, ...visible(token)));
		}
	});
	flush('p');
	return out;
}
