package rtt

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
)

func addrInNetwork(net, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + net>>16), byte(net >> 8), byte(net), byte(host)})
}

func TestRTTsAreMediansOfNetworks(t *testing.T) {
	now, table := time.Now(), NewClientTable(time.Hour)
	for i := range 9 { // clients of one network: 10 ms, for some of them seconds
		rtt := 10 * time.Millisecond
		if i%3 == 2 {
			rtt = 2 * time.Second
		}
		table.AddSample(addrInNetwork(1, i), 7, rtt, now)
	}
	for i := range 5 {
		table.AddSample(addrInNetwork(2, i), 7, 30*time.Millisecond, now)
	}
	v6 := netip.MustParseAddr("2a00:1:2:3::4")
	table.AddSample(v6, 9, 5*time.Millisecond, now)
	table.AddSample(netip.MustParseAddr("2a00:1:2:ffff::"), 9, 5*time.Millisecond, now.Add(time.Second))
	if len(table.networks) != 3 {
		t.Errorf("%d networks, want two /24 and one /48", len(table.networks))
	}
	got := table.ReportCells(now.Add(3 * time.Second))
	want := []capacity.CellRTT{
		{Cell: geo.CellName(9), Samples: 2, TotalMicros: 2 * 5_000, AgeSec: 2},
		{Cell: geo.CellName(7), Samples: 14, TotalMicros: 14 * 10_000, AgeSec: 3},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("reported %+v, want %+v", got, want)
	}
}

// TestOneNetworkDoesNotDominateItsCell: a client delays its acknowledgements on purpose, in many samples.
func TestOneNetworkDoesNotDominateItsCell(t *testing.T) {
	now, table := time.Now(), NewClientTable(time.Hour)
	for range 100_000 {
		table.AddSample(addrInNetwork(0, 1), 7, time.Second, now)
	}
	for i := range 3 {
		for range maxNetworkWeight {
			table.AddSample(addrInNetwork(1+i, 1), 7, 10*time.Millisecond, now)
		}
	}
	if got := table.ReportCells(now)[0]; got.MedianMicros() != 10_000 || got.Samples != 4*maxNetworkWeight {
		t.Errorf("the cell is %+v", got)
	}
}

func TestRTTsAgeOut(t *testing.T) {
	now, table := time.Now(), NewClientTable(6*time.Hour)
	for range 32 {
		table.AddSample(addrInNetwork(1, 1), 7, time.Millisecond, now)
	}
	for hours, want := range map[time.Duration]int64{0: 32, 1: 16, 2: 8, 5: 1} {
		if got := table.ReportCells(now.Add(hours * time.Hour)); len(got) != 1 || got[0].Samples != want || got[0].AgeSec != int64(hours*3600) {
			t.Errorf("after %d h %+v, want %d samples", hours, got, want)
		}
	}
	if got := table.ReportCells(now.Add(6*time.Hour + 1)); len(got) != 0 || len(table.networks) != 0 {
		t.Errorf("at last %+v of %d networks", got, len(table.networks))
	}
}

// TestRTTsAreBounded: networks with a single sample do not evict those with many, and the number of reported cells
// is bounded.
func TestRTTsAreBounded(t *testing.T) {
	now, table := time.Now(), NewClientTable(time.Hour)
	for range 10 {
		table.AddSample(addrInNetwork(999_999, 1), 3, time.Millisecond, now)
	}
	for i := range maxNetworks + 500 {
		table.AddSample(addrInNetwork(i, 1), int32(10+i%200), time.Millisecond, now)
	}
	if len(table.networks) != maxNetworks || table.networks[networkOf(addrInNetwork(999_999, 1))] == nil {
		t.Errorf("%d networks, the frequent one there: %v", len(table.networks), table.networks[networkOf(addrInNetwork(999_999, 1))] != nil)
	}
	if got := table.ReportCells(now); len(got) != maxReportedCells {
		t.Errorf("%d cells are told", len(got))
	}
}

// TestRTTReportsCanBeEncoded: the summary can be encoded for any measurements.
func TestRTTReportsCanBeEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, table := time.Unix(1e9, 0), NewClientTable(6*time.Hour)
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.Int64Range(-int64(time.Minute), int64(2*time.Hour)).Draw(t, "pause")))
			rtt := time.Duration(rapid.Int64Range(0, int64(geo.MaxRTT)).Draw(t, "rtt"))
			table.AddSample(addrInNetwork(rapid.IntRange(0, 5).Draw(t, "net"), 1), rapid.Int32Range(0, 3).Draw(t, "cell"), rtt, now)
		}
		s := capacity.Summary{Path: capacity.Path{Region: "us"}, RTTs: table.ReportCells(now)}
		if _, err := capacity.EncodeSummary(&s); err != nil {
			t.Fatal(err)
		}
		for _, r := range s.RTTs {
			if r.Samples < 1 || time.Duration(r.MedianMicros())*time.Microsecond > geo.MaxRTT {
				t.Fatalf("reported %+v", r)
			}
		}
	})
}

func BenchmarkRTTReport(b *testing.B) {
	now, table := time.Now(), NewClientTable(time.Hour)
	for i := range maxNetworks {
		for j := range rttRingSize {
			table.AddSample(addrInNetwork(i, j), int32(i%500), time.Duration(i*j)*time.Microsecond, now)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		table.ReportCells(now)
	}
}
