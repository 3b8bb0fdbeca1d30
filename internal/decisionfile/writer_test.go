package decisionfile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/decision"
)

// lockedRing is a ring with the lock of its decider.
type lockedRing struct {
	mu sync.Mutex
	r  *decision.Ring
}

func (l *lockedRing) add(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r.AddRecord(&decision.Record{Event: decision.EventChoice, At: time.Unix(1, 0), RequestID: id, Chosen: "w1"})
}

func (l *lockedRing) readNew(p Positions) (out NewRecords) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out.Decisions, out.Next.Decisions, out.Lost = l.r.PartsFrom(p.Decisions)
	return out
}

func readIDs(t *testing.T, name string) (ids []string, torn bool) {
	t.Helper()
	torn, err := ReadFile(name, func(r *decision.Record) error { ids = append(ids, r.RequestID); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return ids, torn
}

// TestFileHasEachRecordOnceWithinItsBound writes several files.
func TestFileHasEachRecordOnceWithinItsBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions")
	const limit = 64 << 10
	restarts := 0
	synctest.Test(t, func(t *testing.T) {
		l := &lockedRing{r: decision.NewRing(1 << 20)}
		w, err := New(Config{Path: path, MaxBytes: limit, ReadNew: l.readNew, Restart: func() { restarts++ }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		for i := range 4000 {
			l.add(fmt.Sprint("r", i))
			if i%50 == 0 {
				time.Sleep(flushInterval)
			}
		}
		cancel()
		<-done
		if w.Lost() != 0 {
			t.Errorf("%d bytes lost", w.Lost())
		}
	})
	earlier, _ := readIDs(t, path+EarlierSuffix)
	now, torn := readIDs(t, path)
	all := append(earlier, now...)
	for i, id := range all {
		if want := fmt.Sprint("r", 4000-len(all)+i); id != want {
			t.Fatalf("record %d is %s, want %s", i, id, want)
		}
	}
	size := int64(0)
	for _, name := range []string{path, path + EarlierSuffix} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if len(all) < 200 || torn || size > limit+8<<10 || restarts < 3 {
		t.Errorf("%d records in %d bytes, torn %v, %d restarts", len(all), size, torn, restarts)
	}
}

func TestTornAndForeignFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions")
	l := &lockedRing{r: decision.NewRing(1)}
	w, err := New(Config{Path: path, MaxBytes: 1 << 20, ReadNew: l.readNew})
	if err != nil {
		t.Fatal(err)
	}
	l.add("a")
	l.add("b")
	w.flushRecords()
	info, _ := os.Stat(path)
	if err := os.Truncate(path, info.Size()-3); err != nil {
		t.Fatal(err)
	}
	if ids, torn := readIDs(t, path); len(ids) != 1 || !torn {
		t.Errorf("%v, torn %v", ids, torn)
	}
	if err := os.WriteFile(path, []byte("something else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path, nil); err == nil {
		t.Error("a foreign file is read")
	}
	if _, err := New(Config{Path: filepath.Join(path, "below"), MaxBytes: 1 << 20}); err == nil {
		t.Error("a path below a file is opened")
	}
}

func FuzzReadRecords(f *testing.F) {
	f.Add([]byte{3, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := readRecords(b, func(*decision.Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
	})
}
