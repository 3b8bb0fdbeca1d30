package global

import (
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/steer"
)

// While a drain or a failover is under way, answers live shorter, so that clients are soon where they belong when it
// turns out otherwise. It is under way until nothing has changed for a while: a region that stays drained for weeks
// must not cost queries for weeks.
const (
	unrest  = 5 * time.Minute
	hurry   = 4 // how many times shorter
	leastTT = 5 // seconds: under that resolvers only ask more
)

// calm remembers when regions were last drained, lost or well again.
type calm struct {
	drained, gone steer.Set
	began         bool
	changed       time.Time
}

// restless reports whether a drain or a failover is under way. A node's first View is no change.
func (c *calm) restless(drained, gone steer.Set, now time.Time) bool {
	if c.began && (drained != c.drained || gone != c.gone) {
		c.changed = now
	}
	c.began, c.drained, c.gone = true, drained, gone
	return !c.changed.IsZero() && now.Sub(c.changed) < unrest
}

// ttl is how long a service's answer lives, in seconds.
func (v *View) ttl(service int) uint32 {
	t := v.ttls[service]
	if v.restless {
		return max(t/hurry, min(t, leastTT))
	}
	return t
}

// forced reports whether an operator's drain sends the client where he would not go without it, and whether that hangs
// on the client.
func (v *View) forced(q *steer.Query, region int) (forced, split bool) {
	if v.drained.Empty() {
		return false, false
	}
	open := *q
	open.Drained = steer.Set{}
	c := v.table.Pick(&open)
	return c.Region != region, c.Split
}

// cookies keeps the secrets that were derived last.
type cookies struct {
	newest  time.Time
	count   int
	settled bool
	secrets []dns.Secret
}

// of derives the secrets anew only when the keys have changed, or the newest has settled.
func (c *cookies) of(keys []consensus.Key, now time.Time) []dns.Secret {
	if len(keys) == 0 {
		return nil
	}
	settled := now.Sub(keys[0].At) > keySettles
	if !keys[0].At.Equal(c.newest) || len(keys) != c.count || settled != c.settled {
		*c = cookies{newest: keys[0].At, count: len(keys), settled: settled, secrets: deriveSecrets(keys, now)}
	}
	return c.secrets
}
