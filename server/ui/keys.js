// Keyboard shortcuts: of every page, and of the one that is shown. Ignored in fields and with modifiers.

import { dialog, isOpen } from './dialog.js';
import { byId, h } from './dom.js';
import { togglePause } from './live.js';
import { nextTheme, prefer, prefs } from './prefs.js';
import { go } from './route.js';

/** @type {Record<string, () => unknown>} */
let ofPage = {};
let chord = false;

/** @type {Record<string, string>} */
const PLACES = { o: '#/', j: '#/jobs', q: '#/queues', w: '#/workers', ',': '#/settings' };

/** @type {[string, string][]} */
const HELP = [['/', 'search'], ['g then o j q w ,', 'overview, jobs, queues, workers, settings'], ['j k', 'next and previous row'], ['Enter', 'open'], ['x, Shift x, a', 'select a row, a range, the page'], ['r c Delete', 'retry, cancel, delete'], ['p', 'pause or resume the queue'], ['n', 'show newer jobs'], ['[ ]', 'newer and older page'], ['.', 'pause updates'], ['t', 'theme'], ['Esc', 'close, then clear']];

/** @param {Record<string, () => unknown>} keys */
export function pageKeys(keys) {
  ofPage = keys;
}

export function help() {
  const close = h('button', { class: 'btn', type: 'button', onclick: () => node.close() }, 'Close');
  const node = dialog('Keyboard', [h('dl', { class: 'facts keys' }, ...HELP.flatMap(([key, what]) => [h('dt', null, h('kbd', null, key)), h('dd', null, what)]))], [close]);
}

/** @type {Record<string, () => unknown>} */
const ofAll = { '/': () => byId('search').querySelector('input')?.focus(), '.': togglePause, t: () => prefer({ theme: nextTheme() }), '?': help, g: () => {
  chord = true;
  setTimeout(() => { chord = false; }, 1200);
} };

export function begin() {
  document.addEventListener('keydown', (event) => {
    const at = event.target;
    if (!prefs.keys || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isOpen()) return;
    if (at instanceof HTMLInputElement && at.type !== 'checkbox' && at.type !== 'radio') {
      if (event.key === 'Escape') at.blur();
      return;
    }
    if (at instanceof HTMLSelectElement || at instanceof HTMLTextAreaElement) return;
    if (event.key === 'Enter' && at instanceof Element && at.closest('a, button, summary')) return;
    const place = chord ? PLACES[event.key] : undefined;
    chord = false;
    const act = place ? () => go(place) : ofPage[event.key] ?? ofAll[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
