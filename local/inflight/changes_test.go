package inflight

import (
	"slices"
	"testing"
	"time"
)

// TestChangesListWorkersWhoseTotalsChanged: each step of a request and each scrape that shows other load is a change of its
// worker; a step without effect is none; and a reader that is too far behind learns so.
func TestChangesListWorkersWhoseTotalsChanged(t *testing.T) {
	l, now := NewLedger(), time.Unix(1000, 0)
	for range 3 {
		l.AddWorker()
	}
	_, seen, _ := l.AppendChanges(nil, 0)
	check := func(what string, want ...int32) {
		t.Helper()
		got, count, ok := l.AppendChanges(nil, seen)
		got = slices.Compact(got)
		if !ok || !slices.Equal(got, want) {
			t.Errorf("%s: changed workers %v %v, want %v", what, got, ok, want)
		}
		seen = count
	}
	e := l.DispatchRequest(1, 100, 200, 0, now)
	check("dispatch", 1)
	l.RecordFirstByte(&e, now)
	check("first byte", 1)
	l.RecordFirstByte(&e, now)
	check("first byte again")
	l.FinishRequest(&e, now)
	check("end", 1)
	l.FinishRequest(&e, now)
	check("end again")
	busy := ScrapedLoad{Running: 3, KVUsed: 5000}
	l.ObserveScrape(2, busy)
	check("load in one scrape")
	l.ObserveScrape(2, busy)
	check("load in two scrapes", 2)
	l.ObserveScrape(2, busy)
	check("the same load again")
	l.DropWorker(0)
	check("drop", 0)
	l.AddWorker()
	check("add", 0)
	for range changeLogLength + 1 {
		l.ObserveScrape(2, ScrapedLoad{Running: 3 + int64(seen)%2})
		l.DispatchRequest(1, 1, 1, 0, now)
	}
	if _, _, ok := l.AppendChanges(nil, seen); ok {
		t.Error("a reader that is too far behind got a list")
	}
}
