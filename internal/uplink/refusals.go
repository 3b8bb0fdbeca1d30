package uplink

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

// maxLogged bounds what is remembered of who was refused for what; beyond it refusals are only counted.
const maxLogged = 1024

// Reasons that refusals are counted by.
const (
	reasonCertificate = "certificate" // the handshake failed: no certificate, a stranger's, or one of another role or scope
	reasonClaim       = "claim"       // it claims to be what its certificate does not say
	reasonScope       = "scope"       // the rule for children no longer allows it
	reasonVersion     = "version"
	reasonRubbish     = "rubbish" // a message that no honest peer sends
	reasonFlood       = "flood"
	reasonFull        = "full"
	reasonBoot        = "boot" // its boot number is too far ahead of the clock
)

func reasonOf(err error) string {
	switch {
	case errors.Is(err, errBoot):
		return reasonBoot
	case isRubbish(err):
		return reasonRubbish
	case errors.Is(err, errFlood):
		return reasonFlood
	case errors.Is(err, errVersion):
		return reasonVersion
	case errors.Is(err, errFull):
		return reasonFull
	case errors.Is(err, errClaim):
		return reasonClaim
	}
	return reasonScope
}

// refusals counts refused peers and logs each reason once per peer, so that a stranger who knocks for ever fills neither
// the disk nor the memory.
type refusals struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[string]struct{}
	counts map[string]uint64  // by reason
	recent map[string]refusal // by peer, at most maxRecent
}

// Bounds of the refusals that operators are shown.
const (
	maxRecent = 32
	recentFor = 10 * time.Minute
)

// refusal is the newest one of a peer whose certificate is good.
type refusal struct {
	peer        identity.ID
	addr        string
	reason, why string
	at          time.Time
}

// keep remembers a refusal for operators, in place of the oldest when there is no room.
func (r *refusals) keep(x refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recent == nil {
		r.recent = make(map[string]refusal)
	}
	key := x.peer.String()
	if _, known := r.recent[key]; !known && len(r.recent) >= maxRecent {
		oldest := ""
		for k, v := range r.recent {
			if oldest == "" || v.at.Before(r.recent[oldest].at) {
				oldest = k
			}
		}
		delete(r.recent, oldest)
	}
	r.recent[key] = x
}

// kept are the refusals of the last recentFor, by peer.
func (r *refusals) kept(now time.Time) (out []refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(r.recent)) {
		if x := r.recent[k]; now.Sub(x.at) < recentFor {
			out = append(out, x)
		}
	}
	return out
}

// refuse counts a peer that was refused for a reason; why says it to people.
func (r *refusals) refuse(peer, reason, why string) {
	if r.first(reason, peer+"\x00"+why) {
		r.log.Warn("uplink peer refused", "peer", peer, "reason", reason, "error", why)
	}
}

// first counts under a reason, if there is one, and tells whether the key is new.
func (r *refusals) first(reason, key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logged == nil {
		r.logged, r.counts = make(map[string]struct{}), make(map[string]uint64)
	}
	if reason != "" {
		r.counts[reason]++
	}
	if _, seen := r.logged[key]; seen || len(r.logged) >= maxLogged {
		return false
	}
	r.logged[key] = struct{}{}
	return true
}

// byReason is how many were refused for what.
func (r *refusals) byReason() map[string]uint64 {
	out := make(map[string]uint64)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reason := range []string{reasonCertificate, reasonClaim, reasonScope, reasonVersion, reasonRubbish, reasonFlood, reasonFull, reasonBoot, reasonPenance} {
		out[reason] = r.counts[reason]
	}
	return out
}

func (r *refusals) total() (n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.counts {
		n += k
	}
	return n
}
