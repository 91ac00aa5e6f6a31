// The start, and which page is shown.

import { begin as beginAuth } from './auth.js';
import { byId, h, put } from './dom.js';
import { plain } from './json.js';
import { begin as beginKeys, pageKeys } from './keys.js';
import { begin as beginLive, restart } from './live.js';
import { refusal } from './parts.js';
import { mount as job } from './page_job.js';
import { mount as jobs } from './page_jobs.js';
import { mount as overview } from './page_overview.js';
import { mount as queue } from './page_queue.js';
import { mount as queues } from './page_queues.js';
import { mount as settings } from './page_settings.js';
import { mount as workers } from './page_workers.js';
import { showTheme } from './prefs.js';
import { begin as beginRoute, here, link, remembered, rewrite } from './route.js';
import { begin as beginShell, crumb, showWho } from './shell.js';

/** @typedef {(page: Page) => () => void} Mount */

/** Pages by the first part of the path: without and with a name. Errors and schedules come here. @type {Record<string, { title: string, all: Mount, one?: Mount }>} */
const PAGES = {
  overview: { title: 'Overview', all: overview },
  jobs: { title: 'Jobs', all: jobs, one: job },
  queues: { title: 'Queues', all: queues, one: queue },
  workers: { title: 'Workers', all: workers },
  settings: { title: 'Settings', all: settings },
};

/** @type {() => void} */
let unmount = () => {};
let first = true;

function show() {
  unmount();
  unmount = () => {};
  pageKeys({});
  const { path, query } = here();
  const name = path[0] ?? 'overview';
  const page = Object.hasOwn(PAGES, name) && path.length <= 2 ? PAGES[name] : undefined;
  const mount = path.length === 2 ? page?.one : page?.all;
  const main = byId('main');
  put(main);
  if (!page || !mount) {
    crumb('', 'Not found');
    put(main, h('section', { class: 'panel' }, h('div', { class: 'body stack firstbody' }, h('p', null, h('b', null, 'There is no such page: '), h('code', null, plain(location.hash))), h('p', null, h('a', { href: '#/' }, 'Overview')))));
    return;
  }
  crumb(name, page.title);
  unmount = mount({
    main, path, query, keys: pageKeys, again: show,
    crumb: (parent, title) => crumb(name, plain(title), parent),
    address: (change) => {
      const now = here();
      rewrite(link(now.path, { ...Object.fromEntries(now.query), ...change }));
    },
  });
  scrollTo(0, remembered()?.y ?? 0);
  if (!first) byId('crumb').querySelector('h1')?.focus({ preventScroll: true });
  first = false;
  document.documentElement.dataset.page = name;
}

async function begin() {
  showTheme();
  beginShell();
  beginKeys();
  try {
    await beginAuth(() => {
      showWho();
      restart();
      show();
    });
  } catch (error) {
    put(byId('main'), refusal(error, () => location.reload()));
  }
  showWho();
  beginRoute(show);
  show();
  beginLive();
}

void begin();
