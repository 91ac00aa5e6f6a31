// Who is looking: the token, the login, and what may be drawn. The server checks anyway.

import { Problem, get, session } from './api.js';
import { h, icon } from './dom.js';

const KEY = 'windlass-token';

/** @type {Me} */
let me = { name: null, scopes: [], open: false, label: null };

/** @type {(() => void) | null} */
let changed = null;

export const who = () => me;
/** @param {string} scope */
export const may = (scope) => me.scopes.includes(scope) || me.scopes.includes('admin');
export const canWrite = () => may('admin');
export const kept = () => stored() !== null;

function stored() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Reads who we are; asks for a token if the server wants one. @param {() => void} onChange */
export async function begin(onChange) {
  changed = onChange;
  session.token = stored();
  session.refused = () => void ask();
  await identify();
}

async function identify() {
  me = await get('me');
  if (!may('read')) {
    const has = me.scopes.join(', ');
    void ask(`The token ${me.name ?? ''} has the scope ${has}; looking needs the scope read.`);
  }
}

/** Forgets the token, here and in the tab's storage. */
export function forget() {
  session.token = null;
  me = { name: null, scopes: [], open: false, label: null };
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // There was none.
  }
  changed?.();
  void ask();
}

let asking = false;

/** The login, over whatever is shown. @param {string} [why] */
function ask(why = '') {
  if (asking) return;
  asking = true;
  const input = h('input', { id: 'token', class: 'input mono', type: 'password', autocomplete: 'off', required: true });
  const keep = h('input', { type: 'checkbox' });
  const note = h('p', { class: 'note warn', hidden: !why, role: 'alert' }, icon('st-warn'), h('span', null, why));
  const form = h('form', { method: 'dialog', onsubmit: (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    void login();
  } },
  h('header', null, h('h2', { id: 'login' }, 'This server wants a token')),
  h('div', { class: 'body' }, note,
    h('div', { class: 'field' }, h('label', { for: 'token' }, 'Token'), input),
    h('label', { class: 'inline' }, keep, ' keep it until this tab is closed'),
    h('p', { class: 'mute' }, 'It is sent as a header to this server only, and never stored as a cookie. Tokens are made in the file given by ', h('code', null, '--token-file'), '.')),
  h('footer', null, h('button', { class: 'btn go', type: 'submit' }, 'Continue')));
  const dialog = h('dialog', { 'aria-labelledby': 'login', oncancel: (/** @type {Event} */ event) => event.preventDefault() }, form);
  const login = async () => {
    session.token = input.value.trim();
    try {
      me = await get('me');
      if (!may('read')) throw new Problem(403, 'forbidden', `This token has the scope ${me.scopes.join(', ')}; looking needs the scope read.`, '');
      if (keep.checked) sessionStorage.setItem(KEY, session.token);
      asking = false;
      dialog.close();
      dialog.remove();
      changed?.();
    } catch (error) {
      note.hidden = false;
      note.lastElementChild?.replaceChildren(error instanceof Error ? error.message : String(error));
      input.select();
    }
  };
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}
