package local

import (
	"strings"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

const (
	keyedPrefix = 1024 // bytes of the prompt that make a key
	maxKey      = 1024 // bytes of a header that count
)

// hashKey is what the policy consistent_hash keeps a request together by, as the spec says: its session, its tenant, a
// header or the beginning of its prompt. A request without such a thing goes by the beginning of its prompt. Every
// instance of a zone comes to the same key, and no two tenants share one, but for
// the beginnings of prompts inside a prefix group.
func (o *orders) hashKey(v *visit) uint64 {
	seed := pick.Seed(0, v.hop.Tenant, v.model)
	by := o.spec.Routing.HashKey
	if by == spec.HashKeyTenant {
		return pick.Key(seed, v.hop.Tenant)
	}
	text := ""
	if name, ok := strings.CutPrefix(by, spec.HashKeyHeader); ok {
		text = v.r.Header.Get(name)
	} else if by != spec.HashKeyPrefix {
		if text = v.r.Header.Get(relay.HeaderClientSession); text == "" {
			text = v.env.User
		}
	}
	if text != "" {
		return pick.Key(seed, text[:min(len(text), maxKey)])
	}
	if len(v.env.Prompt) == 0 {
		return 0
	}
	seed = pick.Seed(0, o.prefixOwner(v.hop.Tenant), v.model)
	return pick.KeyOf(seed, v.env.Prompt[:min(len(v.env.Prompt), keyedPrefix)])
}
