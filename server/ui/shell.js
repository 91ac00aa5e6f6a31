// What is around every page: navigation, badge, banner, search, the state of the store.

import { root } from './api.js';
import { canWrite, who } from './auth.js';
import { byId, h, icon, put, say } from './dom.js';
import { about, hms, int, ms, plural, size } from './format.js';
import { parse } from './filter.js';
import { badge, now, state, subscribe, togglePause, watch } from './live.js';
import { st } from './parts.js';
import { nextTheme, prefer, prefs } from './prefs.js';
import { go, jobLink, link } from './route.js';

/** The build that this page was made by. */
const BUILD = new URL(import.meta.url).pathname.split('/').at(-2);

/** @param {string} page @param {string} title @param {[string, string] | null} [parent] */
export function crumb(page, title, parent = null) {
  document.title = `${title} · Windlass`;
  put(byId('crumb'), parent ? [h('a', { href: parent[1] }, parent[0]), h('span', null, '/')] : null, h('h1', { tabindex: -1, class: parent ? 'mono' : null }, title));
  for (const a of document.querySelectorAll('[data-nav]')) {
    if (/** @type {HTMLElement} */ (a).dataset.nav === page) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
}

export function showWho() {
  const me = who();
  const name = me.open ? 'open' : me.name ?? '';
  const what = me.open ? 'this machine only' : canWrite() ? 'admin' : 'Read only';
  put(byId('who'), icon('lock'), h('b', null, name), ` ${what}`);
  document.documentElement.dataset.role = canWrite() ? 'admin' : 'reader';
}

function showBadge() {
  const { mode, age } = badge();
  const button = byId('live');
  const sec = Math.round(age / 1000);
  const [word, more] = { connecting: ['Connecting', ''], live: ['Live', ''], paused: ['Paused', ''], stale: ['Stale', state.snap ? `${sec} s` : ''], polling: ['Polling', '5 s'] }[mode];
  const cls = `live ${mode === 'polling' ? 'poll' : mode === 'live' ? '' : mode}`.trim();
  if (button.className !== cls) button.className = cls;
  if (button.dataset.is !== word + more) {
    button.dataset.is = word + more;
    put(button, h('b', null, word), more ? ` ${more}` : null);
    button.setAttribute('aria-label', `Updates: ${word} ${more}. ${mode === 'paused' ? 'Go on' : 'Pause'}`);
  }
  const gone = mode === 'stale';
  for (const node of document.querySelectorAll('[data-write]')) if (node instanceof HTMLButtonElement) node.disabled = gone;
  document.documentElement.classList.toggle('old', gone && age > 15_000);
  banner(gone && (age > 15_000 || !state.snap) ? 'gone' : state.snap && state.snap.build !== BUILD ? 'build' : '');
}

/** @param {string} what */
function banner(what) {
  const place = byId('banner');
  if (place.dataset.is === what) return;
  place.dataset.is = what;
  if (what === 'gone') {
    put(place, h('div', { class: 'note failed', role: 'alert' }, icon('st-warn'), h('span', null, h('b', null, `No answer from ${root.host}${state.snap ? ` since ${hms(ms(state.snap.at))}` : ''}.`), ' What you see is from then. Jobs that were acknowledged are on disk.')));
  } else if (what === 'build') {
    put(place, h('div', { class: 'note' }, icon('st-warn'), h('span', null, h('b', null, 'New version.'), ' The server was replaced by another build.'), h('button', { class: 'btn small', type: 'button', onclick: () => location.reload() }, 'Reload')));
  } else put(place);
}

/** @param {Snapshot} snap */
function showFoot(snap) {
  const good = snap.health === 'good';
  const foot = byId('foot');
  const text = `${good}${snap.store.kind} · ${size(snap.store.bytes)} · ${about(now() - ms(snap.started_at))}`;
  if (foot.dataset.is !== text) {
    foot.dataset.is = text;
    put(foot, h('b', null, good ? st('done', 'Store is good') : st('failed', 'Store is not good')), `${snap.store.kind} · ${size(snap.store.bytes)} · ${snap.store.durability}`, h('br'), `${snap.version} on ${snap.host} · up ${about(now() - ms(snap.started_at))}`);
  }
  const env = byId('env');
  const label = snap.label ?? (who().open ? 'local' : '');
  env.hidden = label === '';
  say(env, label);
  say(document.querySelector('[data-count=queues]'), snap.queues_total ? int(snap.queues_total) : '');
  say(document.querySelector('[data-count=workers]'), snap.workers.alive ? int(snap.workers.alive) : '');
  document.querySelector('[data-count=workers]')?.classList.toggle('hot', snap.workers.stale > 0);
  byId('live').title = `${plural(snap.counts.processing, 'job')} running. Press . to pause updates`;
}

export function begin() {
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
    if (input.value === '') input.value = 'queue:';
    input.focus();
  });
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
}
