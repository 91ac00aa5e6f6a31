// JSON for people: stored text is indented token by token and never parsed into numbers, so that an
// integer of any size stays as it is. What cannot be seen is shown by its code point.

import { h } from './dom.js';

/** Characters that are shown; the rest is a download. */
export const SHOWN = 256 * 1024;

const TOKEN = /"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^\s{}[\],:"]+|\s+/gsu;
// Control characters, bidi marks and invisible separators; line ends and tabs are shown as such.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;

/**
 * A text with what cannot be seen made visible, as nodes.
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function visible(text) {
  /** @type {(Node | string)[]} */
  const out = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > from) out.push(text.slice(from, found.index));
    const code = found[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, '0');
    out.push(h('span', { class: 'ph' }, `U+${code}`));
    from = found.index + 1;
  }
  if (from < text.length) out.push(text.slice(from));
  return out;
}

/** The same as plain text, for attributes and table cells. @param {string} text */
export function plain(text) {
  return text.replace(HIDDEN, (c) => `U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`);
}

/**
 * Stored JSON text, indented and coloured.
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function pretty(text) {
  const out = document.createDocumentFragment();
  let depth = 0;
  let line = '';
  const flush = () => {
    if (line) out.append(h('span', { class: 'p' }, line));
    line = '';
  };
  const tokens = text.slice(0, SHOWN).match(TOKEN) ?? [];
  const solid = tokens.filter((t) => t.trim() !== '');
  const indent = () => `\n${'  '.repeat(Math.min(depth, 40))}`;
  solid.forEach((token, at) => {
    const next = solid[at + 1];
    if (token === '{' || token === '[') {
      depth += 1;
      line += token;
      if (next !== '}' && next !== ']') line += indent();
    } else if (token === '}' || token === ']') {
      const empty = solid[at - 1] === '{' || solid[at - 1] === '[';
      depth = Math.max(0, depth - 1);
      line += empty ? token : indent() + token;
    } else if (token === ',') line += token + indent();
    else if (token === ':') line += ': ';
    else {
      flush();
      const kind = token.startsWith('"') ? (next === ':' ? 'k' : 's') : 'n';
      out.append(h('span', { class: kind }, ...visible(token)));
    }
  });
  flush();
  return out;
}
