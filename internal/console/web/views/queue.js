// The queues of a local instance.
import { h, shareBar, table } from '../dom.js';
import { age, count, percent } from '../format.js';

export const queue = {
  id: 'queue', title: () => 'Queues', feeds: ['queue'], needs: 'queue',
  render(ctx) {
    const a = ctx.live.value('queue');
    if (!a) return [h('p', { class: 'muted' }, ctx.live.faults.queue || 'waiting for the first figures')];
    return (a.models || []).length === 0 ? [h('p', { class: 'muted' }, 'no model is served')] : a.models.map((m) => [h('h2', {}, m.model),
      h('p', {}, shareBar(m.saturation, 'saturation ' + percent(m.saturation)), ` saturation ${percent(m.saturation)}, ${count(m.waiting)} of ${count(m.max_waiting)} waiting, dispatching ${count(m.drain_tokens_per_second)} tok/s`, m.shed_probability > 0 ? `, ${percent(m.shed_probability)} of batch requests refused` : '', m.panic ? h('strong', { class: 'bad' }, ' too few healthy workers: ejected ones are used') : null),
      table(m.model, [{ name: 'Class' }, { name: 'Waiting', n: 1 }, { name: 'Running', n: 1 }, { name: 'Prompt tokens', unit: 'waiting', n: 1 }, { name: 'Oldest', n: 1 }, { name: 'Wait', unit: 'predicted', n: 1 }, { name: 'Without waiting', n: 1 }, { name: 'After waiting', n: 1 }, { name: 'Left', n: 1 }, { name: 'Evicted', n: 1 }, { name: 'Refused', n: 1 }, { name: 'Tenants', n: 1 }],
        m.classes.map((c) => ({ key: c.class, cells: [c.class, count(c.waiting), count(c.running), count(c.tokens), c.waiting ? age(c.oldest_ms) : '', age(c.wait_ms), count(c.passed), count(c.taken), count(c.gone), count(c.evicted), count(Object.values(c.refused || {}).reduce((x, y) => x + y, 0)), c.tenant_count] })))]);
  },
};
