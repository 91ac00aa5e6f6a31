// Filters of the list of jobs: what a search means, and the chips that show it.

import { h, icon } from './dom.js';

/** Filters that the list understands, in the order of their chips. */
export const NAMES = ['queue', 'kind', 'key', 'id'];
export const STATES = ['queued', 'scheduled', 'processing', 'done', 'failed', 'cancelled'];
/** What belongs to the address and is no filter. */
const OTHERS = ['state', 'cursor', 'row', 'range'];

/**
 * What was typed: a job's id, or words like `queue:mail`. Words that mean nothing are kept, so that
 * they can be shown as such.
 * @param {string} text
 * @returns {{ job: string | null, query: Record<string, string> }}
 */
export function parse(text) {
  const typed = text.trim();
  if (/^\d{1,19}$/.test(typed)) return { job: typed, query: {} };
  /** @type {Record<string, string>} */
  const query = {};
  for (const word of typed.match(/[^\s:"]+:"[^"]*"|\S+/g) ?? []) {
    const colon = word.indexOf(':');
    const name = colon > 0 ? word.slice(0, colon).toLowerCase() : '';
    const value = word.slice(colon + 1).replace(/^"|"$/g, '');
    if (name !== '' && value !== '') query[name] = value;
    else query.text = query.text ? `${query.text} ${word}` : word;
  }
  return { job: null, query };
}

/** @param {URLSearchParams} query @returns {{ known: Record<string, string>, unknown: [string, string][] }} */
export function read(query) {
  /** @type {Record<string, string>} */
  const known = {};
  /** @type {[string, string][]} */
  const unknown = [];
  for (const [name, value] of query) {
    if (name === 'state' && STATES.includes(value)) known.state = value;
    else if (NAMES.includes(name) && good(name, value)) known[name] = value;
    else if (name === 'state' || !OTHERS.includes(name)) unknown.push([name, value]);
  }
  return { known, unknown };
}

/** @param {string} name @param {string} value */
function good(name, value) {
  if (name === 'id') return /^\d{1,19}(,\d{1,19})*$/.test(value);
  if (name === 'key') return /^[\x21-\x7e]{1,255}$/.test(value);
  return /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/.test(value);
}

/** A filter that can be taken off. @param {string} name @param {string} value @param {boolean} understood @param {() => void} remove */
export function chip(name, value, understood, remove) {
  return h('span', { class: understood ? 'chip' : 'chip bad' }, h('b', null, understood ? name : `${name} not understood`), h('span', null, value),
    h('button', { type: 'button', 'aria-label': `Remove the filter: ${name} ${value}`, onclick: remove }, icon('x', 's')));
}
