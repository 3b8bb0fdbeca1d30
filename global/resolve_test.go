package global

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

func TestCookieSecretsFollowTheTicketKeys(t *testing.T) {
	now := time.Now()
	key := func(b byte, age time.Duration) consensus.TicketKey {
		k := consensus.TicketKey{Secret: make([]byte, 32), At: now.Add(-age)}
		k.Secret[0] = b
		return k
	}
	var c cookieSecretCache
	if c.secretsFor(nil, now) != nil {
		t.Error("secrets without any key")
	}
	old := c.secretsFor([]consensus.TicketKey{key(1, time.Hour)}, now)
	if len(old) != 1 || [16]byte(old[0]) == [16]byte(key(1, 0).Secret[:16]) {
		t.Fatalf("%d secrets, or a ticket key itself", len(old))
	}
	// A new key does not sign before every node has it; cookies of the old one stay valid.
	keys := []consensus.TicketKey{key(2, 0), key(1, time.Hour)}
	both := c.secretsFor(keys, now)
	if len(both) != 2 || both[0] != old[0] || both[1] == old[0] {
		t.Fatal("a key that has just come signs, or is not known")
	}
	later := c.secretsFor(keys, now.Add(keySettleTime+time.Second))
	if len(later) != 2 || later[0] != both[1] || later[1] != old[0] {
		t.Fatal("a settled key does not sign")
	}
	if again := c.secretsFor(keys, now.Add(keySettleTime+2*time.Second)); &again[0] != &later[0] {
		t.Error("secrets are derived again without need")
	}
	var other cookieSecretCache
	if twin := other.secretsFor(keys, now.Add(time.Minute)); twin[0] != later[0] || twin[1] != later[1] {
		t.Error("two nodes derive different secrets from one state")
	}
}

func TestTTLIsShorterAfterChanges(t *testing.T) {
	v := newStaticSnapshot(t)
	for ttl, want := range map[uint32]uint32{20: 5, 60: 15, 8: 5, 5: 5} {
		v.TTLs[0] = ttl
		v.RecentlyChanged = true
		if got := v.AnswerTTL(0); got != want {
			t.Errorf("%d s become %d, want %d", ttl, got, want)
		}
		v.RecentlyChanged = false
		if got := v.AnswerService(0, netip.MustParseAddr("192.0.2.7")).TTL; got != ttl {
			t.Errorf("%d s become %d without changes", ttl, got)
		}
	}
}

func TestDrainedAnswersAreForced(t *testing.T) {
	v := newStaticSnapshot(t)
	virginia := v.RegionIndex("virginia")
	if a := v.AnswerService(0, netip.MustParseAddr(clientAddrs["virginia"])); a.ForcedByDrain {
		t.Error("forced without a drain")
	}
	v.Drained.Add(virginia)
	if a := v.AnswerService(0, netip.MustParseAddr(clientAddrs["virginia"])); !a.ForcedByDrain || a.Addrs[0] == testGatewayAddrs["virginia"] {
		t.Errorf("its nearest region is drained: %+v", a)
	}
	if a := v.AnswerService(0, netip.MustParseAddr(clientAddrs["tokyo"])); a.ForcedByDrain {
		t.Errorf("another region is drained: %+v", a)
	}
}

// testTLS queries DNS over TLS without a certificate, as a resolver does.
func (p *testFleet) testTLS(t *testing.T) {
	at := p.nodes[0].DNSAddrs()[1]
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"dot"}}}
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", at.String())
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addrs, err := r.LookupNetIP(ctx, "ip4", "tokyo."+testService)
	if err != nil || len(addrs) != 1 || addrs[0].Unmap() != testGatewayAddrs["tokyo"] {
		t.Errorf("Tokyo over TLS is %v, %v", addrs, err)
	}
}
