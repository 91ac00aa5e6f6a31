// Pictures of every page of a demo: `node shots.js FOLDER [SECONDS]` lets the demo run for that long
// and writes PAGE-WIDTH-THEME.png into the folder. `node shots.js docs [SECONDS]` takes those of the
// documents instead, into docs/pictures;
// a third argument names the only one to take.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Server, close, onPage } from './harness.js';

const [folder = 'shots', seconds = '60', only = ''] = process.argv.slice(2);
const documents = folder === 'docs';
const place = documents ? fileURLToPath(new URL('../../docs/pictures', import.meta.url)) : folder;
mkdirSync(place, { recursive: true });

const server = await new Server(['--demo']).start();
await new Promise((resolve) => setTimeout(resolve, Number(seconds) * 1000));

const get = async (path) => (await server.call('GET', path)).json();
const [group] = (await get('errors?limit=1')).groups;
// A command that took several attempts shows the most.
const [{ id: job }] = (await get('jobs?state=failed&kind=command&fields=row&limit=1')).jobs;

/** @type {Record<string, string>} */
const PAGES = {
  overview: '#/', queues: '#/queues', queue: '#/queues/reports', jobs: '#/jobs', failed: '#/jobs?state=failed', job: `#/jobs/${job}`, errors: `#/errors/${group.id}`, groups: '#/errors', workers: '#/workers', settings: '#/settings',
};

/** Takes one picture, of the whole page unless it is for a document. */
async function shoot(name, page, width, dark) {
  await onPage(server.url + PAGES[page], { width, height: documents && width < 500 ? 760 : 900, dark, zoom: documents && width < 500 ? 1.5 : 1, expected: /ERR_/ }, async (tab) => {
    await tab.waitForFunction(() => document.documentElement.dataset.rev && !document.querySelector('[aria-busy=true]'));
    await tab.waitForTimeout(1500);
    await tab.screenshot({ path: join(place, `${name}.png`), fullPage: !documents });
  });
}

if (documents) {
  const named = [['overview', 'overview', 1440, false], ['queue', 'queue', 1440, false], ['job-dark', 'job', 1440, true], ['jobs-phone', 'failed', 375, false], ['errors', 'errors', 1440, false]];
  for (const [name, page, width, dark] of named.filter(([name]) => only === '' || name === only)) await shoot(name, page, width, dark);
} else {
  for (const page of Object.keys(PAGES)) {
    for (const width of [320, 375, 1440]) {
      for (const dark of [false, true]) await shoot(`${page}-${width}-${dark ? 'dark' : 'light'}`, page, width, dark);
    }
  }
}
await close();
await server.end();
