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

// maxLoggedRefusals bounds the refusals by peer and reason that are kept; beyond it refusals are only counted.
const maxLoggedRefusals = 1024

// The reasons by which refusals are counted.
const (
	reasonCertificate = "certificate" // the handshake failed: no certificate, a stranger's, or one of another role or scope
	reasonClaim       = "claim"       // its claim does not match its certificate
	reasonScope       = "scope"       // the rule for children no longer allows it
	reasonVersion     = "version"
	reasonMalformed   = "malformed" // a message that no correct peer sends
	reasonFlood       = "flood"
	reasonFull        = "full"
	reasonBoot        = "boot" // its boot number is too far ahead of the clock
)

func refusalReason(err error) string {
	switch {
	case errors.Is(err, errBootTooFarAhead):
		return reasonBoot
	case isMalformed(err):
		return reasonMalformed
	case errors.Is(err, errTooManyMessages):
		return reasonFlood
	case errors.Is(err, errVersion):
		return reasonVersion
	case errors.Is(err, errTooManyChildren):
		return reasonFull
	case errors.Is(err, errClaimMismatch):
		return reasonClaim
	}
	return reasonScope
}

// refusalLog counts refused peers and logs each reason once per peer, so that a peer that keeps connecting fills
// neither the disk nor the memory.
type refusalLog struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[string]struct{}
	counts map[string]uint64      // by reason
	recent map[string]refusedPeer // by peer, at most maxRecentRefusals
}

// Bounds of the refusals that are shown to operators.
const (
	maxRecentRefusals = 32
	recentRefusalTTL  = 10 * time.Minute
)

// refusedPeer is the newest refusal of a peer with a valid certificate.
type refusedPeer struct {
	peer            identity.ID
	addr            string
	reason, message string
	refusedAt       time.Time
}

// storeRecent stores a refusal for operators, in place of the oldest if the list is full.
func (r *refusalLog) storeRecent(x refusedPeer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recent == nil {
		r.recent = make(map[string]refusedPeer)
	}
	key := x.peer.String()
	if _, known := r.recent[key]; !known && len(r.recent) >= maxRecentRefusals {
		oldest := ""
		for k, v := range r.recent {
			if oldest == "" || v.refusedAt.Before(r.recent[oldest].refusedAt) {
				oldest = k
			}
		}
		delete(r.recent, oldest)
	}
	r.recent[key] = x
}

// listRecent returns the refusals of the last recentRefusalTTL, by peer.
func (r *refusalLog) listRecent(now time.Time) (out []refusedPeer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(r.recent)) {
		if x := r.recent[k]; now.Sub(x.refusedAt) < recentRefusalTTL {
			out = append(out, x)
		}
	}
	return out
}

// recordRefusal counts a peer that was refused for a reason; why is the text for operators.
func (r *refusalLog) recordRefusal(peer, reason, why string) {
	if r.countFirst(reason, peer+"\x00"+why) {
		r.log.Warn("uplink peer refused", "peer", peer, "reason", reason, "error", why)
	}
}

// countFirst counts under a reason, if there is one, and reports whether the key is new.
func (r *refusalLog) countFirst(reason, key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logged == nil {
		r.logged, r.counts = make(map[string]struct{}), make(map[string]uint64)
	}
	if reason != "" {
		r.counts[reason]++
	}
	if _, seen := r.logged[key]; seen || len(r.logged) >= maxLoggedRefusals {
		return false
	}
	r.logged[key] = struct{}{}
	return true
}

// countByReason returns the number of refusals by reason.
func (r *refusalLog) countByReason() map[string]uint64 {
	out := make(map[string]uint64)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reason := range []string{reasonCertificate, reasonClaim, reasonScope, reasonVersion, reasonMalformed, reasonFlood, reasonFull, reasonBoot, reasonHandshakeLimit} {
		out[reason] = r.counts[reason]
	}
	return out
}

func (r *refusalLog) countAll() (n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.counts {
		n += k
	}
	return n
}
