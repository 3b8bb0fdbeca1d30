package global

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/steer"
)

func TestCookieSecretsFollowTheTicketKeys(t *testing.T) {
	now := time.Now()
	key := func(b byte, age time.Duration) consensus.Key {
		k := consensus.Key{Secret: make([]byte, 32), At: now.Add(-age)}
		k.Secret[0] = b
		return k
	}
	var c cookies
	if c.of(nil, now) != nil {
		t.Error("secrets without any key")
	}
	old := c.of([]consensus.Key{key(1, time.Hour)}, now)
	if len(old) != 1 || [16]byte(old[0]) == [16]byte(key(1, 0).Secret[:16]) {
		t.Fatalf("%d secrets, or a ticket key itself", len(old))
	}
	// A new key does not sign before every node surely holds it; what the old one signed stays good.
	keys := []consensus.Key{key(2, 0), key(1, time.Hour)}
	both := c.of(keys, now)
	if len(both) != 2 || both[0] != old[0] || both[1] == old[0] {
		t.Fatal("a key that has just come signs, or is not known")
	}
	later := c.of(keys, now.Add(keySettles+time.Second))
	if len(later) != 2 || later[0] != both[1] || later[1] != old[0] {
		t.Fatal("a settled key does not sign")
	}
	if again := c.of(keys, now.Add(keySettles+2*time.Second)); &again[0] != &later[0] {
		t.Error("secrets are derived anew without need")
	}
	var other cookies
	if twin := other.of(keys, now.Add(time.Minute)); twin[0] != later[0] || twin[1] != later[1] {
		t.Error("two nodes derive different secrets from one state")
	}
}

func TestAnswersLiveShorterWhileThingsChange(t *testing.T) {
	var c calm
	now := time.Now()
	var none, one steer.Set
	one.Add(0)
	for _, step := range []struct {
		drained steer.Set
		after   time.Duration
		want    bool
	}{
		{one, 0, false}, // what a node finds at its start is no change
		{one, time.Hour, false},
		{none, time.Second, true},
		{none, unrest - time.Second, true},
		{none, time.Second, false},
		{one, time.Hour, true},
		{one, unrest, false},
	} {
		now = now.Add(step.after)
		if got := c.restless(step.drained, none, now); got != step.want {
			t.Errorf("after %s: restless %v", step.after, got)
		}
	}
	v := stillView(t)
	for ttl, want := range map[uint32]uint32{20: 5, 60: 15, 8: 5, 5: 5} {
		v.ttls[0] = ttl
		v.restless = true
		if got := v.ttl(0); got != want {
			t.Errorf("%d s become %d, want %d", ttl, got, want)
		}
		v.restless = false
		if got := v.Answer(0, netip.MustParseAddr("192.0.2.7")).TTL; got != ttl {
			t.Errorf("%d s become %d in calm", ttl, got)
		}
	}
}

func TestDrainedAnswersAreForced(t *testing.T) {
	v := stillView(t)
	virginia := v.region("virginia")
	if a := v.Answer(0, netip.MustParseAddr(clients["virginia"])); a.Forced {
		t.Error("forced without a drain")
	}
	v.drained.Add(virginia)
	if a := v.Answer(0, netip.MustParseAddr(clients["virginia"])); !a.Forced || a.Addrs[0] == gatewayAddr["virginia"] {
		t.Errorf("its nearest region is drained: %+v", a)
	}
	if a := v.Answer(0, netip.MustParseAddr(clients["tokyo"])); a.Forced {
		t.Errorf("another region is drained: %+v", a)
	}
}

// testTLS asks over DNS over TLS, without a certificate, as a resolver does.
func (p *planet) testTLS(t *testing.T) {
	at := p.nodes[0].DNSAddrs()[1]
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"dot"}}}
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", at.String())
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	addrs, err := r.LookupNetIP(ctx, "ip4", "tokyo."+service)
	if err != nil || len(addrs) != 1 || addrs[0].Unmap() != gatewayAddr["tokyo"] {
		t.Errorf("Tokyo over TLS is %v, %v", addrs, err)
	}
}
