// Figures as text: at most three or four digits, with units.

export const dash = '–';
const known = (v) => v !== null && v !== undefined && Number.isFinite(v);

// count formats a whole number, with k and M for large ones.
export function count(n) {
  if (!known(n)) return dash;
  const a = Math.abs(n);
  if (a >= 1e7) return (n / 1e6).toFixed(0) + 'M';
  if (a >= 1e6) return (n / 1e6).toFixed(2) + 'M';
  if (a >= 1e4) return (n / 1e3).toFixed(0) + 'k';
  return String(Math.round(n));
}

// rate formats a number per time with one decimal below 100.
export const rate = (n) => (!known(n) ? dash : n !== 0 && Math.abs(n) < 100 ? n.toFixed(1) : count(n));

export const percent = (share) => (known(share) ? Math.round(share * 100) + ' %' : dash);

// millis formats seconds as milliseconds below 10 s, and as seconds above.
export function millis(seconds) {
  if (!known(seconds)) return dash;
  const ms = seconds * 1000;
  if (Math.abs(ms) < 10) return ms < 0.05 && ms > -0.05 ? '0 ms' : ms.toFixed(1) + ' ms';
  if (Math.abs(ms) < 10000) return Math.round(ms) + ' ms';
  return seconds.toFixed(1) + ' s';
}

// age formats milliseconds as the time since something.
export function age(ms) {
  if (!known(ms) || ms < 0) return dash;
  if (ms < 10000) return (ms / 1000).toFixed(1) + ' s';
  if (ms < 120000) return Math.round(ms / 1000) + ' s';
  return span(ms);
}

// span formats a longer duration in milliseconds, such as 3 h 20 min.
export function span(ms) {
  const s = Math.round(ms / 1000);
  if (s < 60) return s + ' s';
  const join = (a, b) => a + (b.startsWith('0 ') ? '' : ' ' + b);
  if (s < 3600) return join(Math.floor(s / 60) + ' min', (s % 60) + ' s');
  if (s < 172800) return join(Math.floor(s / 3600) + ' h', Math.floor((s % 3600) / 60) + ' min');
  return Math.floor(s / 86400) + ' d';
}

export const isSet = (time) => Boolean(time) && !time.startsWith('0001');

// clock formats a time of the API in UTC, as in the commands' output.
export const clock = (time) => (isSet(time) ? time.slice(0, 10) + ' ' + time.slice(11, 19) + ' UTC' : dash);

// parseSpan parses "90s", "30m", "2h" or "1h30m" to milliseconds; null if it is none, 0 for an empty text.
export function parseSpan(text) {
  const t = text.trim().replace(/\s+/g, '');
  if (t === '') return 0;
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(t)) return null;
  const units = { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000 };
  let sum = 0;
  for (const part of t.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) sum += Number(part[1]) * units[part[2]];
  return Math.round(sum);
}

const stateWords = { fresh: 'reporting', lost: 'unreachable', starting: 'not ready', sick: 'unhealthy', well: 'healthy', silent: 'unreachable' };

// stateWord returns the word of the commands for a state of the API.
export const stateWord = (s) => stateWords[s] || s || dash;

export const stateClass = (s) => ({ fresh: 'good', ready: 'good', well: 'good', connected: 'good', lost: 'bad', sick: 'bad', silent: 'bad', down: 'bad', refused: 'bad', 'cannot write': 'bad', stale: 'warn', starting: 'warn', draining: 'warn', behind: 'warn' })[s] || 'muted';
