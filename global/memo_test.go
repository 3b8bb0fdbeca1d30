package global

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
)

// TestMemoChangesNoAnswer asks Views that share a memo in any order, while regions are drained and lost and come back,
// and holds that each answer is what would be picked without it.
func TestMemoChangesNoAnswer(t *testing.T) {
	base := stillView(t)
	rapid.Check(t, func(t *rapid.T) {
		var m *memo
		for range 12 {
			v := *base
			v.drained, v.lost = steer.Set{}, []steer.Set{{}}
			for r := range v.regions {
				if rapid.IntRange(0, 3).Draw(t, "drained") == 0 {
					v.drained.Add(r)
				}
				if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
					v.lost[0].Add(r)
				}
			}
			m = m.of(&v)
			for range 8 {
				client := netip.AddrFrom4([4]byte{
					rapid.SampledFrom([]byte{192, 198, 203, 10, 9}).Draw(t, "a"), rapid.SampledFrom([]byte{0, 51}).Draw(t, "b"),
					rapid.SampledFrom([]byte{2, 100, 113}).Draw(t, "c"), 7,
				})
				v.memo = nil
				want := v.Answer(0, client)
				v.memo = m
				got := v.Answer(0, client)
				if got.Ready != want.Ready || got.Scope != want.Scope || got.Forced != want.Forced || got.OK != want.OK {
					t.Fatalf("%s: %+v, want %+v", client, got, want)
				}
			}
		}
	})
}

func TestMemoIsKeptWhileNothingChanges(t *testing.T) {
	v := stillView(t)
	var m *memo
	m = m.of(v)
	v.memo = m
	v.Answer(0, netip.MustParseAddr(clients["tokyo"]))
	next := *v
	next.lost = []steer.Set{{}}
	if m.of(&next) != m {
		t.Error("a View that differs in nothing starts anew")
	}
	next.drained.Add(0)
	if m.of(&next) == m {
		t.Error("a drain keeps what was picked before it")
	}
	if n := len(m.services); m.entry(n, 0) != nil {
		t.Error("a service beyond the bound is remembered")
	}
}
