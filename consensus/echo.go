package consensus

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// echo thins what raft repeats while a peer is down, and knows when the peer is back: who was given up is dialled anew,
// and that succeeds.
type echo struct {
	names   map[string]string // address to node name
	repeats telemetry.Repeats
}

// pass reports whether a line is to be written, and how many like it about the same peer were left out before it.
func (e *echo) pass(msg string, args []any) (leftOut int, ok bool) {
	return e.repeats.Pass(msg, e.subject(args), time.Now())
}

// subject is the peer that a line is about, by name where it is known; empty when it is about none.
func (e *echo) subject(args []any) string {
	for _, a := range args {
		switch a := a.(type) {
		case raft.Server:
			return string(a.ID)
		case raft.ServerID:
			return string(a)
		case raft.ServerAddress:
			return e.name(string(a))
		}
	}
	return ""
}

func (e *echo) name(addr string) string {
	if n, ok := e.names[addr]; ok {
		return n
	}
	return addr
}

// back says, once, that a peer answers again of which trouble was logged.
func (l hcLogger) back(addr string) {
	if l.echo == nil {
		return
	}
	peer := l.echo.name(addr)
	if left, ok := l.echo.repeats.Back(peer); ok {
		l.to.Info("raft peer is back", telemetry.KeyPeer, peer, telemetry.KeyLeftOut, left)
	}
}
