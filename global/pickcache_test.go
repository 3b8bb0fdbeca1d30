package global

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
)

// TestPickCacheChangesNoAnswer queries snapshots that share a pickCache in any order, while regions are drained, lost
// and restored: each answer is the one that would be picked without the cache.
func TestPickCacheChangesNoAnswer(t *testing.T) {
	base := newStaticSnapshot(t)
	rapid.Check(t, func(t *rapid.T) {
		var m *pickCache
		for range 12 {
			v := *base
			v.Drained, v.Unavailable = steer.RegionSet{}, []steer.RegionSet{{}}
			for r := range v.Regions {
				if rapid.IntRange(0, 3).Draw(t, "drained") == 0 {
					v.Drained.Add(r)
				}
				if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
					v.Unavailable[0].Add(r)
				}
			}
			m = m.reuseFor(&v)
			for range 8 {
				client := netip.AddrFrom4([4]byte{
					rapid.SampledFrom([]byte{192, 198, 203, 10, 9}).Draw(t, "a"), rapid.SampledFrom([]byte{0, 51}).Draw(t, "b"),
					rapid.SampledFrom([]byte{2, 100, 113}).Draw(t, "c"), 7,
				})
				v.pickCache = nil
				want := v.AnswerService(0, client)
				v.pickCache = m
				got := v.AnswerService(0, client)
				if got.Records != want.Records || got.Scope != want.Scope || got.ForcedByDrain != want.ForcedByDrain || got.OK != want.OK {
					t.Fatalf("%s: %+v, want %+v", client, got, want)
				}
			}
		}
	})
}

func TestPickCacheIsReusedWhileNothingChanges(t *testing.T) {
	v := newStaticSnapshot(t)
	var m *pickCache
	m = m.reuseFor(v)
	v.pickCache = m
	v.AnswerService(0, netip.MustParseAddr(clientAddrs["tokyo"]))
	next := *v
	next.Unavailable = []steer.RegionSet{{}}
	if m.reuseFor(&next) != m {
		t.Error("an unchanged snapshot gets a new cache")
	}
	next.Drained.Add(0)
	if m.reuseFor(&next) == m {
		t.Error("a drain keeps what was picked before it")
	}
	if n := len(m.byService); m.cellEntry(n, 0) != nil {
		t.Error("a service beyond the bound is remembered")
	}
}

// TestScopeMapsChangeNoAnswer: the map of a service sends each client where it would be sent without one, and every
// other client within the scope to the same region.
func TestScopeMapsChangeNoAnswer(t *testing.T) {
	base := newStaticSnapshot(t)
	rapid.Check(t, func(t *rapid.T) {
		v := *base
		v.Drained, v.Unavailable = steer.RegionSet{}, []steer.RegionSet{{}}
		for r := range v.Regions {
			if rapid.IntRange(0, 3).Draw(t, "drained") == 0 {
				v.Drained.Add(r)
			}
			if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
				v.Unavailable[0].Add(r)
			}
		}
		var none *pickCache
		v.pickCache = none.reuseFor(&v)
		v.pickCache.scopeMaps[0].Store(v.buildScopeMap(0))
		for range 8 {
			b := netip.MustParseAddr(rapid.SampledFrom([]string{
				"192.0.2.7", "198.51.100.7", "203.0.113.7", "10.0.0.7", "9.9.9.9", "2001:db8:500::1", "2001:db8:8000::", "::ffff:203.0.113.7",
			}).Draw(t, "client")).AsSlice()
			b[len(b)-1] ^= rapid.Byte().Draw(t, "last")
			client, _ := netip.AddrFromSlice(b)
			got := v.AnswerService(0, client)
			plain := v
			plain.pickCache = nil
			want := plain.AnswerService(0, client)
			if got.Records != want.Records || got.ForcedByDrain != want.ForcedByDrain || got.Scope > want.Scope {
				t.Fatalf("%s: %+v, want %+v", client, got, want)
			}
			for i := int(got.Scope); i < 8*len(b); i++ {
				if rapid.Bool().Draw(t, "bit") {
					b[i/8] ^= 0x80 >> (i % 8)
				}
			}
			other, _ := netip.AddrFromSlice(b)
			if a := v.AnswerService(0, other); a.Records != got.Records || a.Scope != got.Scope {
				t.Fatalf("%s is in the scope of %s: %+v, want %+v", other, client, a, got)
			}
		}
	})
}

// TestScopeMapsAreBuiltForServicesInUse: a service with queries gets its map, and one without does not.
func TestScopeMapsAreBuiltForServicesInUse(t *testing.T) {
	v := newStaticSnapshot(t)
	v.pickCache = v.pickCache.reuseFor(v)
	if v.nextUnmappedService() >= 0 {
		t.Error("a map is built before any query")
	}
	client := netip.MustParseAddr(clientAddrs["tokyo"])
	before := v.AnswerService(0, client)
	if v.nextUnmappedService() != 0 {
		t.Fatal("no map is built for a service with queries")
	}
	v.pickCache.scopeMaps[0].Store(v.buildScopeMap(0))
	after := v.AnswerService(0, client)
	if v.nextUnmappedService() >= 0 || after.Scope > before.Scope || v.buildScopeMap(0).Networks() >= v.countCells() {
		t.Errorf("scope %d became %d; %d networks of %d", before.Scope, after.Scope, v.buildScopeMap(0).Networks(), v.countCells())
	}
}

// countCells returns the number of networks that the atlas distinguishes without a map.
func (v *nodeSnapshot) countCells() int {
	return v.atlas.BuildScopeMap(func(cell int32) int32 { return cell + 1 }).Networks()
}
