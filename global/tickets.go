package global

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

// rotateTicketKeys puts a new ticket key in force; with r.Purge it replaces all others.
func (s *memberAdmin) rotateTicketKeys(ctx context.Context, r admin.TicketsRequest, actor string) (*admin.TicketsAnswer, error) {
	if err := s.node.ReplaceTicketKeys(ctx, r.Purge, consensus.Attribution{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, toAdminError(err)
	}
	agreed := s.node.State()
	s.log.Info("ticket keys rotated", "purge", r.Purge, "keys", len(agreed.TicketKeys), "actor", actor, "reason", r.Reason)
	s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return v.state.Index >= agreed.Index })
	out := &admin.TicketsAnswer{Keys: []time.Time{}}
	for _, k := range s.node.State().TicketKeys {
		out.Keys = append(out.Keys, k.At)
	}
	return out, nil
}
