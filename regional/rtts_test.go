package regional

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
)

func addrIn(net, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + net>>16), byte(net >> 8), byte(net), byte(host)})
}

func TestRTTsAreMediansOfNetworks(t *testing.T) {
	now, table := time.Now(), newRTTs(time.Hour)
	for i := range 9 { // one network's clients: 10 ms, some of them seconds
		rtt := 10 * time.Millisecond
		if i%3 == 2 {
			rtt = 2 * time.Second
		}
		table.add(addrIn(1, i), 7, rtt, now)
	}
	for i := range 5 {
		table.add(addrIn(2, i), 7, 30*time.Millisecond, now)
	}
	v6 := netip.MustParseAddr("2a00:1:2:3::4")
	table.add(v6, 9, 5*time.Millisecond, now)
	table.add(netip.MustParseAddr("2a00:1:2:ffff::"), 9, 5*time.Millisecond, now.Add(time.Second))
	if len(table.networks) != 3 {
		t.Errorf("%d networks, want two /24 and one /48", len(table.networks))
	}
	got := table.report(now.Add(3 * time.Second))
	want := []capacity.RTT{
		{Cell: geo.CellName(9), Samples: 2, TotalMicros: 2 * 5_000, AgeSec: 2},
		{Cell: geo.CellName(7), Samples: 14, TotalMicros: 14 * 10_000, AgeSec: 3},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("reported %+v, want %+v", got, want)
	}
}

// TestOneNetworkDoesNotSpeakForItsNeighbours: a client that answers late on purpose, ever so often.
func TestOneNetworkDoesNotSpeakForItsNeighbours(t *testing.T) {
	now, table := time.Now(), newRTTs(time.Hour)
	for range 100_000 {
		table.add(addrIn(0, 1), 7, time.Second, now)
	}
	for i := range 3 {
		for range maxNetworkWeight {
			table.add(addrIn(1+i, 1), 7, 10*time.Millisecond, now)
		}
	}
	if got := table.report(now)[0]; got.Micros() != 10_000 || got.Samples != 4*maxNetworkWeight {
		t.Errorf("the cell is %+v", got)
	}
}

func TestRTTsAgeOut(t *testing.T) {
	now, table := time.Now(), newRTTs(6*time.Hour)
	for range 32 {
		table.add(addrIn(1, 1), 7, time.Millisecond, now)
	}
	for hours, want := range map[time.Duration]int64{0: 32, 1: 16, 2: 8, 5: 1} {
		if got := table.report(now.Add(hours * time.Hour)); len(got) != 1 || got[0].Samples != want || got[0].AgeSec != int64(hours*3600) {
			t.Errorf("after %d h %+v, want %d samples", hours, got, want)
		}
	}
	if got := table.report(now.Add(6*time.Hour + 1)); len(got) != 0 || len(table.networks) != 0 {
		t.Errorf("at last %+v of %d networks", got, len(table.networks))
	}
}

// TestRTTsAreBounded: networks that come once do not push out those that come often, and few cells are told.
func TestRTTsAreBounded(t *testing.T) {
	now, table := time.Now(), newRTTs(time.Hour)
	for range 10 {
		table.add(addrIn(999_999, 1), 3, time.Millisecond, now)
	}
	for i := range maxNetworks + 500 {
		table.add(addrIn(i, 1), int32(10+i%200), time.Millisecond, now)
	}
	if len(table.networks) != maxNetworks || table.networks[networkOf(addrIn(999_999, 1))] == nil {
		t.Errorf("%d networks, the frequent one there: %v", len(table.networks), table.networks[networkOf(addrIn(999_999, 1))] != nil)
	}
	if got := table.report(now); len(got) != maxReported {
		t.Errorf("%d cells are told", len(got))
	}
}

// TestReportsAreLawful: whatever was measured, the summary that carries it can be encoded as it is.
func TestReportsAreLawful(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, table := time.Unix(1e9, 0), newRTTs(6*time.Hour)
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.Int64Range(-int64(time.Minute), int64(2*time.Hour)).Draw(t, "pause")))
			rtt := time.Duration(rapid.Int64Range(0, int64(geo.MaxRTT)).Draw(t, "rtt"))
			table.add(addrIn(rapid.IntRange(0, 5).Draw(t, "net"), 1), rapid.Int32Range(0, 3).Draw(t, "cell"), rtt, now)
		}
		s := capacity.Summary{Path: capacity.Path{Region: "us"}, RTTs: table.report(now)}
		if _, err := capacity.Encode(&s); err != nil {
			t.Fatal(err)
		}
		for _, r := range s.RTTs {
			if r.Samples < 1 || time.Duration(r.Micros())*time.Microsecond > geo.MaxRTT {
				t.Fatalf("reported %+v", r)
			}
		}
	})
}

func BenchmarkRTTReport(b *testing.B) {
	now, table := time.Now(), newRTTs(time.Hour)
	for i := range maxNetworks {
		for j := range rttRing {
			table.add(addrIn(i, j), int32(i%500), time.Duration(i*j)*time.Microsecond, now)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		table.report(now)
	}
}

func TestNoMeter(t *testing.T) {
	atlas, err := geo.NewLive(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*meter{newMeter(atlas, -1, nil), newMeter(nil, time.Hour, nil)} {
		if m.attach(nil); m != nil || m.reported() != nil || m.networks() != 0 {
			t.Errorf("measures without being asked to, or without an atlas: %+v", m)
		}
	}
	if m := newMeter(atlas, 0, nil); m == nil || m.keep != geo.MeasuredFor {
		t.Errorf("by default %+v", m)
	}
}

// TestMeterJudges holds which samples count, and that a full queue makes nobody wait.
func TestMeterJudges(t *testing.T) {
	atlas, err := geo.NewLive(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}
	m, table := newMeter(atlas, 0, func(outcome string) { outcomes[outcome]++ }), newRTTs(time.Hour)
	tokyo := netip.MustParseAddr("203.0.113.7")
	m.take(table, sample{tokyo, 9 * time.Millisecond})
	m.take(table, sample{tokyo, 0})
	m.take(table, sample{tokyo, geo.MaxRTT + 1})
	m.take(table, sample{netip.MustParseAddr("10.0.0.1"), time.Millisecond}) // a balancer in front
	m.take(table, sample{netip.Addr{}, time.Millisecond})
	for range meterQueue + 2 {
		m.offer(sample{tokyo, time.Millisecond})
	}
	for outcome, want := range map[string]int{"taken": 1, "implausible": 2, "unplaced": 2, "dropped": 2} {
		if outcomes[outcome] != want {
			t.Errorf("%d samples %s, want %d", outcomes[outcome], outcome, want)
		}
	}
	if got := table.report(time.Now()); len(got) != 1 || got[0].Micros() != 9000 {
		t.Errorf("reported %+v", got)
	}
}
