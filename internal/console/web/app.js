// The console: login, choice of the view, and live updates.
import { call, CallError } from './api.js';
import { h, morphChildren } from './dom.js';
import { age } from './format.js';
import { Live } from './live.js';
import { TrafficWindow } from './traffic.js';
import { drains } from './views/drains.js';
import { events } from './views/events.js';
import { explain } from './views/explain.js';
import { fleet } from './views/fleet.js';
import { latency } from './views/latency.js';
import { node } from './views/node.js';
import { plans } from './views/plans.js';
import { queue } from './views/queue.js';
import { raft } from './views/raft.js';
import { tenants } from './views/tenants.js';
import { workers } from './views/workers.js';

const allViews = [fleet, workers, queue, latency, plans, explain, tenants, raft, drains, events, node];
const byID = (id) => document.getElementById(id);
const main = byID('main');

const ctx = { session: null, mayWrite: false, live: null, traffic: new TrafficWindow(), ui: {}, refresh: render, confirm: askConfirmation };
let views = [], current = null, scheduled = false;

ctx.live = new Live((feed) => {
  if (feed === 'status' && ctx.live.value('status')) ctx.traffic.push(ctx.live.value('status'), performance.now());
  schedule();
});
ctx.live.onRefused = () => start();

// schedule renders once per frame at most; hidden pages wait until they are seen.
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => { scheduled = false; render(); });
}

function render() {
  renderLiveness();
  if (!current || !ctx.session) return;
  const faults = current.feeds.filter((f) => ctx.live.faults[f] && ctx.live.value(f)).map((f) => h('p', { class: 'notice bad', 'data-key': 'fault ' + f }, `${f}: ${ctx.live.faults[f]}`));
  morphChildren(main, [h('div', { class: 'figures' }, h('h1', {}, current.title(ctx.session)), faults, current.render(ctx))]);
}

// renderLiveness shows whether the figures are current. It also runs on a timer, because a lost connection sends no events.
function renderLiveness() {
  const live = byID('live'), lost = byID('lost');
  if (!ctx.session) { live.textContent = ''; lost.hidden = true; document.body.classList.remove('old'); return; }
  const s = ctx.live.state();
  const asOf = s.age === null ? '' : `figures as of ${age(s.age)} ago`;
  document.body.classList.toggle('old', s.old && s.age !== null);
  live.classList.toggle('old', s.old);
  live.textContent = s.age === null ? 'connecting' : s.old ? asOf : 'live';
  lost.hidden = s.connected || ctx.live.eventAt === 0;
  if (!lost.hidden) lost.textContent = `Connection to the node lost: ${asOf || 'no figures yet'}. Connecting again.`;
}
setInterval(() => { if (ctx.session) schedule(); }, 1000);

// isOffered reports whether the node has what a view shows.
const isOffered = (v) => ctx.session.feeds.includes(v.needs) && (!v.action || ctx.session.actions.includes(v.action)) && (!v.when || v.when(ctx.session));

function route() {
  if (!ctx.session) return;
  const id = location.hash.slice(1);
  const next = views.find((v) => v.id === id) || views[0];
  if (next !== current) { main.replaceChildren(); window.scrollTo(0, 0); }
  current = next;
  for (const a of byID('nav').children) { if (a.dataset.view === current.id) a.setAttribute('aria-current', 'page'); else a.removeAttribute('aria-current'); }
  document.title = `${current.title(ctx.session)} · ${ctx.session.node} · Spillway`;
  // The status is always read, so that rates of the last minute are known in each view.
  ctx.live.show([...new Set([...current.feeds, 'status'])].filter((f) => ctx.session.feeds.includes(f)));
  render();
}

function showLogin(message) {
  ctx.session = null;
  ctx.live.close();
  byID('nav').replaceChildren();
  byID('logout').hidden = true;
  byID('caller').textContent = byID('node').textContent = '';
  renderLiveness();
  const failure = h('p', { class: 'notice bad', role: 'alert' }, message || '');
  failure.hidden = !message;
  const token = h('input', { type: 'password', id: 'token', name: 'token', autocomplete: 'current-password', required: true, spellcheck: 'false' });
  const form = h('form', { class: 'login' }, h('h1', {}, 'Log in'), failure, h('label', { for: 'token' }, 'Token'), token, h('button', { class: 'primary', type: 'submit' }, 'Log in'), h('p', { class: 'muted' }, 'A token is listed by its hash in admin.grants of the node’s config. Without one, run ', h('code', {}, 'spillway console'), ' on the node’s machine.'));
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    await logIn(token.value.trim());
  });
  main.replaceChildren(form);
  token.focus();
}

async function logIn(token) {
  try {
    await call('POST', 'login', { token });
  } catch (e) {
    showLogin(e.message + (e.hint ? ': ' + e.hint : ''));
    return;
  }
  await start();
}

async function start() {
  try {
    ctx.session = await call('GET', 'session');
  } catch (e) {
    if (e instanceof CallError && (e.status === 401 || e.status === 403)) { showLogin(ctx.session ? 'Your login has ended.' : ''); return; }
    if (!ctx.session) main.replaceChildren(h('p', { class: 'notice bad' }, `${e.message}. Trying again.`));
    renderLiveness();
    setTimeout(start, 2000);
    return;
  }
  ctx.mayWrite = ctx.session.role === 'operator' || ctx.session.role === 'admin';
  views = allViews.filter(isOffered);
  byID('node').textContent = `${ctx.session.node} (${ctx.session.tier})`;
  byID('caller').textContent = `${ctx.session.name}, ${ctx.session.role}`;
  byID('logout').hidden = !ctx.session.name.startsWith('token:');
  byID('nav').replaceChildren(...views.map((v) => h('a', { href: '#' + v.id, 'data-view': v.id }, v.title(ctx.session))));
  current = null;
  ctx.live.close();
  route();
}

// askConfirmation shows a dialog and returns whether it was confirmed. Cancel has the focus.
function askConfirmation(content, yes, dangerous) {
  const dialog = byID('dialog');
  const cancel = h('button', { type: 'button', autofocus: true }, 'Cancel'), confirm = h('button', { type: 'button', class: dangerous ? 'danger' : 'primary', id: 'confirm' }, yes);
  dialog.replaceChildren(content, h('menu', {}, cancel, confirm));
  return new Promise((resolve) => {
    let answer = false;
    cancel.addEventListener('click', () => dialog.close());
    confirm.addEventListener('click', () => { answer = true; dialog.close(); });
    dialog.addEventListener('close', () => resolve(answer), { once: true });
    dialog.showModal();
  });
}

// run calls the action of an element of the current view.
function run(el, event) {
  const action = current && current.actions && current.actions[el.dataset.action];
  if (!action) return;
  Promise.resolve(action(ctx, el, event)).then(render);
}
main.addEventListener('click', (e) => { const el = e.target.closest('button[data-action]'); if (el) run(el, e); });
main.addEventListener('change', (e) => { if (e.target.matches('select[data-action]')) run(e.target, e); });
main.addEventListener('input', (e) => { if (e.target.matches('input[data-action]')) run(e.target, e); });
main.addEventListener('submit', (e) => { if (e.target.dataset.action) { e.preventDefault(); run(e.target, e); } });

byID('logout').addEventListener('click', async () => { try { await call('POST', 'logout', {}); } finally { showLogin(''); } });
window.addEventListener('hashchange', route);
document.addEventListener('visibilitychange', () => { if (!document.hidden) schedule(); });

const theme = byID('theme'), system = matchMedia('(prefers-color-scheme: dark)');
function applyTheme() { document.documentElement.dataset.theme = theme.value === 'auto' ? (system.matches ? 'dark' : 'light') : theme.value; }
try { theme.value = localStorage.getItem('theme') || 'auto'; } catch { /* storage is off */ }
theme.addEventListener('change', () => { try { localStorage.setItem('theme', theme.value); } catch { /* storage is off */ } applyTheme(); });
system.addEventListener('change', applyTheme);
applyTheme();

// A token in the fragment (`spillway console` prints such a URL) logs in and is removed from the address at once.
const given = /^#token=(.+)$/.exec(location.hash);
if (given) {
  history.replaceState(null, '', location.pathname);
  logIn(decodeURIComponent(given[1]));
} else {
  start();
}
