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

// TestWideScopesChangeNoAnswer holds that the map of a service sends each client where it would be sent without one,
// and every other client within the scope with it.
func TestWideScopesChangeNoAnswer(t *testing.T) {
	base := stillView(t)
	rapid.Check(t, func(t *rapid.T) {
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
		var none *memo
		v.memo = none.of(&v)
		v.memo.wide[0].Store(v.join(0))
		for range 8 {
			b := netip.MustParseAddr(rapid.SampledFrom([]string{
				"192.0.2.7", "198.51.100.7", "203.0.113.7", "10.0.0.7", "9.9.9.9", "2001:db8:500::1", "2001:db8:8000::", "::ffff:203.0.113.7",
			}).Draw(t, "client")).AsSlice()
			b[len(b)-1] ^= rapid.Byte().Draw(t, "last")
			client, _ := netip.AddrFromSlice(b)
			got := v.Answer(0, client)
			plain := v
			plain.memo = nil
			want := plain.Answer(0, client)
			if got.Ready != want.Ready || got.Forced != want.Forced || got.Scope > want.Scope {
				t.Fatalf("%s: %+v, want %+v", client, got, want)
			}
			for i := int(got.Scope); i < 8*len(b); i++ {
				if rapid.Bool().Draw(t, "bit") {
					b[i/8] ^= 0x80 >> (i % 8)
				}
			}
			other, _ := netip.AddrFromSlice(b)
			if a := v.Answer(0, other); a.Ready != got.Ready || a.Scope != got.Scope {
				t.Fatalf("%s is in the scope of %s: %+v, want %+v", other, client, a, got)
			}
		}
	})
}

// TestScopesBecomeWide holds that a service that is asked for gets its map, and one that is not does not.
func TestScopesBecomeWide(t *testing.T) {
	v := stillView(t)
	v.memo = v.memo.of(v)
	if v.narrow() >= 0 {
		t.Error("a map is wanted before anybody asked")
	}
	client := netip.MustParseAddr(clients["tokyo"])
	before := v.Answer(0, client)
	if v.narrow() != 0 {
		t.Fatal("no map is wanted of a service that was asked for")
	}
	v.memo.wide[0].Store(v.join(0))
	after := v.Answer(0, client)
	if v.narrow() >= 0 || after.Scope > before.Scope || v.join(0).Networks() >= v.cells() {
		t.Errorf("scope %d became %d; %d networks of %d", before.Scope, after.Scope, v.join(0).Networks(), v.cells())
	}
}

// cells is how many networks the atlas tells apart without a map.
func (v *View) cells() int {
	return v.atlas.Join(func(cell int32) int32 { return cell + 1 }).Networks()
}
