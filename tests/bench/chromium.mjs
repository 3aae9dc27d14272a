// Chromium, driven over its own pipe (--remote-debugging-pipe), so that no client library is needed.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const ANSWER_MS = 20_000;

export class Browser {
  constructor() {
    this.home = mkdtempSync(join(tmpdir(), 'fogmux-browser-'));
    const flags = ['--headless=new', '--remote-debugging-pipe', `--user-data-dir=${this.home}`, '--disable-gpu',
      '--no-first-run', '--hide-scrollbars', '--disable-extensions', '--disable-background-networking'];
    // Chromium's sandbox refuses root, which is what CI is.
    if (process.getuid() === 0) flags.push('--no-sandbox');
    this.process = spawn(process.env.CHROMIUM ?? 'chromium', flags, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    this.ended = new Promise(done => this.process.on('exit', done));
    this.failed = new Promise((_, fail) => {
      this.process.on('error', fail);
      this.process.on('exit', code => fail(new Error(`Chromium ended with ${code}`)));
    });
    this.failed.catch(() => {});
    this.number = 0;
    this.waiting = new Map();
    this.events = [];
    let rest = '';
    this.process.stdio[4].setEncoding('utf8').on('data', text => {
      const messages = (rest + text).split('\0');
      rest = messages.pop();
      messages.forEach(message => this.take(JSON.parse(message)));
    });
  }

  take(message) {
    const waits = this.waiting.get(message.id);
    if (!waits) { this.events.push(message); this.wake?.(); return; }
    this.waiting.delete(message.id);
    message.error ? waits.fail(new Error(message.error.message)) : waits.done(message.result);
  }

  call(method, params = {}, sessionId = undefined, patience = ANSWER_MS) {
    const id = ++this.number;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    const answer = new Promise((done, fail) => this.waiting.set(id, { done, fail }));
    return this.within(answer, method, patience);
  }

  async event(sessionId, method) {
    const found = () => this.events.find(event => event.sessionId === sessionId && event.method === method);
    const seen = async () => {
      while (!found()) await new Promise(done => { this.wake = done; });
    };
    await this.within(seen(), method);
  }

  within(answer, what, patience = ANSWER_MS) {
    let timer;
    const late = new Promise((_, fail) => {
      timer = setTimeout(() => fail(new Error(`no ${what} within ${patience} ms`)), patience);
    });
    return Promise.race([answer, late, this.failed]).finally(() => clearTimeout(timer));
  }

  async close() {
    await this.call('Browser.close').catch(() => this.process.kill('SIGKILL'));
    await this.ended;
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }
}
