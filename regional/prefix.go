package regional

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/http"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/regional/zone"
)

// prefixSeed is what hashes of prefixes in sketches start from: the same at all gateways of the planet, known to their
// locals and to nobody outside, and another after each rotation of the ticket keys that it is derived from. Without keys
// there is none, and no prefix is named.
func prefixSeed(keys [][]byte) uint64 {
	if len(keys) == 0 {
		return 0
	}
	mac := hmac.New(sha256.New, keys[0])
	mac.Write([]byte("spillway: prefixes in sketches"))
	return max(1, binary.BigEndian.Uint64(mac.Sum(nil)))
}

// marks are what a request's prompt and session are known by.
type marks struct {
	room    [capacity.MaxLandmarks]uint64
	session uint64 // of the header or the user that the client names; 0 for none
	sought  bool   // its home was looked for
	had     int    // tokens of the prompt that its home had
}

// recognise names the beginnings of a request's prompt, as sketches do, and its session. Where the client names no session
// its prompt's beginnings tell: the next turn of a conversation begins with all that was said before.
func (g *Gateway) recognise(q *request, h http.Header) {
	secret := q.state.prefixSeed
	if v := g.view.Load(); q.infer || secret == 0 || len(v.Locals)+len(v.Peers) < 2 {
		return
	}
	owner := q.state.spec.PrefixOwner(q.tenant.Name)
	q.query.Prefix = capacity.Landmarks(q.marks.room[:0], secret, owner, q.model.Name, q.env.Prompt)
	name := h.Get(relay.HeaderClientSession)
	if name == "" {
		name = q.env.User
	}
	if name != "" {
		d := xxhash.NewWithSeed(secret)
		_, _ = d.WriteString(q.tenant.Name)
		_, _ = d.WriteString("\x00" + q.model.Name + "\x00")
		_, _ = d.WriteString(name)
		q.marks.session = max(1, d.Sum64())
	}
	q.query.Session = q.marks.session
}

// findHome looks where the request's session was served last, once: wherever an attempt of this request was sent to and refused
// has kept nothing. The caller holds the lock.
func (g *Gateway) findHome(q *request) {
	if q.marks.sought {
		return
	}
	q.marks.sought = true
	if q.marks.session != 0 {
		q.query.Home, q.marks.had = g.sessions.Find(q.marks.session)
	} else {
		q.query.Home, q.marks.had = g.sessions.Find(q.query.Prefix...)
	}
	q.marks.had = min(q.marks.had, q.query.PromptTokens)
	q.query.HomeTokens = int(float64(q.marks.had) * g.trusts.Of(q.query.Home))
}

// told learns from a whole answer whether its session's home had kept what it had. The caller holds the lock.
func (g *Gateway) told(q *request, c *choice, u *openai.Usage) {
	if u.Stated && c.verdict.Path == q.query.Home {
		g.trusts.Told(q.query.Home, q.marks.had, u.Cached)
	}
}

// settleIn notes where it goes now. The caller holds the lock.
func (g *Gateway) settleIn(q *request, v *zone.Verdict) {
	key := q.marks.session
	if n := len(q.query.Prefix); key == 0 && n > 0 {
		key = q.query.Prefix[n-1]
	}
	g.sessions.Served(key, v.Path, q.query.PromptTokens)
}
