// Calls of the HTTP API, relative to where this file was loaded from: any proxy prefix works.

import { h, icon, say } from './dom.js';

/** The root of the API. */
export const root = new URL('../../', import.meta.url);

/** The token of this tab, and what happens when the server refuses it. */
export const session = {
	/** @type {string | null} */
	token: null,
	/** Whether a login is open: until it is over, nothing but it asks the server. */
	locked: false,
	/** @type {(missing: Problem) => void} */
	refused: () => {},
};

/** A refusal as the server words it, or that it cannot be reached. */
export class Problem extends Error {
	/** @param {number} status @param {string} kind @param {string} detail @param {string} request */
	constructor(status, kind, detail, request) {
		super(detail);
		this.status = status;
		this.kind = kind;
		this.request = request;
	}
}

/** @param {Record<string, string>} [more] */
function headers(more) {
	return { ...(session.token ? { authorization: `Bearer ${session.token}` } : {}), ...more };
}

/**
 * @param {string} path without a leading slash
 * @param {RequestInit} [init]
 * @returns {Promise<Response>}
 */
export async function send(path, init = {}) {
	if (session.locked && path !== 'me') throw new Problem(401, 'unauthorized', 'Give a token first.', '');
	/** @type {Response} */
	let response;
	try {
		const signal = init.signal ?? AbortSignal.timeout(20_000);
		response = await fetch(new URL(path, root), {
			...init,
			signal,
			headers: headers(/** @type {Record<string, string>} */ (init.headers)),
			cache: 'no-store',
			redirect: 'error',
		});
	} catch (error) {
		if (error instanceof DOMException && error.name === 'AbortError') throw error;
		throw new Problem(
			0,
			'unreachable',
			`No answer from ${root.host}. The request may or may not have taken effect; check before you repeat it.`,
			'',
		);
	}
	if (response.ok) return response;
	const problem = await refusal(response);
	if (problem.status === 401) session.refused(problem);
	throw problem;
}

/** @param {Response} response */
async function refusal(response) {
	const request = response.headers.get('x-request-id') ?? '';
	try {
		const said = await response.json();
		return new Problem(
			response.status,
			String(said.type ?? '')
				.split(':')
				.pop() ?? '',
			String(said.detail ?? response.statusText),
			request,
		);
	} catch {
		return new Problem(response.status, 'error', `${response.status} ${response.statusText}`, request);
	}
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = async (path, signal) => parsed(await text(path, signal));

/** JSON as values. Numbers that a value cannot hold exactly stay as they are written. @param {string} json */
export function parsed(json) {
	if (!/\d{16}|\d[eE]\+?\d{2}/.test(json)) return JSON.parse(json);
	return JSON.parse(json, (_, value, context) => {
		const written = typeof value === 'number' ? (context?.source ?? '') : '';
		if (written === '' || Number.isSafeInteger(value)) return value;
		// Seventeen digits hold every number of the server's own.
		const exact = Number.isFinite(value) && !Number.isInteger(value) && written.replace(/\D/g, '').length < 19;
		return exact ? value : JSON.rawJSON(written);
	});
}

/** The stored text, as it is. @param {string} path @param {AbortSignal} [signal] */
export const text = async (path, signal) => (await send(path, { signal })).text();

/** @param {string} method @param {string} path @param {unknown} [body] @param {Record<string, string>} [more] */
export function change(method, path, body, more = {}) {
	if (body === undefined) return send(path, { method, headers: more });
	const headers = { 'content-type': 'application/json', ...more };
	return send(path, { method, headers, body: typeof body === 'string' ? body : JSON.stringify(body) });
}

/** @param {string} method @param {string} path @param {unknown} [body] @returns {Promise<any>} */
export async function write(method, path, body) {
	const response = await change(method, path, body);
	return response.status === 204 ? null : response.json();
}

/** A link to a document of the API; with a token, which no address holds, it is downloaded by script.
 * @param {string} path @param {string} word @param {string | null} [name] of the downloaded file */
export function fileLink(path, word, name = null) {
	const save = async () => {
		const url = URL.createObjectURL(await (await send(path)).blob());
		h('a', { href: url, download: name ?? path }).click();
		setTimeout(() => URL.revokeObjectURL(url), 60_000);
	};
	const node = h('a', { href: new URL(path, root).href, download: name }, word);
	node.addEventListener('click', (event) => {
		if (!session.token) return;
		event.preventDefault();
		save().catch((error) => say(node, error instanceof Error ? error.message : String(error)));
	});
	return node;
}

/** @param {Record<string, string | number | null | undefined>} query */
export function search(query) {
	const pairs = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '');
	return new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
}

// Who is looking: the token, the login, and what may be drawn. The server checks anyway.

const KEY = 'windlass-token';

/** @type {Me} */
let me = { name: null, scopes: [], open: false, label: null };

/** @type {(() => void) | null} */
let changed = null;

export const who = () => me;
/** @param {string} scope */
export const may = (scope) => me.scopes.includes(scope) || me.scopes.includes('admin');
export const canWrite = () => may('admin');
export const kept = () => stored() !== null;

function stored() {
	try {
		return sessionStorage.getItem(KEY);
	} catch {
		return null;
	}
}

/** Reads who we are; asks for a token if the server requires one. @param {() => void} onChange */
export async function begin(onChange) {
	changed = onChange;
	session.token = stored();
	session.refused = () => ask();
	await identify();
}

const lacking = () => `This token has the scope ${me.scopes.join(', ')}; reading requires the scope \`read\`.`;

async function identify() {
	me = await get('me');
	if (!may('read')) ask(lacking());
}

/** Forgets the token, and by a reload everything that was read with it. */
export function forget() {
	try {
		sessionStorage.removeItem(KEY);
	} catch {
		// There was none.
	}
	location.reload();
}

/** The login, over whatever is shown. @param {string} [why] */
function ask(why = '') {
	if (session.locked) return;
	session.locked = true;
	const input = h('input', { id: 'token', class: 'input mono', type: 'password', autocomplete: 'off', required: true });
	const keep = h('input', { type: 'checkbox' });
	const note = h('p.note.warn', { hidden: !why, role: 'alert' }, icon('st-warn'), h('span', why));
	const form = h(
		'form',
		{
			method: 'dialog',
			onsubmit: (/** @type {SubmitEvent} */ event) => {
				event.preventDefault();
				void login();
			},
		},
		h('header', h('h2', { id: 'login' }, 'This server requires a token')),
		h(
			'div.body',
			note,
			h('div.field', h('label', { for: 'token' }, 'Token'), input),
			h('label.inline', keep, ' keep it until this tab is closed'),
			h(
				'p.mute',
				'It is sent as a header to this server only, and never stored as a cookie. Tokens are made in the file given by ',
				h('code', '--token-file'),
				'.',
			),
		),
		h('footer', h('button.btn.go', { type: 'submit' }, 'Continue')),
	);
	const dialog = h(
		'dialog',
		{ 'aria-labelledby': 'login', oncancel: (/** @type {Event} */ event) => event.preventDefault() },
		form,
	);
	const login = async () => {
		session.token = input.value.trim();
		try {
			me = await get('me');
			if (!may('read')) throw new Error(lacking());
			if (keep.checked) sessionStorage.setItem(KEY, session.token);
			session.locked = false;
			dialog.close();
			dialog.remove();
			changed?.();
		} catch (error) {
			note.hidden = false;
			note.lastElementChild?.replaceChildren(error instanceof Error ? error.message : String(error));
			input.select();
		}
	};
	document.body.append(dialog);
	dialog.showModal();
	input.focus();
}
