// A real server, a real browser, and a page on which every error and every violation of the policy
// fails the test.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const here = fileURLToPath(new URL('.', import.meta.url));
const binary = process.env.WINDLASS_BIN ?? join(here, '../../target/debug/windlass');
/** With `WINDLASS_UI=1` the files of the folder are sent in place of those in the binary: no build is needed. */
const FILES = process.env.WINDLASS_UI ? join(here, '../../server/ui') : null;
export const AXE = readFileSync(join(here, 'node_modules/axe-core/axe.min.js'), 'utf8');

export class Server {
  /** @param {string[]} args @param {string} [store] one in a folder of its own if absent */
  constructor(args = [], store = undefined) {
    this.folder = mkdtempSync(join(tmpdir(), 'windlass-ui-'));
    this.args = args;
    this.store = store ?? `sqlite:${join(this.folder, 'data/w.db')}`;
  }

  /** @param {number} port */
  async start(port = 0) {
    this.child = spawn(binary, ['--store', this.store, 'serve', '--listen', `127.0.0.1:${port}`, ...this.args], { stdio: ['ignore', 'pipe', 'ignore'] });
    const line = await new Promise((resolve, reject) => {
      let said = '';
      this.child.stdout.on('data', (data) => {
        said += data;
        const found = said.match(/http:\/\/127\.0\.0\.1:(\d+)/);
        if (found) resolve(found);
      });
      this.child.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
    });
    this.port = Number(line[1]);
    this.url = `http://127.0.0.1:${this.port}/`;
    return this;
  }

  async kill() {
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await ended;
  }

  async end() {
    if (this.child.exitCode === null && this.child.signalCode === null) await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  file(name, text) {
    const path = join(this.folder, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }

  async call(method, path, body, headers = {}) {
    const response = await fetch(new URL(path, this.url), { method, headers: { 'content-type': 'application/json', ...headers }, body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body) });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, json: () => JSON.parse(text) };
  }

  async enqueue(job) {
    const reply = await this.call('POST', 'jobs', job);
    if (reply.status !== 202) throw new Error(reply.text);
    return reply.json().job.id;
  }

  /** A job that was claimed and failed for good. */
  async dead(job, report) {
    const id = await this.enqueue({ queue: 'dead', max_retries: 0, ...job });
    const claimed = (await this.call('POST', 'jobs/poll', { worker: 'tester', queues: [job.queue ?? 'dead'], max: 1 })).json().jobs;
    const token = claimed.find((one) => one.id === id).lease.token;
    await this.call('POST', `jobs/${id}/fail`, { token, ...report });
    return id;
  }
}

/** A proxy that serves the server below a prefix, and may hold streams back. */
export async function proxy(server, prefix, holdsStreams = false) {
  let holds = holdsStreams;
  const node = createServer((req, res) => {
    if (!req.url.startsWith(prefix)) return res.writeHead(404).end();
    const path = req.url.slice(prefix.length - 1);
    if (holds && path.startsWith('/events')) return undefined;
    const up = request({ port: server.port, host: '127.0.0.1', method: req.method, path, headers: req.headers }, (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
    });
    up.on('error', () => res.destroy());
    res.on('close', () => up.destroy());
    req.pipe(up);
  });
  await new Promise((resolve) => node.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${node.address().port}${prefix}`, holds: (on) => { holds = on; }, close: () => { node.closeAllConnections(); node.close(); } };
}

let browser;
export async function open() {
  browser ??= await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
  return browser;
}
export const close = () => browser?.close();

/**
 * Runs a test on a page; whatever goes wrong in the browser fails it, but for what `expected` matches.
 * @param {{ width?: number, height?: number, dark?: boolean, expected?: RegExp, forced?: boolean, zoom?: number }} options
 */
export async function onPage(url, options, test) {
  const context = await (await open()).newContext({ viewport: { width: options.width ?? 1440, height: options.height ?? 900 }, deviceScaleFactor: options.zoom ?? 1, forcedColors: options.forced ? 'active' : 'none', colorScheme: options.dark ? 'dark' : 'light', reducedMotion: 'reduce' });
  if (FILES) {
    await context.route(/\/ui\/[0-9a-f]{12}\//, (route) => route.fulfill({ path: join(FILES, route.request().url().split('/').pop()) }));
    const shell = readFileSync(join(FILES, 'index.html'), 'utf8').replace('{modules}', '');
    await context.route((to) => to.pathname.endsWith('/') && !to.pathname.startsWith('/ui'), async (route) => {
      const response = await route.fetch();
      const build = (await response.text()).match(/ui\/([0-9a-f]{12})\//)[1];
      await route.fulfill({ response, body: shell.replaceAll('{build}', build) });
    });
  }
  const page = await context.newPage();
  const wrong = [];
  const origin = new URL(url).origin;
  const note = (text) => options.expected?.test(text) || wrong.push(text);
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && note(message.text()));
  page.on('pageerror', (error) => note(error.stack ?? error.message));
  page.on('dialog', (dialog) => { note(`dialog ${dialog.message()}`); void dialog.dismiss(); });
  page.on('request', (request) => new URL(request.url()).origin === origin || request.url().startsWith('data:') || note(`request of ${request.url()}`));
  await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => console.error(`violates ${event.violatedDirective}`)));
  try {
    await page.goto(url);
    await test(page);
  } finally {
    await context.close();
  }
  if (wrong.length > 0) throw new Error(`in the browser: ${wrong.join('\n')}`);
}

/** Waits for this number of further snapshots. */
export async function snapshots(page, more = 1) {
  const from = Number(await page.evaluate(() => document.documentElement.dataset.rev ?? '0'));
  await page.waitForFunction((wanted) => Number(document.documentElement.dataset.rev ?? '0') >= wanted, from + more, { timeout: 20_000 });
}
