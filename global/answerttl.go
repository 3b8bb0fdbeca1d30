package global

import (
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/dns"
)

// cookieSecretCache caches the derived DNS cookie secrets.
type cookieSecretCache struct {
	newestAt time.Time
	keyCount int
	settled  bool
	secrets  []dns.CookieSecret
}

// secretsFor returns the secrets. It derives them again only if the keys have changed or the newest key has settled.
func (c *cookieSecretCache) secretsFor(keys []consensus.TicketKey, now time.Time) []dns.CookieSecret {
	if len(keys) == 0 {
		return nil
	}
	settled := now.Sub(keys[0].At) > keySettleTime
	if !keys[0].At.Equal(c.newestAt) || len(keys) != c.keyCount || settled != c.settled {
		*c = cookieSecretCache{newestAt: keys[0].At, keyCount: len(keys), settled: settled, secrets: deriveCookieSecrets(keys, now)}
	}
	return c.secrets
}
