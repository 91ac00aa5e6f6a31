// Numbers, ages and instants as people read them.

import { prefs } from './prefs.js';

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** @param {number} n */
export const int = (n) => whole.format(n);

/** One decimal below a hundred. @param {number} n */
export function rate(n) {
  return n >= 100 ? int(n) : (Math.round(n * 10) / 10).toFixed(1);
}

/** 9.82 M, for tiles. @param {number} n @returns {[string, string]} */
export function short(n) {
  if (n < 100_000) return [int(n), ''];
  return n < 1e6 ? [(n / 1e3).toFixed(0), 'k'] : [(n / 1e6).toFixed(2), 'M'];
}

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${int(n)} ${n === 1 ? one : many}`;

/** A length of time: 7 ms, 0.4 s, 41 s, 1 m 05 s, 2 h 04 m, 3 d. @param {number} ms */
export function span(ms) {
  if (ms < 100) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9_950) return `${(ms / 1000).toFixed(1).replace(/\.0$/, '')} s`;
  const sec = Math.round(ms / 1000);
  if (sec < 60) return `${sec} s`;
  if (sec < 3600) return `${Math.floor(sec / 60)} m ${String(sec % 60).padStart(2, '0')} s`;
  const min = Math.floor(sec / 60);
  if (min < 2880) return `${Math.floor(min / 60)} h ${String(min % 60).padStart(2, '0')} m`;
  return `${Math.floor(min / 1440)} d`;
}

/** A length of time in one unit, for sentences: 41 min, 3 h. @param {number} ms */
export function about(ms) {
  if (ms < 60_000) return span(ms < 1000 ? ms : Math.round(ms / 1000) * 1000);
  if (ms < 5_400_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 129_600_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** An age in a table: below a second it is "now". @param {number} ms */
export const age = (ms) => (ms < 1000 ? 'now' : span(Math.floor(ms / 1000) * 1000));

/** @param {number} n @returns {[string, string]} */
export function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let at = 0;
  let value = n;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return [at === 0 ? int(value) : value.toPrecision(3).replace(/\.?0+$/, (z) => (z.startsWith('.') ? '' : z)), units[at]];
}

/** @param {number} n */
export const size = (n) => bytes(n).join(' ');

/** @param {Date} d @param {Intl.DateTimeFormatOptions} options */
function local(d, options) {
  return new Intl.DateTimeFormat('en-GB', { ...options, hourCycle: 'h23', timeZone: prefs.utc ? 'UTC' : undefined }).format(d);
}

/** 14:05. @param {number} ms */
export const hhmm = (ms) => local(new Date(ms), { hour: '2-digit', minute: '2-digit' });

/** 14:05:11. @param {number} ms */
export const hms = (ms) => local(new Date(ms), { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** 17 Nov. @param {number} ms */
export const day = (ms) => local(new Date(ms), { day: 'numeric', month: 'short' });

/** 14:05:11.274 UTC, with the day if it is not today's. @param {string} iso @param {number} now */
export function instant(iso, now) {
  const at = Date.parse(iso);
  const zone = prefs.utc ? ' UTC' : '';
  const time = `${hms(at)}.${iso.slice(20, 23)}${zone}`;
  return day(at) === day(now) ? time : `${day(at)} ${time}`;
}

/** @param {string | null | undefined} iso */
export const ms = (iso) => (iso ? Date.parse(iso) : NaN);

/** A word with a capital. @param {string} text */
export const cap = (text) => text.charAt(0).toUpperCase() + text.slice(1);
