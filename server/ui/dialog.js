// Dialogs that ask before something is done, and toasts that tell that it was.

import { byId, h, icon } from './dom.js';

/** @typedef {{ label: string, act: () => void }} ToastAction */

/** @param {string} text @param {ToastAction | null} [action] @param {number} [forMs] @returns {{ say: (text: string) => void, close: () => void }} */
export function toast(text, action = null, forMs = 10_000) {
  const place = byId('toasts');
  const word = h('b', null, text);
  const node = h('div', { class: 'bulk still' }, word);
  const close = () => node.remove();
  if (action) {
    node.append(h('button', { class: 'btn small', type: 'button', onclick: () => {
      close();
      action.act();
    } }, action.label));
  }
  node.append(h('button', { class: 'btn bare small', type: 'button', 'aria-label': 'Dismiss', onclick: close }, icon('x', 's')));
  while (place.children.length > 2) place.firstElementChild?.remove();
  place.append(node);
  if (forMs > 0) setTimeout(close, forMs);
  return { say: (next) => { word.textContent = next; }, close };
}

/**
 * Shows a dialog until it is closed; the focus goes back to where it was.
 * @param {string} title @param {Child[]} body @param {HTMLElement[]} buttons the first is the safe one
 * @returns {HTMLDialogElement}
 */
export function dialog(title, body, buttons) {
  const opener = document.activeElement;
  const node = h('dialog', { 'aria-labelledby': 'dialog-title', onclose: () => {
    node.remove();
    if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
  } }, h('header', null, h('h2', { id: 'dialog-title' }, title)), h('div', { class: 'body' }, ...body), buttons.length > 0 ? h('footer', null, ...buttons) : null);
  document.body.append(node);
  node.showModal();
  buttons[0]?.focus();
  return node;
}

/**
 * Asks; above a hundred the number has to be typed. The focus starts on the safe button.
 * @param {{ title: string, body: Child[], safe: string, verb: string, count: number, danger?: boolean }} ask
 * @returns {Promise<boolean>}
 */
export function confirm(ask) {
  return new Promise((resolve) => {
    const typed = ask.count > 100;
    const go = h('button', { class: ask.danger ? 'btn stop' : 'btn go', type: 'button', disabled: typed, onclick: () => {
      resolve(true);
      node.close();
    } }, ask.verb);
    const safe = h('button', { class: 'btn', type: 'button', onclick: () => node.close() }, ask.safe);
    const input = h('input', { id: 'typed', class: 'input', inputmode: 'numeric', autocomplete: 'off', oninput: () => {
      go.disabled = input.value.replace(/\D/g, '') !== String(ask.count);
    } });
    const field = typed ? h('div', { class: 'field' }, h('label', { for: 'typed' }, `Type ${ask.count}`), input) : null;
    const node = dialog(ask.title, [...ask.body, field], [safe, go]);
    node.addEventListener('close', () => resolve(false));
  });
}

export const isOpen = () => document.querySelector('dialog[open]') !== null;
