// Calls of the HTTP API, relative to where this file was loaded from: any proxy prefix works.

/** The root of the API. */
export const root = new URL('../../', import.meta.url);

/** The token of this tab, and what happens when the server refuses it. */
export const session = {
  /** @type {string | null} */
  token: null,
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
  /** @type {Response} */
  let response;
  try {
    const signal = init.signal ?? AbortSignal.timeout(20_000);
    response = await fetch(new URL(path, root), { ...init, signal, headers: headers(/** @type {Record<string, string>} */ (init.headers)), cache: 'no-store', redirect: 'error' });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Problem(0, 'unreachable', `No answer from ${root.host}. Nothing is known about this request: look before you repeat it.`, '');
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
    return new Problem(response.status, String(said.type ?? '').split(':').pop() ?? '', String(said.detail ?? response.statusText), request);
  } catch {
    return new Problem(response.status, 'error', `${response.status} ${response.statusText}`, request);
  }
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = async (path, signal) => (await send(path, { signal })).json();

/** The stored text, as it is. @param {string} path @param {AbortSignal} [signal] */
export const text = async (path, signal) => (await send(path, { signal })).text();

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {Record<string, string>} [more]
 * @returns {Promise<any>}
 */
export async function write(method, path, body, more = {}) {
  /** @type {RequestInit} */
  const init = { method, headers: more };
  if (body !== undefined) Object.assign(init, { body: typeof body === 'string' ? body : JSON.stringify(body), headers: { 'content-type': 'application/json', ...more } });
  const response = await send(path, init);
  return response.status === 204 ? null : response.json();
}

/** @param {Record<string, string | number | null | undefined>} query */
export function search(query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '');
  return new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
}
