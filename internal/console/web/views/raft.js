// The Raft cluster of the global nodes.
import { h, notice, table } from '../dom.js';
import { age, count, stateClass, stateWord, dash } from '../format.js';

export const raft = {
  id: 'raft', title: () => 'Raft', feeds: ['members', 'status'], needs: 'members',
  render(ctx) {
    const a = ctx.live.value('members'), status = ctx.live.value('status'), r = status && status.raft;
    if (!a) return [h('p', { class: 'muted' }, ctx.live.faults.members || 'waiting for the first figures')];
    const voters = a.members.filter((m) => m.voter).length, leader = a.members.find((m) => m.leader);
    return [a.outside ? notice(a.outside, 'bad') : null, leader ? null : notice('No leader: DNS answers and redirects continue with the last plan; nothing can be changed.', 'bad'),
      a.spare === undefined ? null : notice(a.spare < 0 ? `${a.can_write} of ${voters} voters can write: nothing can be changed until ${-a.spare} more can.` : `${a.can_write} of ${voters} voters can write; ${a.spare} may fail while changes stay possible.`, a.spare < 0 ? 'bad' : a.spare > 0 ? 'good' : ''),
      table('Members', [{ name: 'Node' }, { name: 'Address' }, { name: 'Kind' }, { name: 'Health' }, { name: 'Last contact', n: 1 }, { name: 'Behind', unit: 'entries', n: 1 }, { name: 'Clock', unit: 'offset', n: 1 }, { name: 'Outlook', wide: 1 }],
        a.members.map((m) => ({ key: m.name, cells: [m.name + (m.name === a.node ? ' (this node)' : ''), h('code', {}, m.addr), (m.voter ? 'voter' : 'non-voter') + (m.leader ? ', leader' : ''), h('span', { class: stateClass(m.health) }, stateWord(m.health)), m.last_contact_ms === undefined ? dash : age(m.last_contact_ms), m.behind === undefined ? dash : count(m.behind), m.clock_offset_ms === undefined ? dash : m.clock_offset_ms + ' ms', m.outlook || ''] }))),
      r ? [h('h2', {}, 'This node'), h('dl', {}, [['State', (r.state || '').toLowerCase()], ['Term', r.term], ['Applied index', r.applied], ['Commit index', r.commit], ['Last index', r.last], ['Clock', (r.clock && r.clock.text) || dash]].map(([k, v]) => [h('dt', {}, k), h('dd', {}, v)]))] : null];
  },
};
