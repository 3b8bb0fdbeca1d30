// The node itself: sources of its configuration, certificates and sessions with other tiers.
import { h, table } from '../dom.js';
import { age, clock, count, dash, percent, span, stateClass } from '../format.js';

export const node = {
  id: 'node', title: () => 'Node', feeds: ['status', 'uplinks'], needs: 'status',
  render(ctx) {
    const s = ctx.live.value('status'), u = ctx.live.value('uplinks');
    if (!s) return [h('p', { class: 'muted' }, 'waiting for the first figures')];
    const soon = (t) => Date.parse(t) - Date.now() < 14 * 86400e3;
    return [h('dl', {}, [['Node', s.node], ['Tier', s.role], ['Version', s.version || dash], ['Started', clock(s.started_at)], ['Spec', s.spec_file ? (s.spec_file.path || 'no file: defaults are in force') : 'v' + s.spec_version], ['Plan', s.plan_epoch || dash]].map(([k, v]) => [h('dt', {}, k), h('dd', {}, v)])),
      h('h2', {}, 'Configuration in force'), table('Configuration in force', [{ name: 'Part' }, { name: 'From' }, { name: 'Age', n: 1 }, { name: 'Details', wide: 1 }], (s.basis || []).map((b, i) => ({ key: b.what + i, cells: [b.what, b.from, age(b.age_ms), b.detail || ''] }))),
      h('h2', {}, 'Certificates'), table('Certificates', [{ name: 'Configuration key' }, { name: 'Expires' }, { name: 'Left', n: 1 }], (s.certificates || []).map((c) => ({ key: c.name, cells: [c.name, clock(c.expires_at), h('span', { class: soon(c.expires_at) ? 'bad' : null }, span(Date.parse(c.expires_at) - Date.now()))] })), 'this node has no certificates'),
      u ? [['Tier above', u.parents], ['Tier below', u.children]].filter(([, l]) => (l || []).length).map(([name, list]) => [h('h2', {}, name), table(name, [{ name: 'Peer' }, { name: 'Address' }, { name: 'State' }, { name: 'Since', n: 1 }, { name: 'Last report', n: 1 }, { name: 'RTT', n: 1 }, { name: 'Loss', n: 1 }, { name: 'In', unit: 'bytes', n: 1 }, { name: 'Out', unit: 'bytes', n: 1 }, { name: 'Remark', wide: 1 }],
        list.map((x, i) => ({ key: x.peer + x.address + i, cells: [x.path || x.peer || dash, h('code', {}, x.address), h('span', { class: stateClass(x.state) }, x.state), age(x.since_ms), age(x.age_ms), x.rtt_ms.toFixed(1) + ' ms', percent(x.loss), count(x.bytes_in), count(x.bytes_out), x.error || x.ignored || ''] })))]) : null];
  },
};
