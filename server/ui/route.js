// Addresses: the part behind the hash. Pages are mounted for a path; filters are its query.

/** @typedef {{ path: string[], query: URLSearchParams }} Route */

/** @returns {Route} */
export function here() {
  const hash = location.hash.replace(/^#\/?/, '');
  const [path, query = ''] = hash.split('?');
  const parts = path.split('/').filter((p) => p !== '').map((p) => {
    try {
      return decodeURIComponent(p);
    } catch {
      return p;
    }
  });
  return { path: parts, query: new URLSearchParams(query) };
}

/** @param {string[]} path @param {Record<string, string | null | undefined>} [query] */
export function link(path, query = {}) {
  const pairs = Object.entries(query).filter((pair) => pair[1] !== null && pair[1] !== undefined && pair[1] !== '');
  // Commas and colons are legible in an address and mean nothing there.
  const text = new URLSearchParams(/** @type {[string, string][]} */ (pairs)).toString().replaceAll('%2C', ',').replaceAll('%3A', ':');
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export const jobLink = (/** @type {number | string} */ id) => link(['jobs', String(id)]);
export const queueLink = (/** @type {string} */ name) => link(['queues', name]);

/** @type {() => void} */
let mount = () => {};

/** Where each entry of the history was scrolled to, and what had the focus. @type {Map<number, { y: number, focus: string | null }>} */
const memory = new Map();
let entry = 0;
let newest = 0;

/** @param {() => void} show */
export function begin(show) {
  mount = show;
  history.scrollRestoration = 'manual';
  entry = Number(history.state?.entry ?? 0);
  newest = entry;
  history.replaceState({ entry }, '');
  addEventListener('popstate', (event) => {
    keep();
    // A link that was followed has no state yet.
    entry = Number(event.state?.entry ?? (newest += 1));
    if (event.state === null) history.replaceState({ entry }, '');
    mount();
  });
}

/** Remembers the place on the page that is left. */
function keep() {
  const focus = document.activeElement?.closest('[data-key]');
  memory.set(entry, { y: scrollY, focus: focus instanceof HTMLElement ? focus.dataset.key ?? null : null });
  if (memory.size > 20) memory.delete(memory.keys().next().value ?? 0);
}

/** The place that was remembered for the page that is shown now. */
export const remembered = () => memory.get(entry) ?? null;

/** Goes to an address. @param {string} hash */
export function go(hash) {
  keep();
  newest += 1;
  entry = newest;
  history.pushState({ entry }, '', hash);
  mount();
}

/** The same page with another address: filters while typing, the selected row. @param {string} hash */
export function rewrite(hash) {
  history.replaceState({ entry }, '', hash);
}
