// Changes by operators and by the leader: the audit log.
import { h, table } from '../dom.js';
import { clock } from '../format.js';

export const events = {
  id: 'events', title: () => 'Events', feeds: ['audit'], needs: 'audit',
  render(ctx) {
    const a = ctx.live.value('audit');
    if (!a) return [h('p', { class: 'muted' }, ctx.live.faults.audit || 'waiting for the first events')];
    const list = [...(a.records || [])].reverse().slice(0, 300);
    return [h('p', { class: 'muted' }, `${(a.records || []).length} newest changes, newest first.` + (a.file ? ' All are in ' : ''), a.file ? h('code', {}, a.file) : null),
      table('Events', [{ name: 'No.', n: 1 }, { name: 'Time' }, { name: 'Actor' }, { name: 'Action' }, { name: 'Subject' }, { name: 'Reason', wide: 1 }, { name: 'Details' }],
        list.map((r) => ({ key: String(r.seq), cells: [r.seq, clock(r.at), r.actor, r.action, r.subject || '', r.reason || '', r.detail ? h('details', {}, h('summary', {}, 'show'), h('pre', {}, r.detail)) : ''] })), 'no changes yet')];
  },
};
