// The store, the settings of the server, and those of this browser.

import { ready, tell } from './actions.js';
import { get, root, write } from './api.js';
import { canWrite, forget, kept, who } from './auth.js';
import { dialog, toast } from './dialog.js';
import { h, put } from './dom.js';
import { about, bytes, cap, int, ms, short, size } from './format.js';
import { now, subscribe } from './live.js';
import { big, busy, refusal, segments, tile } from './parts.js';
import { prefer, prefs } from './prefs.js';

/** @param {Page} page */
export function mount({ main, again }) {
  const control = new AbortController();
  const tiles = h('section', { class: 'panel tiles', 'aria-label': 'Store and server' });
  const list = h('section', { class: 'panel', 'aria-labelledby': 'set' });
  const me = who();
  put(main, tiles, h('div', { class: 'cols w-side' }, list, h('div', { class: 'stack' },
    h('section', { class: 'panel', 'aria-labelledby': 'me' }, h('header', null, h('h2', { id: 'me' }, 'You'), h('span', { class: 'end' }, me.open ? null : h('button', { class: 'btn small', type: 'button', onclick: forget }, 'Forget token'))),
      h('div', { class: 'body' }, h('dl', { class: 'facts' }, h('dt', null, 'Token'), h('dd', null, me.name ?? 'none needed'), h('dt', null, 'Scopes'), h('dd', null, me.scopes.join(', ')), me.open ? null : [h('dt', null, 'Kept in'), h('dd', null, kept() ? 'this tab, until it is closed' : 'memory only')]))),
    h('section', { class: 'panel', 'aria-labelledby': 'look' }, h('header', null, h('h2', { id: 'look' }, 'This browser')), h('div', { class: 'body form' },
      h('div', { class: 'inline' }, h('span', null, 'Theme'), segments('Theme', /** @type {['system' | 'light' | 'dark', string][]} */ ([['system', 'system'], ['light', 'light'], ['dark', 'dark']]), prefs.theme, (theme) => prefer({ theme }))),
      h('div', { class: 'inline' }, h('span', null, 'Times'), segments('Times', [['utc', 'UTC'], ['local', 'local']], prefs.utc ? 'utc' : 'local', (zone) => {
        prefer({ utc: zone === 'utc' });
        again();
      })),
      h('label', { class: 'inline' }, h('input', { type: 'checkbox', checked: prefs.keys, onchange: (/** @type {Event} */ e) => prefer({ keys: /** @type {HTMLInputElement} */ (e.target).checked }) }), ' Keyboard shortcuts ', h('kbd', null, '?')))),
    h('section', { class: 'panel', 'aria-labelledby': 'chk' }, h('header', null, h('h2', { id: 'chk' }, 'Check and copy')), h('div', { class: 'body stack' }, h('p', { class: 'soft' }, 'A check reads the whole store, so it is not a button:'), h('pre', { class: 'code wrap', tabindex: 0 }, 'windlass doctor\nwindlass backup /var/backups/windlass.db')),
      h('footer', null, h('a', { href: new URL('openapi.json', root).href }, 'openapi.json'), h('a', { href: new URL('metrics', root).href }, 'metrics'))))));
  const leave = subscribe((snap) => {
    const { store } = snap;
    const sum = Object.values(snap.counts).reduce((a, b) => a + b, 0);
    put(tiles, tile('Store', big(snap.health === 'good' ? 'Good' : 'Not good'), h('p', { class: snap.health === 'good' ? '' : 'is-warn', title: snap.health }, snap.health === 'good' ? `${store.kind}, ${store.durability} on every ack` : snap.health)), tile('Size', big(...bytes(store.bytes)), h('p', null, store.wal_bytes ? `and ${size(store.wal_bytes)} of WAL` : store.kind)),
      tile('Free on disk', store.free_bytes === null ? big('—') : big(...bytes(store.free_bytes)), h('p', null, 'refuses jobs below 32 MiB')), tile('Commit', big(store.commit_p50_ms.toPrecision(2), 'ms'), h('p', null, `p95 ${store.commit_p95_ms.toPrecision(2)} ms`)), tile('Jobs kept', big(...short(sum)), h('p', null, `${int(snap.counts.done)} done, ${int(snap.counts.failed)} failed`)), tile('Windlass', big(snap.version), h('p', null, `on ${snap.host}, up ${about(now() - ms(snap.started_at))}`)));
  });
  const load = async () => {
    try {
      const { settings } = await get('settings', control.signal);
      const th = (/** @type {Child} */ t, /** @type {string} */ c) => h('th', { scope: 'col', class: c }, t);
      put(list, h('header', null, h('h2', { id: 'set' }, 'Settings'), h('span', { class: 'mute' }, int(settings.length)), h('span', { class: 'end mute' }, 'flag before variable before store before default')),
        h('div', { class: 'scroll' }, h('table', null, h('thead', null, h('tr', null, th('Name', ''), th('What it does', 'w-m'), th('Value', 'num'), th('Comes from', 'w-m'), canWrite() ? th(h('span', { class: 'vh' }, 'Actions'), 'w-m') : null)), h('tbody', null, ...settings.map(row)))));
    } catch (error) {
      if (!control.signal.aborted) put(list, h('div', { class: 'body firstbody' }, refusal(error, load)));
    }
  };
  const row = (/** @type {Setting} */ one) => {
    const fixed = one.origin === 'flag' || one.origin === 'environment';
    const plainly = one.origin === 'default';
    const button = h('button', { class: 'btn small', type: 'button', 'data-write': true, 'aria-label': `${one.origin === 'store' ? 'Take back' : 'Change'} ${one.name}`, onclick: () => (one.origin === 'store' ? void busy(button, () => set(one, null)) : change(one)) }, one.origin === 'store' ? 'Take back' : 'Change');
    return h('tr', null, h('th', { scope: 'row' }, h('code', null, one.name)), h('td', { class: 'w-m soft cut wide', title: one.help }, one.help), h('td', { class: plainly ? 'num' : 'num strong' }, one.value), h('td', { class: plainly ? 'mute w-m' : 'strong w-m' }, one.origin === 'environment' ? 'variable' : one.origin), canWrite() ? h('td', { class: 'num w-m' }, fixed ? h('span', { class: 'mute' }, 'fixed at start') : button) : null);
  };
  const set = async (/** @type {Setting} */ one, /** @type {string | null} */ value) => {
    if (!ready()) return;
    if (value === null) await write('DELETE', `settings/${one.name}`);
    else await write('PUT', `settings/${one.name}`, { value });
    toast(`${one.name} is ${value ?? 'the default again'}`, { label: 'Undo', act: () => void set(one, one.stored).catch(tell) });
    await load();
  };
  const change = (/** @type {Setting} */ one) => {
    const input = h('input', { id: 'value', class: 'input', value: one.value, autocomplete: 'off' });
    const problem = h('div');
    const save = h('button', { class: 'btn go', type: 'button', onclick: () => void busy(save, async () => {
      try {
        await set(one, input.value.trim());
        node.close();
      } catch (error) {
        put(problem, refusal(error));
      }
    }) }, 'Save');
    const node = dialog(`Change ${one.name}`, [h('p', { class: 'soft' }, `${cap(one.help)}.`), h('div', { class: 'field' }, h('label', { for: 'value' }, 'Value', h('small', null, one.allowed)), input), h('p', { class: 'mute' }, `It is kept in the store and holds for every process within seconds. The default is ${one.default}.`), problem], [h('button', { class: 'btn', type: 'button', onclick: () => node.close() }, 'Leave it'), save]);
    input.select();
  };
  void load();
  return () => {
    leave();
    control.abort();
  };
}
