package discover

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
