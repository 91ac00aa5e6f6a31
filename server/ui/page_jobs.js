// The list of jobs. A page is frozen: its rows stay in place and change there; new ones are offered.

import { act, since, verbs } from './actions.js';
import { get, search } from './api.js';
import { canWrite } from './auth.js';
import { toast } from './dialog.js';
import { copy, h, icon, put, say } from './dom.js';
import { noJobs } from './empty.js';
import { NAMES, STATES, chip, read } from './filter.js';
import { age, int, ms, plural, span } from './format.js';
import { plain } from './json.js';
import { now, subscribe } from './live.js';
import { bones, refusal, st, teeth } from './parts.js';
import { go, jobLink, link, queueLink, remembered } from './route.js';

const PAGE = 50;
/** @type {Record<string, [string, string]>} */
const ORDER = { queued: ['Due', 'last due first'], scheduled: ['Due in', 'latest first'], processing: ['Runs for', 'latest lease first'], done: ['Done', 'newest first'], failed: ['Failed', 'newest failure first'], cancelled: ['Cancelled', 'newest first'], '': ['Enqueued', 'newest first'] };

/** Selected ids: they survive updates and paging, and end with the filter. @type {{ filter: string, ids: Set<number> }} */
const selection = { filter: '', ids: new Set() };

/** @param {Page} page */
export function mount({ main, query, keys }) {
  const control = new AbortController();
  const { known, unknown } = read(query);
  const state = known.state ?? '';
  const cursor = query.get('cursor') ?? '';
  const filter = search({ ...known });
  if (selection.filter !== filter) Object.assign(selection, { filter, ids: new Set() });
  const writes = canWrite();
  /** @type {JobRow[]} */
  let rows = [];
  /** @type {string | null} */
  let next = null;
  let at = -1;
  let anchor = -1;

  const tab = (/** @type {string} */ name) => {
    const n = h('small');
    return { name, n, node: h('a', { href: link(['jobs'], { ...known, state: name || null }), 'aria-current': name === state ? 'page' : null }, name ? st(name) : 'All', name ? n : null) };
  };
  const tabs = ['', ...STATES].map(tab);
  const without = (/** @type {string} */ name) => () => {
    const rest = new URLSearchParams(query);
    rest.delete(name);
    rest.delete('cursor');
    go(link(['jobs'], Object.fromEntries(rest)));
  };
  const filters = NAMES.filter((name) => known[name]);
  const chips = h('div', { class: 'chips', role: 'group', 'aria-label': 'Filters' },
    ...filters.map((name) => chip(name, known[name], true, without(name))),
    ...unknown.map(([name, value]) => chip(name, plain(value), false, without(name))),
    h('button', { class: 'chip add', type: 'button', onclick: () => document.querySelector('.search input')?.dispatchEvent(new CustomEvent('ask', { bubbles: true })) }, icon('plus', 's'), 'Filter'),
    filters.length + unknown.length > 0 ? h('button', { class: 'btn bare small', type: 'button', onclick: () => go(link(['jobs'], { state: state || null })) }, 'Clear') : null);
  const fresh = h('button', { class: 'btn small', type: 'button', hidden: true, onclick: () => void load() });
  const body = h('div', { class: 'scroll' });
  const foot = h('footer');
  const bulk = h('div', { class: 'bulk', role: 'region', 'aria-label': 'Selected jobs', hidden: true });
  put(main, h('nav', { class: 'states', 'aria-label': 'Jobs by state' }, ...tabs.map((t) => t.node)),
    h('div', { class: 'listbar' }, chips, h('div', { class: 'end' }, h('span', null, ORDER[state][1]), fresh)),
    h('section', { class: 'panel', 'aria-label': `${state || 'All'} jobs` }, body, foot), bulk);
  main.querySelector('.states [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });

  const th = (/** @type {Child} */ text, /** @type {string} */ cls) => h('th', { scope: 'col', class: cls }, text);
  const all = h('input', { type: 'checkbox', 'aria-label': 'Select the jobs on this page', onchange: () => {
    for (const row of rows) if (all.checked) selection.ids.add(row.id); else selection.ids.delete(row.id);
    selected();
  } });
  const texts = state === 'failed' || state === '' || state === 'queued' || state === 'scheduled';
  const head = () => h('thead', null, h('tr', null, writes ? th(all, 'fit') : null, th('Job', ''), state ? null : th('State', 'w-m'), th('Kind', 'w-m'), th('Queue', 'w-l'), th('Attempts', 'w-m'),
    texts ? th('Error', 'w-m') : state === 'processing' ? th('Worker', 'w-m') : null, th('Payload', 'w-l'), state === 'queued' || state === 'scheduled' ? null : th('Last run', 'num w-l'), th(ORDER[state][0], 'num')));

  /** The instant that the list is ordered by, as an age. @param {JobRow} job */
  const when = (job) => {
    if (state === 'scheduled') return span(Math.max(0, ms(job.run_at) - now()));
    if (state === 'processing') return span(since(job.started_at ?? job.updated_at));
    return age(since(state === '' ? job.created_at : state === 'queued' ? job.run_at : job.finished_at ?? job.updated_at));
  };
  const ran = (/** @type {JobRow} */ job) => (job.started_at && job.finished_at ? span(Math.max(0, ms(job.finished_at) - ms(job.started_at))) : '—');

  const make = (/** @type {JobRow} */ job) => {
    const row = h('tr', { 'data-key': job.id, onclick: (/** @type {MouseEvent} */ event) => {
      if (!(event.target instanceof Element) || event.target.closest('a, input')) return;
      move(rows.findIndex((one) => one.id === job.id));
    } });
    draw(row, job);
    return row;
  };
  const draw = (/** @type {HTMLElement} */ row, /** @type {JobRow} */ job) => {
    const gone = state !== '' && job.view !== state;
    const box = h('input', { type: 'checkbox', checked: selection.ids.has(job.id), 'aria-label': `Select job ${job.id}`, onclick: (/** @type {MouseEvent} */ event) => choose(rows.indexOf(job), box.checked, event.shiftKey) });
    const error = plain(job.last_error ?? '');
    const told = gone ? [st(job.view), ` since.${error ? ` It was: ${error}` : ''}`] : [error];
    const focused = row.contains(document.activeElement);
    put(row, writes ? h('td', { class: 'fit' }, box) : null,
      h('td', { class: 'one' }, h('a', { class: 'mono', href: jobLink(job.id) }, String(job.id)), h('code', { class: 'only-m' }, ` ${job.kind}`), h('small', { class: 'only-m' }, state === '' ? [st(job.view), ' '] : null, ...(told.some((t) => t !== '') ? told : [plain(job.payload_head ?? '')]))),
      state ? null : h('td', { class: 'w-m' }, st(job.view)), h('td', { class: 'w-m kind' }, h('code', null, job.kind)), h('td', { class: 'w-l' }, h('a', { class: 'plain', href: queueLink(job.queue) }, job.queue)), h('td', { class: 'w-m' }, teeth(job)),
      texts ? h('td', { class: 'cut err w-m', title: error || null }, ...told) : state === 'processing' ? h('td', { class: 'w-m mono' }, job.worker ?? (gone ? st(job.view) : '—')) : null,
      h('td', { class: 'cut load mono w-l' }, plain(job.payload_head ?? '')), state === 'queued' || state === 'scheduled' ? null : h('td', { class: 'num w-l' }, ran(job)), h('td', { class: 'num age' }, when(job)));
    row.classList.toggle('gone', gone);
    if (focused) row.querySelector('a')?.focus();
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
    for (const row of rows.slice(from, to + 1)) if (on) selection.ids.add(row.id); else selection.ids.delete(row.id);
    anchor = n;
    selected();
  };
  const move = (/** @type {number} */ to) => {
    at = Math.max(0, Math.min(rows.length - 1, to));
    remark();
    const row = tbody.children[at];
    row?.scrollIntoView({ block: 'nearest' });
    row?.querySelector('a')?.focus({ preventScroll: true });
  };
  const chosen = () => (selection.ids.size > 0 ? [...selection.ids] : rows[at] ? [rows[at].id] : []);
  const doTo = (/** @type {import('./actions.js').Verb} */ verb) => void act(verb, chosen(), () => {
    selection.ids.clear();
    selected();
    void refresh();
  });
  const selected = () => {
    remark();
    const n = selection.ids.size;
    all.checked = rows.length > 0 && rows.every((row) => selection.ids.has(row.id));
    bulk.hidden = n === 0;
    if (n === 0) return;
    const button = (/** @type {import('./actions.js').Verb} */ verb, /** @type {string} */ glyph, /** @type {string} */ word, /** @type {string} */ key) => h('button', { class: verb === 'retry' ? 'btn small' : 'btn small danger', type: 'button', 'data-write': true, onclick: () => doTo(verb) }, icon(glyph, 's'), word, key ? h('kbd', null, key) : null);
    const can = state ? verbs(state === 'scheduled' ? 'queued' : state) : /** @type {const} */ (['retry', 'cancel', 'delete']);
    put(bulk, h('b', null, `${int(n)} selected`), h('i'), can.includes('retry') ? button('retry', 'retry', 'Retry', 'r') : null, can.includes('cancel') ? button('cancel', 'st-cancelled', 'Cancel', 'c') : null, can.includes('delete') ? button('delete', 'trash', 'Delete', '') : null,
      h('button', { class: 'btn small', type: 'button', onclick: async () => toast((await copy([...selection.ids].join('\n'))) ? `${plural(n, 'id')} copied` : 'The browser refused to copy') }, icon('copy', 's'), 'Copy ids'),
      h('button', { class: 'btn bare small', type: 'button', 'aria-label': 'Clear the selection', onclick: () => { selection.ids.clear(); selected(); } }, icon('x', 's')));
  };
  const page = (/** @type {string} */ to) => go(link(['jobs'], { ...known, cursor: to || null }));
  const show = () => {
    if (rows.length === 0) {
      put(body, noJobs(state || undefined, known.queue ?? 'default', filters.length > 0 || cursor !== ''));
      put(foot);
      foot.hidden = cursor === '';
    } else {
      put(tbody, ...rows.map(make));
      put(body, h('table', { class: 'jobs' }, head(), tbody));
      foot.hidden = false;
    }
    const oldest = rows.at(-1);
    put(foot, oldest ? h('span', null, `${plural(rows.length, 'job')} shown`) : null, h('span', { class: 'actions' },
      h('button', { class: 'btn small', type: 'button', disabled: cursor === '', onclick: () => history.back() }, 'Newer'), h('button', { class: 'btn small', type: 'button', disabled: next === null, onclick: () => page(next ?? '') }, 'Older')));
    selected();
  };
  /** How many jobs the list had when it was read; null: as many as the next snapshot counts. @type {number | null} */
  let loaded = Infinity;
  const load = async () => {
    fresh.hidden = true;
    loaded = Infinity;
    const waiting = setTimeout(() => put(body, bones(8, 5)), 150);
    try {
      const found = await get(`jobs?${search({ ...known, cursor, fields: 'row', limit: PAGE })}`, control.signal);
      rows = found.jobs;
      next = found.next;
      const whole = next === null && Object.keys(known).every((name) => name === 'state' || name === 'queue');
      loaded = whole ? rows.length : snap ? total() : null;
      clearTimeout(waiting);
      show();
      const focus = remembered()?.focus;
      if (focus && at < 0) at = rows.findIndex((row) => String(row.id) === focus);
      remark();
      scrollTo(0, remembered()?.y ?? scrollY);
    } catch (error) {
      clearTimeout(waiting);
      if (!control.signal.aborted) put(body, h('div', { class: 'body firstbody' }, refusal(error, load)));
    }
  };
  /** Reads the rows that are shown again; they stay where they are. */
  const refresh = async () => {
    if (rows.length === 0) return;
    try {
      const found = await get(`jobs?${search({ id: rows.map((row) => row.id).join(','), fields: 'row' })}`, control.signal);
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
  let last = 0;
  let busy = false;
  const leave = subscribe((next) => {
    snap = next;
    for (const t of tabs) if (t.name) say(t.n, int(counted(next, t.name, known.queue)));
    [...tbody.children].forEach((row, n) => rows[n] && say(row.querySelector('.age'), when(rows[n])));
    loaded ??= total();
    const more = total() - loaded;
    fresh.hidden = cursor !== '' || more <= 0 || state === 'scheduled';
    if (!fresh.hidden) say(fresh, `Show ${int(more)} newer`);
    const mine = new Set(rows.map((row) => row.queue));
    const rev = next.queues.filter((q) => mine.has(q.name)).map((q) => q.rev).join();
    if (rev !== revs && Date.now() - last > 2000 && !busy) {
      revs = rev;
      last = Date.now();
      busy = true;
      void refresh().finally(() => { busy = false; });
    }
  });
  keys({
    j: () => move(at + 1), k: () => move(at - 1), Enter: () => rows[at] && go(jobLink(rows[at].id)), n: () => !fresh.hidden && void load(),
    '[': () => cursor && history.back(), ']': () => next !== null && page(next),
    Escape: () => { selection.ids.clear(); selected(); },
    ...(writes ? { x: () => at >= 0 && choose(at, !selection.ids.has(rows[at].id), false), X: () => at >= 0 && choose(at, true, true), a: () => { rows.forEach((row) => selection.ids.add(row.id)); selected(); }, r: () => doTo('retry'), c: () => doTo('cancel'), Delete: () => doTo('delete') } : {}),
  });
  void load();
  return () => {
    leave();
    control.abort();
  };
}

/** How many jobs a list has, by the counters. @param {Snapshot} snap @param {string} state @param {string | undefined} queue */
function counted(snap, state, queue) {
  const counts = queue ? snap.queues.find((q) => q.name === queue)?.counts : snap.counts;
  if (!counts) return 0;
  const by = /** @type {Record<string, number>} */ (/** @type {unknown} */ (counts));
  return state ? by[state] ?? 0 : STATES.reduce((sum, name) => sum + by[name], 0);
}
