package regional

import (
	"net/http"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
)

// promptKeys holds the prefix hashes of a request's prompt.
type promptKeys struct {
	prefixBuf [capacity.MaxLandmarks]uint64
}

// computePromptKeys computes the prefix hashes of a request's prompt and its session key. If the client names no
// session, the beginning of its prompt identifies it: the next turn of a conversation begins with the earlier
// turns.
func (g *gatewayServer) computePromptKeys(q *gatewayRequest, h http.Header) {
	secret := q.policy.prefixSeed
	if v := g.router.view.Load(); q.noGeneratedText || secret == 0 || len(v.Locals)+len(v.Peers) < 2 {
		return
	}
	owner := q.policy.spec.PrefixOwner(q.tenant.Name)
	q.query.Prefix = capacity.AppendLandmarks(q.promptKeys.prefixBuf[:0], secret, owner, q.model.Name, q.env.Prompt)
	name := h.Get(forward.HeaderClientSession)
	if name == "" {
		name = q.env.User
	}
	if name != "" {
		d := xxhash.NewWithSeed(secret)
		_, _ = d.WriteString(q.tenant.Name)
		_, _ = d.WriteString("\x00" + q.model.Name + "\x00")
		_, _ = d.WriteString(name)
		q.query.Session = max(1, d.Sum64())
	}
}
