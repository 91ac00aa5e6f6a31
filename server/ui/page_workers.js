// Who runs jobs, by machine, and what has run for long.

import { ready, since, tell } from './actions.js';
import { get, write } from './api.js';
import { canWrite } from './auth.js';
import { confirm, toast } from './dialog.js';
import { h, icon, put, s } from './dom.js';
import { noWorkers } from './empty.js';
import { about, int, ms, plural, span } from './format.js';
import { plain } from './json.js';
import { now } from './live.js';
import { big, bones, busy, pill, refusal, tile } from './parts.js';
import { jobLink } from './route.js';

/** @param {Page} page */
export function mount({ main }) {
  const control = new AbortController();
  const tiles = h('section', { class: 'panel tiles four', 'aria-label': 'Now' });
  const list = h('section', { class: 'panel', 'aria-label': 'Workers by machine' }, bones(4, 6));
  const longest = h('section', { class: 'panel', 'aria-labelledby': 'lr' });
  put(main, tiles, list, longest);
  const load = async () => {
    try {
      const [{ workers }, { jobs }] = await Promise.all([get('workers', control.signal), get('jobs?state=processing&fields=row&limit=1000', control.signal)]);
      if (main.querySelector('dialog, :focus-within[data-keep]')) return;
      show(workers, jobs.sort((/** @type {JobRow} */ a, /** @type {JobRow} */ b) => ms(a.started_at) - ms(b.started_at)));
    } catch (error) {
      if (!control.signal.aborted) put(list, h('div', { class: 'body firstbody' }, refusal(error, load)));
    }
  };
  const show = (/** @type {Worker[]} */ workers, /** @type {JobRow[]} */ running) => {
    const alive = workers.filter((w) => w.alive);
    const total = alive.reduce((sum, w) => sum + Math.max(w.slots, w.running.length), 0);
    const held = alive.reduce((sum, w) => sum + w.running.length, 0);
    const hosts = new Set(workers.map((w) => w.host)).size;
    const old = running[0];
    put(tiles, tile('Slots', big(int(held), `of ${int(total)} busy`), h('p', null, `${int(total - held)} free`)), tile('Workers', big(int(workers.length)), h('p', null, `${alive.length} alive, ${workers.length - alive.length} silent, on ${plural(hosts, 'machine')}`)),
      tile('Running', big(int(running.length)), h('p', null, running.length >= 1000 ? 'the first thousand' : 'jobs with a lease')), tile('Longest run', big(old ? span(since(old.started_at ?? old.updated_at)) : '—'), h('p', null, old ? [h('a', { class: 'mono', href: jobLink(old.id) }, String(old.id)), ` ${old.kind}`] : 'nothing runs')));
    if (workers.length === 0) put(list, noWorkers());
    else {
      const th = (/** @type {string} */ t, /** @type {string} */ c) => h('th', { scope: 'col', class: c }, t);
      const groups = Map.groupBy(workers, (w) => (w.kind === 'remote' ? `${w.host} remote` : w.host));
      const focus = document.activeElement?.closest('tr')?.dataset.key;
      put(list, h('div', { class: 'scroll' }, h('table', null, h('thead', null, h('tr', null, th('Worker', ''), th('Kind', 'w-m'), th('Takes', 'w-l'), th('Slots', ''), th('Runs', 'w-l'), th('Heartbeat', 'num'), th('Up', 'num w-m'), canWrite() ? h('th', { scope: 'col', class: 'w-m' }, h('span', { class: 'vh' }, 'Actions')) : null)),
        h('tbody', null, ...[...groups].sort().flatMap(([host, some]) => [group(host, some), ...some.map(row)])))), silent(workers));
      if (focus) /** @type {HTMLElement | null} */ (list.querySelector(`tr[data-key="${CSS.escape(focus)}"] button`))?.focus();
    }
    const th = (/** @type {string} */ t, /** @type {string} */ c) => h('th', { scope: 'col', class: c }, t);
    put(longest, h('header', null, h('h2', { id: 'lr' }, 'Longest running'), h('span', { class: 'end' }, h('a', { href: '#/jobs?state=processing' }, `All ${int(running.length)} running`))),
      running.length === 0 ? h('div', { class: 'body soft' }, 'Nothing runs now.') : h('div', { class: 'scroll' }, h('table', null, h('thead', null, h('tr', null, th('Job', ''), th('Kind', ''), th('Queue', 'w-m'), th('Worker', 'w-m'), th('Progress', 'w-m'), th('Lease ends', 'num w-m'), th('Runs for', 'num'))), h('tbody', null, ...running.slice(0, 10).map(runRow)))));
  };
  const stop = (/** @type {Worker} */ w) => async () => {
    if (!ready() || !(await confirm({ title: `Stop ${w.id}?`, body: [h('p', { class: 'soft' }, `It starts nothing more and ends when its ${plural(w.running.length, 'job')} are over. Nothing is lost.`)], safe: 'Leave it', verb: 'Stop the worker', count: 1, danger: true }))) return;
    try {
      await write('POST', `workers/${encodeURIComponent(w.id)}/stop`);
      toast(`${w.id} was asked to stop`);
      await load();
    } catch (error) {
      tell(error);
    }
  };
  const row = (/** @type {Worker} */ w) => {
    const button = h('button', { class: 'btn small', type: 'button', 'data-write': true, 'aria-label': `Stop ${w.id}`, onclick: () => void busy(button, stop(w)) }, icon('stop', 's'), 'Stop');
    return h('tr', { 'data-key': w.id }, h('th', { scope: 'row' }, h('span', { class: 'mono' }, w.id), w.alive ? null : [' ', pill('failed', 'st-warn', 'silent')], w.stopping ? [' ', pill('warn', 'stop', 'stopping')] : null), h('td', { class: 'w-m' }, w.kind), h('td', { class: 'takes w-l', title: takes(w) }, takes(w)),
      h('td', null, slots(w), ` ${w.running.length}`, h('span', { class: 'mute' }, `/${w.slots}`)), h('td', { class: 'w-l' }, ...w.running.slice(0, 2).flatMap((id, at) => [at ? ', ' : '', h('a', { class: 'mono', href: jobLink(id) }, String(id))]), w.running.length > 2 ? h('small', null, ` and ${w.running.length - 2} more`) : w.running.length === 0 ? h('span', { class: 'mute' }, '—') : null),
      h('td', { class: w.alive ? 'num' : 'num is-failed strong' }, span(since(w.last_heartbeat))), h('td', { class: 'num w-m' }, about(since(w.started_at))), canWrite() ? h('td', { class: 'num w-m' }, w.kind === 'process' && !w.stopping ? button : null) : null);
  };
  void load();
  const timer = setInterval(() => !document.hidden && void load(), 2000);
  return () => {
    clearInterval(timer);
    control.abort();
  };
}

/** @param {string} host @param {Worker[]} some */
function group(host, some) {
  const what = some[0].kind === 'remote' ? 'remote workers over HTTP' : some[0].kind === 'process' ? 'worker processes' : `server, pid ${some[0].pid ?? '?'}`;
  return h('tr', { class: 'group' }, h('th', { colspan: canWrite() ? 8 : 7, scope: 'rowgroup' }, h('b', { class: 'strong' }, host.replace(/ remote$/, '')), ' ', h('span', { class: 'mute' }, what)));
}

/** @param {Worker} w */
function takes(w) {
  const kinds = w.kinds ? w.kinds.slice(0, 4).join(', ') + (w.kinds.length > 4 ? ` and ${w.kinds.length - 4} more` : '') : 'everything';
  return w.queues ? `${kinds} in ${w.queues.slice(0, 3).join(', ')}` : kinds === 'everything' ? kinds : `${kinds} in all queues`;
}

/** @param {Worker} w */
function slots(w) {
  const n = Math.min(w.slots, 16);
  const rects = Array.from({ length: n }, (_, at) => s('rect', { class: at < w.running.length ? 'b' : '', x: at * 9 + 0.5, y: 1.5, width: 7, height: 7, rx: 1.5 }));
  return s('svg', { class: 'slots', width: n * 9, height: 11, viewBox: `0 0 ${Math.max(1, n * 9)} 11`, 'aria-hidden': 'true' }, ...rects);
}

/** What happens to the jobs of silent workers. @param {Worker[]} workers */
function silent(workers) {
  const gone = workers.filter((w) => !w.alive);
  return gone.length === 0 ? null : h('footer', null, ...gone.slice(0, 3).map((w) => h('span', null, `${w.id} was last seen ${about(since(w.last_heartbeat))} ago${w.running.length ? `: its ${plural(w.running.length, 'job')} run elsewhere once their leases end. Nothing is lost.` : '; it holds no job.'}`)));
}

/** @param {JobRow} job */
function runRow(job) {
  return h('tr', null, h('td', null, h('a', { class: 'mono', href: jobLink(job.id) }, String(job.id))), h('td', null, h('code', null, job.kind)), h('td', { class: 'w-m' }, job.queue), h('td', { class: 'mono w-m' }, job.worker ?? '—'), h('td', { class: 'cut w-m' }, job.progress == null ? h('span', { class: 'mute' }, 'none told') : plain(JSON.stringify(job.progress))), h('td', { class: 'num w-m' }, job.lease_until ? span(Math.max(0, ms(job.lease_until) - now())) : '—'), h('td', { class: 'num' }, span(since(job.started_at ?? job.updated_at))));
}
