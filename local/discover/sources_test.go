package discover

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
	"go.uber.org/goleak"
)

func workerNamed(name, url string) Worker { return Worker{Name: name, URL: url, Weight: 1} }

func TestStrongerSourcesWin(t *testing.T) {
	l := sourceLists{
		SourceStatic:     {workerNamed("a", "http://10.0.0.1:80")},
		SourceFile:       {workerNamed("a", "http://10.0.0.2:80"), workerNamed("b", "http://10.0.0.2:80")},
		SourceDNS:        {workerNamed("c", "http://10.0.0.1"), workerNamed("d", "https://10.0.0.4")},
		SourceRegistered: {workerNamed("b", "http://10.0.0.9:80"), workerNamed("e", "http://10.0.0.4:443"), workerNamed("f", "http://10.0.0.6:80")},
	}
	ws, from, clashes := l.mergeSources()
	var got []string
	for _, w := range ws {
		got = append(got, w.Name+" "+from[w.Name].String())
	}
	if s := strings.Join(got, ", "); s != "a static, b file, d dns, f registration" {
		t.Errorf("the list is %s", s)
	}
	if len(clashes) != 4 {
		t.Errorf("clashes are %v, want a of file, c of dns, and b and e of registration", clashes)
	}
}

func TestWorkerCountIsBounded(t *testing.T) {
	var l sourceLists
	for i := range MaxWorkers + 3 {
		l[SourceDNS] = append(l[SourceDNS], workerNamed("w"+string(rune('a'+i%26))+strings.Repeat("x", i/26%40)+strings.Repeat("y", i/1040), "http://h"+strings.Repeat("i", i/100)+strings.Repeat("j", i%100)+":1"))
	}
	ws, from, clashes := l.mergeSources()
	if len(ws) != MaxWorkers || len(from) != MaxWorkers || len(clashes) != 3 {
		t.Errorf("%d workers, %d sources and %d left out, want %d and 3", len(ws), len(from), len(clashes), MaxWorkers)
	}
}

func TestChangesAreCoalescedAndConflictsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported [][]Worker
		var log bytes.Buffer
		s, err := New(Config{Static: []Worker{workerNamed("s", "http://10.0.0.1:1")}, OnChange: func(ws []Worker) { reported = append(reported, ws) }, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		s.setWorkers(SourceDNS, []Worker{workerNamed("a", "http://10.0.0.2:1")})
		s.setWorkers(SourceDNS, []Worker{workerNamed("a", "http://10.0.0.2:1"), workerNamed("b", "http://10.0.0.3:1")})
		s.setWorkers(SourceRegistered, []Worker{workerNamed("s", "http://10.0.0.4:1")})
		time.Sleep(time.Second)
		s.setWorkers(SourceRegistered, []Worker{workerNamed("s", "http://10.0.0.4:1"), workerNamed("a", "http://10.0.0.5:1")})
		time.Sleep(time.Second)
		s.Stop()
		if len(reported) != 2 || len(reported[0]) != 1 || len(reported[1]) != 3 {
			t.Errorf("reported %v, want the static worker and then all three at once", reported)
		}
		if n := strings.Count(log.String(), "worker left out"); n != 2 || s.Stats().Conflicts != 2 {
			t.Errorf("%d lines and %v counted, want each clash once:\n%s", n, s.Stats().Conflicts, &log)
		}
		if s.SourceOf("s") != "static" || s.SourceOf("b") != "dns" || s.SourceOf("x") != "" {
			t.Errorf("sources are %q %q %q", s.SourceOf("s"), s.SourceOf("b"), s.SourceOf("x"))
		}
		if st := s.Stats(); st.Workers["static"] != 1 || st.Workers["dns"] != 2 || st.Workers["registration"] != 0 {
			t.Errorf("workers by source are %v", st.Workers)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDecodeWorkersFile(t *testing.T) {
	text, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ws, err := DecodeWorkers("good.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if len(ws) != 2 || ws[0].GPU != "H100x4" || ws[0].Weight != 1 || ws[0].Models[0] != "llama-3.1-70b" || ws[1].Weight != 2 || ws[1].Labels["rack"] != "r7" {
		t.Fatalf("got %+v", ws)
	}
}

var updateMessages = flag.Bool("update", false, "write the expected messages again")

func TestDecodeErrorsNamePlaceAndHint(t *testing.T) {
	testkit.CheckFixtures(t, "testdata/mistakes.txtar", 4, *updateMessages, func(t *testing.T, f testkit.Fixture) string {
		_, err := DecodeWorkers(f.File, f.Text)
		if err == nil {
			t.Fatal("the file was taken")
		}
		return err.Error() + "\n"
	})
}

func TestInvalidWorkersAreRefused(t *testing.T) {
	for _, u := range []string{"", "worker:80", "http://", "http://a:1/v1", "http://u:p@a:1", "http://a:1?x", "ftp://a:1", "http://[fe80::1]:1", "http://0.0.0.0:1", "http://[::ffff:169.254.1.1]:1"} {
		if got := CheckWorkers([]Worker{{Name: "a", URL: u, Weight: 1}}); len(got) != 1 {
			t.Errorf("URL %q gave %v, want one problem", u, got)
		}
	}
	for _, n := range []string{"", "a/b", "a b", strings.Repeat("x", 64)} {
		if got := CheckWorkers([]Worker{{Name: n, URL: "http://a:1", Weight: 1}}); len(got) != 1 {
			t.Errorf("name %q gave %v, want one problem", n, got)
		}
	}
}

// listRecorder records the lists that a watcher reports.
type listRecorder struct {
	mu      sync.Mutex
	lists   [][]Worker
	changes chan int
}

func (h *listRecorder) recordList(ws []Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lists = append(h.lists, ws)
	h.changes <- len(ws)
}

func TestWatcherKeepsLastGoodFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workers.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("workers:\n  - {name: a, url: \"http://127.0.0.1:1\"}\n")
	h := &listRecorder{changes: make(chan int, 8)}
	var log bytes.Buffer
	w, err := New(Config{
		Static: []Worker{{Name: "s", URL: "http://127.0.0.1:9", Weight: 1}}, File: file, Poll: time.Millisecond,
		OnChange: h.recordList, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := <-h.changes; n != 2 {
		t.Fatalf("first list has %d workers, want 2", n)
	}
	write("workers:\n  - {name: a, url: \"http://127.0.0.1:1\"}\n  - {name: b, url: \"http://127.0.0.1:2\"}\n")
	if n := <-h.changes; n != 3 {
		t.Fatalf("the next list has %d workers, want 3", n)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := w.Reload(); err == nil {
		t.Fatal("a missing file was taken for an empty one")
	}
	w.Stop()
	select {
	case n := <-h.changes:
		t.Fatalf("a bad file changed the list to %d workers", n)
	default:
	}
}

func TestWatcherRefusesABadStart(t *testing.T) {
	none := func([]Worker) {}
	if _, err := New(Config{File: filepath.Join(t.TempDir(), "none.yaml"), OnChange: none}); err == nil || !strings.Contains(err.Error(), "create it") {
		t.Errorf("a missing file says %v", err)
	}
	for _, f := range testkit.ReadFixtures(t, "testdata/mistakes.txtar", 4) {
		file := filepath.Join(t.TempDir(), f.File)
		if err := os.WriteFile(file, f.Text, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{File: file, OnChange: none}); err == nil {
			t.Errorf("the bad file %s was taken", f.Name)
		}
	}
	if _, err := New(Config{Static: []Worker{{Name: "a"}}, OnChange: none}); err == nil {
		t.Error("a worker without URL was taken")
	}
}

func FuzzDecodeWorkers(f *testing.F) {
	for _, c := range testkit.ReadFixtures(f, "testdata/mistakes.txtar", 4) {
		f.Add(c.Text)
	}
	good, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, text []byte) {
		ws, err := DecodeWorkers("fuzz.yaml", text)
		if err == nil && len(CheckWorkers(ws)) != 0 {
			t.Fatalf("a list was taken that Check refuses: %v", CheckWorkers(ws))
		}
	})
}
