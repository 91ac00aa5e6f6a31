// The limits of a queue: a form that shows what would change before it is saved, and both values if
// another user has changed them since they were read.

import { ready, tell } from './actions.js';
import { Problem, send, write } from './api.js';
import { canWrite } from './auth.js';
import { toast } from './dialog.js';
import { h, icon, put } from './dom.js';
import { about, int, span } from './format.js';
import { busy, note, refusal } from './parts.js';

/** @typedef {{ name: string, label: string, unit?: string, fallback: string }} Field */
/** @type {Field[]} */
const FIELDS = [
  { name: 'concurrency', label: 'Running at once', fallback: 'no limit' }, { name: 'max_queued', label: 'Waiting at most', fallback: 'no limit' },
  { name: 'timeout_ms', label: 'Timeout', unit: 'ms', fallback: 'default' }, { name: 'visibility_timeout_ms', label: 'Visibility timeout', unit: 'ms', fallback: 'default' },
  { name: 'max_retries', label: 'Retries', fallback: 'default' }, { name: 'strategy', label: 'Strategy', fallback: 'default' },
  { name: 'initial_ms', label: 'First wait', unit: 'ms', fallback: 'default' }, { name: 'factor', label: 'Factor', fallback: 'default' },
  { name: 'cap_ms', label: 'Longest wait', unit: 'ms', fallback: 'default' }, { name: 'jitter', label: 'Jitter', unit: '± %', fallback: 'default' },
];

/** @typedef {Record<string, string>} Values */

/** @param {QueueSettings} set @returns {Values} */
function values(set) {
  const text = (/** @type {number | null | undefined} */ n) => (n === null || n === undefined ? '' : String(n));
  const r = set.retry;
  return { concurrency: text(set.concurrency), max_queued: text(set.max_queued), timeout_ms: text(set.timeout_ms), visibility_timeout_ms: text(set.visibility_timeout_ms), max_retries: text(set.max_retries),
    strategy: r?.strategy ?? '', initial_ms: text(r?.initial_ms), factor: text(r?.factor), cap_ms: text(r?.cap_ms), jitter: r ? text(Math.round(r.jitter * 1000) / 10) : '' };
}

/** @param {Values} v */
function body(v) {
  const n = (/** @type {string} */ name) => (v[name] === '' ? null : Number(v[name]));
  const retry = v.strategy === '' ? null : { strategy: v.strategy, ...(v.initial_ms ? { initial_ms: n('initial_ms') } : {}), ...(v.strategy === 'exponential' && v.factor ? { factor: n('factor') } : {}), ...(v.cap_ms ? { cap_ms: n('cap_ms') } : {}), ...(v.jitter === '' ? {} : { jitter: Number(v.jitter) / 100 }) };
  return { concurrency: n('concurrency'), max_queued: n('max_queued'), timeout_ms: n('timeout_ms'), visibility_timeout_ms: n('visibility_timeout_ms'), max_retries: n('max_retries'), retry };
}

/** The waits between attempts, in words. @param {Values} v */
function preview(v) {
  const retries = v.max_retries === '' ? 3 : Number(v.max_retries);
  const initial = Number(v.initial_ms || 1000);
  const cap = Number(v.cap_ms || 3_600_000);
  const waits = Array.from({ length: Math.min(retries, 1000) }, (_, at) => Math.min(cap, v.strategy === 'fixed' ? initial : v.strategy === 'linear' ? initial * (at + 1) : initial * Number(v.factor || 2) ** at));
  if (waits.length === 0) return ['A failed job is not tried again.'];
  const shown = waits.slice(0, 5).map(span).join(', ') + (waits.length > 5 ? ', …' : '');
  return ['Waits ', h('b', null, shown), `: gives up about ${about(waits.reduce((a, b) => a + b, 0))} after the first failure.`];
}

/** @param {string} name @param {QueueSettings} settings @param {string} etag @param {() => void} reload */
export function queueForm(name, settings, etag, reload) {
  const path = `queues/${encodeURIComponent(name)}`;
  const saved = values(settings);
  const current = { ...saved };
  const changes = h('div', { class: 'stack' });
  const waits = h('span');
  const writes = canWrite();
  /** @type {Map<string, HTMLElement>} */
  const boxes = new Map();
  const differ = () => FIELDS.filter((f) => current[f.name] !== saved[f.name]);
  const shownAs = (/** @type {Field} */ f, /** @type {string} */ v) => (v === '' ? f.fallback : /^\d+$/.test(v) ? int(Number(v)) : v);
  const redraw = () => {
    put(waits, ...preview(current));
    for (const f of FIELDS) boxes.get(f.name)?.classList.toggle('changed', current[f.name] !== saved[f.name]);
    const list = differ();
    const save = h('button', { class: 'btn go', type: 'submit', 'data-write': true }, `Save ${list.length} ${list.length === 1 ? 'change' : 'changes'}`);
    put(changes, list.length === 0 ? null : note('', ...list.flatMap((f, at) => [at ? ', ' : '', `${f.label} `, h('b', null, `${shownAs(f, saved[f.name])} → ${shownAs(f, current[f.name])}`)]), '. Holds for all workers within 2 s; nothing that runs is stopped.'),
      list.length === 0 ? null : h('div', { class: 'actions' }, save, h('button', { class: 'btn', type: 'button', onclick: reload }, 'Undo')));
  };
  const field = (/** @type {Field} */ f) => {
    const id = `f-${f.name}`;
    const set = (/** @type {string} */ v) => {
      current[f.name] = v.trim().replaceAll(',', '');
      redraw();
    };
    const input = f.name === 'strategy'
      ? h('select', { id, disabled: !writes, onchange: (/** @type {Event} */ e) => set(/** @type {HTMLSelectElement} */ (e.target).value) }, ...['', 'fixed', 'linear', 'exponential'].map((v) => h('option', { value: v, selected: v === saved.strategy }, v || 'default')))
      : h('input', { id, class: 'input num', inputmode: 'decimal', autocomplete: 'off', pattern: '[0-9,.]*', placeholder: f.fallback, value: saved[f.name], readonly: !writes, oninput: (/** @type {Event} */ e) => set(/** @type {HTMLInputElement} */ (e.target).value) });
    const box = h('div', { class: 'field' }, h('label', { for: id }, f.label), f.unit ? h('span', { class: 'unit' }, input, h('span', null, f.unit)) : input);
    boxes.set(f.name, box);
    return box;
  };
  const submit = async () => {
    if (!ready() || differ().length === 0) return;
    try {
      await write('PUT', path, body(current), { 'if-match': etag });
      const back = async () => {
        try {
          const tag = (await send(path)).headers.get('etag') ?? '';
          await write('PUT', path, body(saved), { 'if-match': tag });
          toast(`The limits of ${name} are as before`);
          reload();
        } catch (error) {
          tell(error);
        }
      };
      toast(`The limits of ${name} are saved`, { label: 'Undo', act: () => void back() });
      reload();
    } catch (error) {
      if (error instanceof Problem && error.status === 412) await conflict(error);
      else put(changes, refusal(error));
    }
  };
  /** Shows both values after a conflict. @param {Problem} problem */
  const conflict = async (problem) => {
    const now = await (await send(path)).json();
    const theirs = values(now.settings);
    const list = FIELDS.filter((f) => theirs[f.name] !== current[f.name]);
    put(changes, h('div', { class: 'note warn', role: 'alert' }, icon('st-warn'), h('span', null, h('b', null, 'Another user has changed these limits.'), ' ', ...list.map((f) => h('span', { class: 'both' }, `${f.label}: now ${shownAs(f, theirs[f.name])}, yours ${shownAs(f, current[f.name])}. `)), h('span', { class: 'mute mono' }, `${problem.kind}, request ${problem.request}`))),
      h('div', { class: 'actions' }, h('button', { class: 'btn', type: 'button', onclick: reload }, 'Take theirs'), h('button', { class: 'btn', type: 'button', onclick: async () => {
        etag = (await send(path)).headers.get('etag') ?? '';
        Object.assign(saved, theirs);
        redraw();
      } }, 'Keep mine')));
  };
  const rows = Array.from({ length: FIELDS.length / 2 }, (_, at) => h('div', { class: 'pair' }, field(FIELDS[at * 2]), field(FIELDS[at * 2 + 1])));
  const form = h('form', { class: 'body form', onsubmit: (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const button = form.querySelector('button[type=submit]');
    if (button instanceof HTMLButtonElement) void busy(button, submit);
  } }, ...rows.slice(0, 2), h('hr'), ...rows.slice(2), h('div', { class: 'note' }, waits), changes);
  redraw();
  return h('section', { class: 'panel', 'aria-labelledby': 'lim' }, h('header', null, h('h2', { id: 'lim' }, 'Limits'), h('span', { class: 'end mute' }, writes ? 'empty means the default' : 'read only')), form);
}
