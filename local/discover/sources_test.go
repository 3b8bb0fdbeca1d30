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

func at(name, url string) Worker { return Worker{Name: name, URL: url, Weight: 1} }

func TestStrongerSourcesWin(t *testing.T) {
	l := lists{
		Static:     {at("a", "http://10.0.0.1:80")},
		File:       {at("a", "http://10.0.0.2:80"), at("b", "http://10.0.0.2:80")},
		DNS:        {at("c", "http://10.0.0.1"), at("d", "https://10.0.0.4")},
		Registered: {at("b", "http://10.0.0.9:80"), at("e", "http://10.0.0.4:443"), at("f", "http://10.0.0.6:80")},
	}
	ws, from, clashes := l.merge()
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

func TestOneInstanceTakesSoMany(t *testing.T) {
	var l lists
	for i := range MaxWorkers + 3 {
		l[DNS] = append(l[DNS], at("w"+string(rune('a'+i%26))+strings.Repeat("x", i/26%40)+strings.Repeat("y", i/1040), "http://h"+strings.Repeat("i", i/100)+strings.Repeat("j", i%100)+":1"))
	}
	ws, from, clashes := l.merge()
	if len(ws) != MaxWorkers || len(from) != MaxWorkers || len(clashes) != 3 {
		t.Errorf("%d workers, %d sources and %d left out, want %d and 3", len(ws), len(from), len(clashes), MaxWorkers)
	}
}

func TestChangesAreToldTogetherAndClashesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told [][]Worker
		var log bytes.Buffer
		s, err := New(Config{Static: []Worker{at("s", "http://10.0.0.1:1")}, OnChange: func(ws []Worker) { told = append(told, ws) }, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		s.put(DNS, []Worker{at("a", "http://10.0.0.2:1")})
		s.put(DNS, []Worker{at("a", "http://10.0.0.2:1"), at("b", "http://10.0.0.3:1")})
		s.put(Registered, []Worker{at("s", "http://10.0.0.4:1")})
		time.Sleep(time.Second)
		s.put(Registered, []Worker{at("s", "http://10.0.0.4:1"), at("a", "http://10.0.0.5:1")})
		time.Sleep(time.Second)
		s.Stop()
		if len(told) != 2 || len(told[0]) != 1 || len(told[1]) != 3 {
			t.Errorf("told %v, want the static worker and then all three at once", told)
		}
		if n := strings.Count(log.String(), "worker left out"); n != 2 || s.Stats().Clashes != 2 {
			t.Errorf("%d lines and %v counted, want each clash once:\n%s", n, s.Stats().Clashes, &log)
		}
		if s.Source("s") != "static" || s.Source("b") != "dns" || s.Source("x") != "" {
			t.Errorf("sources are %q %q %q", s.Source("s"), s.Source("b"), s.Source("x"))
		}
		if st := s.Stats(); st.Workers["static"] != 1 || st.Workers["dns"] != 2 || st.Workers["registration"] != 0 {
			t.Errorf("workers by source are %v", st.Workers)
		}
	})
}
