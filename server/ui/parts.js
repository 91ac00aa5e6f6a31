// The small parts that pages share: states, teeth, meters, notes, copy buttons, busy buttons.

import { Problem } from './api.js';
import { copy, h, icon, s } from './dom.js';
import { cap, plural } from './format.js';

/** @param {string} state @param {string} [word] */
export const st = (state, word) => h('span', { class: `st ${state}` }, icon(`st-${state}`, 's'), word ?? cap(state));

/** @param {string} cls @param {string} glyph @param {string} word */
export const pill = (cls, glyph, word) => h('span', { class: `pill ${cls}` }, icon(glyph, 's'), word);

/** @param {number} part of one */
export function meter(part) {
  const width = Math.round(Math.min(1, part) * 1000) / 10;
  return s('svg', { class: part >= 1 ? 'meter full' : 'meter', viewBox: '0 0 100 6', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, s('rect', { width, height: 6 }));
}

/** Attempts as teeth of a ratchet: used ones are filled. @param {JobRow} job */
export function teeth(job) {
  const total = job.max_retries + 1;
  const used = Math.min(job.attempts, total);
  const last = job.state === 'done' ? 'ok' : job.state === 'processing' ? 'now' : 'bad';
  const shown = Math.min(total, 8);
  const paths = Array.from({ length: shown }, (_, at) => {
    const cls = at >= used ? '' : at === used - 1 ? last : 'bad';
    const x = 1 + at * 9;
    return s('path', { class: cls, d: `M${x},10.5 ${x + 7},1.5 ${x + 7},10.5Z` });
  });
  const width = 1 + shown * 9;
  return h('span', { class: 'teethcell' }, s('svg', { class: 'teeth', width, height: 12, viewBox: `0 0 ${width} 12`, 'aria-hidden': 'true' }, ...paths), `${job.attempts}/${total}`);
}

/** @param {string} title @param {Child[]} children */
export function tile(title, ...children) {
  return h('div', null, h('h2', null, title), ...children);
}

/** A number with its unit. @param {string} number @param {string} [unit] */
export const big = (number, unit = '') => h('p', { class: 'big' }, number, unit ? h('small', null, unit) : null);

/** @param {'warn' | 'failed' | ''} cls @param {Child[]} children */
export const note = (cls, ...children) => h('div', { class: `note ${cls}`.trim() }, icon('st-warn'), h('span', null, ...children));

/** A refusal in the server's words, with a way on. @param {unknown} error @param {() => void} [again] */
export function refusal(error, again) {
  const problem = error instanceof Problem ? error : null;
  const detail = error instanceof Error ? error.message : String(error);
  return h('div', { class: 'note warn', role: 'alert' }, icon('st-warn'), h('span', null, h('b', null, detail),
    problem?.request ? [h('br'), h('span', { class: 'mute mono' }, `${problem.kind}, request ${problem.request}`)] : null),
  again ? h('button', { class: 'btn small', type: 'button', onclick: again }, 'Try again') : null);
}

/** @param {() => string} text @param {string} [label] */
export function copyButton(text, label = 'Copy') {
  const word = document.createTextNode(label);
  return h('button', { class: 'btn small', type: 'button', onclick: async () => {
    word.data = (await copy(text())) ? 'Copied' : 'Press Ctrl+C';
    setTimeout(() => { word.data = label; }, 1500);
  } }, icon('copy', 's'), word);
}

/** A command with a button that copies it. @param {string} command */
export function command(command) {
  return h('div', { class: 'withcopy' }, h('pre', { class: 'code', tabindex: 0 }, command), copyButton(() => command));
}

/** Runs an action with its button busy; a second click does nothing. @param {HTMLButtonElement} button @param {() => Promise<unknown>} action */
export async function busy(button, action) {
  if (button.getAttribute('aria-busy') === 'true') return;
  button.setAttribute('aria-busy', 'true');
  try {
    await action();
  } finally {
    button.removeAttribute('aria-busy');
  }
}

/** Rows of bones, of the height that comes. @param {number} rows @param {number} columns */
export function bones(rows, columns) {
  const row = () => h('tr', null, ...Array.from({ length: columns }, (_, at) => h('td', null, h('span', { class: at === 0 ? 'bone w80' : 'bone w30' }))));
  return h('table', { 'aria-busy': 'true' }, h('tbody', null, ...Array.from({ length: rows }, row)));
}

/**
 * A choice between a few words.
 * @template {string} T
 * @param {string} name @param {[T, string][]} choices @param {T} chosen @param {(value: T) => void} choose
 */
export function segments(name, choices, chosen, choose) {
  return h('fieldset', { class: 'seg' }, h('legend', { class: 'vh' }, name), ...choices.map(([value, word]) => h('label', null,
    h('input', { type: 'radio', name: name.toLowerCase(), value, checked: value === chosen, onchange: () => choose(value) }), word)));
}

/** @type {[HistoryRange, string][]} */
export const RANGES = [['10m', '10 min'], ['1h', '1 h'], ['24h', '24 h'], ['7d', '7 d']];

/** Without the last step, which is not over yet. @param {History} past */
export function whole(past) {
  for (const values of Object.values(past.series)) values.pop();
  return past;
}

/** @param {number} n */
export const jobs = (n) => plural(n, 'job');
