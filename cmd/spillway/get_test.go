package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
)

// makeLargeStatus returns a status of 10 regions of 10 zones of 100 workers.
func makeLargeStatus() *admin.Status {
	s := &admin.Status{Node: "g1", Role: "global"}
	for r := range 10 {
		region := admin.RegionStatus{Name: fmt.Sprintf("region%d", r), State: admin.StateFresh}
		for z := range 10 {
			zone := admin.ZoneStatus{Name: fmt.Sprintf("z%d", z), Instance: "l1", State: admin.StateFresh}
			for w := range 100 {
				zone.Workers = append(zone.Workers, admin.WorkerStatus{
					Name: fmt.Sprintf("w%d", w), GPU: "H100", State: admin.StateReady, Models: []string{"llama"},
					Running: int64(w), KVTotal: 100, KVFree: int64(100 - w),
				})
			}
			zone.Models = []admin.ModelStatus{{Name: "llama", Ready: 100, Total: 100, Running: 4950}}
			region.Zones = append(region.Zones, zone)
		}
		region.Models = []admin.ModelStatus{{Name: "llama", Ready: 1000, Total: 1000, Running: 49500}}
		s.Regions = append(s.Regions, region)
	}
	return s
}

// TestWatchPrintsOnlyWhatChanges: a watch prints an item again if a cell changes that is not volatile, and names removed items.
func TestWatchPrintsOnlyWhatChanges(t *testing.T) {
	k := newWorkerKind()
	w := newItemWatch(&k, outputTable)
	item := func(name string, running, scrape int64) workerItem {
		return workerItem{Region: "fra", Zone: "a", ZoneState: admin.StateFresh, WorkerStatus: admin.WorkerStatus{Name: name, State: admin.StateReady, Running: running, ScrapeAgeMS: scrape}}
	}
	for i, c := range []struct {
		items []workerItem
		want  []string
	}{
		{[]workerItem{item("w1", 0, 1), item("w2", 0, 1)}, []string{"NAME", "fra/a/w1", "fra/a/w2"}},
		{[]workerItem{item("w1", 0, 900), item("w2", 0, 800)}, nil},
		{[]workerItem{item("w1", 0, 1), item("w2", 5, 1)}, []string{"fra/a/w2"}},
		{[]workerItem{item("w2", 5, 1)}, []string{"fra/a/w1  -"}},
		{[]workerItem{item("w2", 5, 1), item("w1", 0, 1)}, []string{"fra/a/w1"}},
	} {
		var b strings.Builder
		if err := w.printChanges(&b, c.items); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if b.Len() == 0 {
			lines = nil
		}
		if len(lines) != len(c.want) {
			t.Fatalf("read %d prints %q, want %q", i, lines, c.want)
		}
		for k := range lines {
			if !strings.HasPrefix(lines[k], strings.TrimSuffix(c.want[k], "  -")) {
				t.Errorf("read %d prints %q, want %q", i, lines[k], c.want[k])
			}
		}
	}
}

// TestWatchReportsChangesAndLostNodes reads a node whose worker changes at the second read, which fails at the third and answers
// at the fourth.
func TestWatchReportsChangesAndLostNodes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	socket := filepath.Join(t.TempDir(), "g1.sock")
	reads := 0
	s, err := admin.New(admin.Config{Socket: socket, Backend: admin.Backend{Status: func(context.Context) (*admin.Status, error) {
		reads++
		w1, w2 := admin.WorkerStatus{Name: "w1", State: admin.StateReady}, admin.WorkerStatus{Name: "w2", State: admin.StateReady}
		switch {
		case reads >= 5:
			cancel()
		case reads == 3:
			return nil, errors.New("the node is stopping")
		}
		if reads >= 2 {
			w2.Running = 7
		}
		zone := admin.ZoneStatus{Name: "a", State: admin.StateFresh, Workers: []admin.WorkerStatus{w1, w2}}
		return &admin.Status{Regions: []admin.RegionStatus{{Name: "fra", State: admin.StateFresh, Zones: []admin.ZoneStatus{zone}}}}, nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	out, errOut, err := runSpillwayContext(ctx, "get", "workers", "fra", "-w", "--interval", minWatchInterval.String(), "--server", "unix://"+socket)
	if err != nil {
		t.Fatal(err)
	}
	if got := [3]int{strings.Count(out, "NAME "), strings.Count(out, "fra/a/w1 "), strings.Count(out, "fra/a/w2 ")}; got != [3]int{1, 1, 2} {
		t.Errorf("titles, lines of w1 and of w2 are printed %v times:\n%s", got, out)
	}
	if strings.Count(errOut, "no answer: the lines above may be out of date: the node is stopping") != 1 || strings.Count(errOut, "answered again") != 1 {
		t.Errorf("the lost node is not reported once:\n%s", errOut)
	}
}

// TestColumnsOfEveryKindAreUsable: sort keys are unique and not empty, and the first column is the name.
func TestColumnsOfEveryKindAreUsable(t *testing.T) {
	for kind, keys := range map[string][]string{
		"regions": listSortKeys(newRegionKind().columns), "zones": listSortKeys(newZoneKind().columns), "workers": listSortKeys(newWorkerKind().columns),
		"models": listSortKeys(newModelKind().columns), "tenants": listSortKeys(newTenantKind().columns), "members": listSortKeys(newMemberKind().columns),
	} {
		seen := map[string]bool{}
		for i, key := range keys {
			if key == "" || seen[key] || i == 0 && key != "name" {
				t.Errorf("%s: column %d has the sort key %q of %v", kind, i, key, keys)
			}
			seen[key] = true
		}
	}
}

// BenchmarkListWorkers lists 10,000 workers.
func BenchmarkListWorkers(b *testing.B) {
	s, k := makeLargeStatus(), newWorkerKind()
	for b.Loop() {
		var out strings.Builder
		items := listWorkers(s)
		if err := sortItems(items, k.columns, "-kv-used"); err != nil {
			b.Fatal(err)
		}
		if err := printItems(&out, &k, outputTable, items); err != nil {
			b.Fatal(err)
		}
	}
}
