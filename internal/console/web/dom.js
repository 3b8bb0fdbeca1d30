// Building and updating the page. Views build a fresh tree; morph changes the shown one to match, so that focus, scroll
// positions and half-written forms stay.

const svgNames = new Set(['svg', 'g', 'path', 'circle', 'rect', 'text', 'line', 'title', 'polyline']);

// h builds an element. Attributes that are false, null or undefined are left out.
export function h(tag, attrs, ...children) {
  const el = svgNames.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attrs || {})) {
    if (value !== false && value !== null && value !== undefined) el.setAttribute(name, value === true ? '' : String(value));
  }
  el.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c))));
  return el;
}

// keptAttributes belong to the user: an opened section stays open, a marked box stays marked.
const keptAttributes = new Set(['open', 'checked', 'value']);

// morph changes old to match next.
export function morph(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const a of [...old.attributes]) if (!next.hasAttribute(a.name) && !keptAttributes.has(a.name)) old.removeAttribute(a.name);
  for (const a of next.attributes) if (!keptAttributes.has(a.name) && old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
  morphChildren(old, [...next.childNodes]);
}

// morphChildren makes the children of el match a list. Elements with a key keep their identity when the order changes.
export function morphChildren(el, next) {
  const keyed = new Map();
  for (const c of el.children) if (c.dataset && c.dataset.key) keyed.set(c.dataset.key, c);
  let at = el.firstChild;
  for (const want of next) {
    const key = want.dataset && want.dataset.key;
    const kept = key && keyed.get(key);
    if (kept && kept !== at) el.insertBefore(kept, at);
    const have = kept || at;
    if (have && have.nodeName === want.nodeName && have.nodeType === want.nodeType && (kept || !key) && (kept || !(have.dataset && have.dataset.key))) {
      at = have.nextSibling;
      morph(have, want);
    } else {
      el.insertBefore(want, at);
    }
  }
  while (at) {
    const after = at.nextSibling;
    at.remove();
    at = after;
  }
}

// table builds a table. columns are {name, unit, n (a figure, aligned right), wide}; rows are {key, cells, cls}.
export function table(caption, columns, rows, empty) {
  if (rows.length === 0) return h('p', { class: 'muted' }, empty || 'none');
  const cls = (c) => [c.n && 'n', c.wide && 'wide'].filter(Boolean).join(' ') || null;
  return h('div', { class: 'scroll' }, h('table', { 'aria-label': caption },
    h('thead', {}, h('tr', {}, columns.map((c) => h('th', { scope: 'col', class: cls(c) }, c.name, c.unit ? h('span', { class: 'unit' }, c.unit) : null)))),
    h('tbody', {}, rows.map((r) => h('tr', { 'data-key': r.key, class: r.cls || null }, r.cells.map((cell, i) => h('td', { class: cls(columns[i]) }, cell)))))));
}

// shareBar draws a share of a whole, 0..1.
export function shareBar(share, label) {
  const s = Math.max(0, Math.min(1, share || 0));
  return h('svg', { class: 'bar small', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    h('rect', { class: 'track', x: 0, y: 0, width: 100, height: 10 }), h('rect', { class: s >= 0.9 ? 'full' : 'use', x: 0, y: 0, width: (s * 100).toFixed(1), height: 10 }));
}

export const notice = (text, kind) => h('p', { class: 'notice ' + (kind || '') }, text);
