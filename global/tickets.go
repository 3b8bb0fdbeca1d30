package global

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

// rotateTickets puts a new key for redirect tickets in force, with r.Purge in place of all others.
func (s *Server) rotateTickets(ctx context.Context, r admin.TicketsRequest, actor string) (*admin.TicketsAnswer, error) {
	if err := s.node.ReplaceTicketKeys(ctx, r.Purge, consensus.By{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, refusal(err)
	}
	agreed := s.node.State()
	s.log.Info("ticket keys rotated", "purge", r.Purge, "keys", len(agreed.TicketKeys), "actor", actor, "reason", r.Reason)
	s.await(ctx, func(v *View) bool { return v.state.Index >= agreed.Index })
	out := &admin.TicketsAnswer{Keys: []time.Time{}}
	for _, k := range s.node.State().TicketKeys {
		out.Keys = append(out.Keys, k.At)
	}
	return out, nil
}
