package geo

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// slowTable is the reference implementation: the last inserted prefix that contains the address.
type slowTable []netip.Prefix

func (s slowTable) lookupRecord(a netip.Addr) int32 {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].Contains(a) {
			return int32(i + 1)
		}
	}
	return 0
}

func genPrefix(t *rapid.T, v6 bool, name string) netip.Prefix {
	a := genAddr(t, v6, name)
	return netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, name+" bits")).Masked()
}

// genAddr draws addresses close together, so that prefixes contain each other.
func genAddr(t *rapid.T, v6 bool, name string) netip.Addr {
	b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 0x80, 0xff}), 16, 16).Draw(t, name)
	if v6 {
		return netip.AddrFrom16([16]byte(b))
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}

func TestTableReturnsTheLastInsertedPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v6 := rapid.Bool().Draw(t, "v6")
		var ref slowTable
		tr := newTrie()
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			p := genPrefix(t, v6, "prefix")
			ref = append(ref, p)
			tr.insertPrefix(p, int32(len(ref)))
		}
		firstBits := firstBitsIPv4
		if v6 {
			firstBits = firstBitsIPv6
		}
		tab := tr.compileTable(firstBits)
		probes := []netip.Addr{genAddr(t, v6, "a"), genAddr(t, v6, "b"), genAddr(t, v6, "c")}
		for _, p := range ref {
			probes = append(probes, p.Addr())
		}
		leaves := make(map[netip.Prefix]int32)
		for _, a := range probes {
			e := tab.lookupAddr(toAddrBytes(a))
			if e.recordIndex() != ref.lookupRecord(a) {
				t.Fatalf("%s has record %d, want %d of %v", a, e.recordIndex(), ref.lookupRecord(a), ref)
			}
			p, err := a.Prefix(e.prefixLen())
			if err != nil {
				t.Fatal(err)
			}
			leaves[p] = e.recordIndex()
		}
		for p, r := range leaves {
			for q := range leaves {
				if p != q && p.Overlaps(q) {
					t.Fatalf("leaves %s and %s overlap", p, q)
				}
			}
			last := p.Addr().As16() // every address of a leaf has its record
			if p.Addr().Is4() {
				v4 := p.Addr().As4()
				for i := p.Bits(); i < 32; i++ {
					v4[i>>3] |= 0x80 >> (i & 7)
				}
				if got := ref.lookupRecord(netip.AddrFrom4(v4)); got != r {
					t.Fatalf("leaf %s has record %d, its last address %d", p, r, got)
				}
				continue
			}
			for i := p.Bits(); i < 128; i++ {
				last[i>>3] |= 0x80 >> (i & 7)
			}
			if got := ref.lookupRecord(netip.AddrFrom16(last)); got != r {
				t.Fatalf("leaf %s has record %d, its last address %d", p, r, got)
			}
		}
	})
}

// newLargeAtlas returns an Atlas of about a million networks at 20,000 locations, like published city databases.
func newLargeAtlas(b *testing.B) *Atlas {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	build := newAtlasBuilder()
	for n := 0; n < 1_000_000; n++ {
		bits := 16 + rng.IntN(9)
		a := rng.Uint32N(223 << 24)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(a>>24) + 1, byte(a >> 16), byte(a >> 8), byte(a)}), bits)
		at := rng.IntN(20_000)
		place := Location{City: "city", Lat: float64(at%170) - 85, Lon: float64(at/170)*3 - 180}
		if err := build.addNetwork(p, place, SourceDatabase); err != nil {
			b.Fatal(err)
		}
	}
	return build.buildAtlas()
}

func BenchmarkLocate(b *testing.B) {
	atlas := newLargeAtlas(b)
	rng := rand.New(rand.NewPCG(3, 4))
	addrs := make([]netip.Addr, 1<<14)
	for i := range addrs {
		v := rng.Uint32()
		addrs[i] = netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
	}
	b.Run("locate", func(b *testing.B) {
		b.ReportAllocs()
		var cells int32
		for i := 0; b.Loop(); i++ {
			cells += atlas.Locate(addrs[i&(1<<14-1)]).Cell
		}
		b.ReportMetric(float64(atlas.MemoryBytes())/(1<<20), "MiB")
	})
	b.Run("spot", func(b *testing.B) {
		b.ReportAllocs()
		var cells int32
		for i := 0; b.Loop(); i++ {
			cell, _ := atlas.FindCell(addrs[i&(1<<14-1)])
			cells += cell
		}
	})
	b.Run("table", func(b *testing.B) {
		b.ReportAllocs()
		var sum tableEntry
		for i := 0; b.Loop(); i++ {
			sum += atlas.v4.lookupAddr(toAddrBytes(addrs[i&(1<<14-1)]))
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		newLargeAtlas(b)
	}
}
