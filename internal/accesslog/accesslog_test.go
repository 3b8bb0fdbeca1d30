package accesslog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockedBuffer is a buffer that the writer's goroutine and a test share.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	err  error // of the next writes
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	return b.text.Write(p)
}

func (b *lockedBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(strings.TrimSuffix(b.text.String(), "\n"), "\n")
}

func openForTest(t *testing.T, cfg Config) *Writer {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func servedRecord() *Record {
	return &Record{
		Arrived: time.Date(2026, 11, 24, 3, 50, 0, 0, time.UTC), RequestID: "req_1", Client: netip.MustParseAddr("198.51.100.7"),
		Method: "POST", Path: "/v1/chat/completions", Tenant: "acme", Model: "llama", Class: "standard", Status: 200,
		Route: "paris/a/w1", Reason: "soonest", PromptTokens: 500, CachedTokens: 400, CompletionTokens: 60,
		FirstByte: 80 * time.Millisecond, Duration: 1500 * time.Millisecond,
	}
}

func TestLinesInBothFormats(t *testing.T) {
	want := map[string]string{
		FormatJSON: `{"time":"2026-11-24T03:50:00Z","request":"req_1","client":"198.51.100.7","method":"POST","path":"/v1/chat/completions","status":200,"tenant":"acme","model":"llama","class":"standard","route":"paris/a/w1","reason":"soonest","prompt_tokens":500,"cached_tokens":400,"completion_tokens":60,"ttft_seconds":0.08,"seconds":1.5}`,
		FormatText: `time=2026-11-24T03:50:00.000Z request=req_1 client=198.51.100.7 method=POST path=/v1/chat/completions status=200 tenant=acme model=llama class=standard route=paris/a/w1 reason=soonest prompt_tokens=500 cached_tokens=400 completion_tokens=60 ttft_seconds=0.08 seconds=1.5`,
	}
	for format, line := range want {
		out := &lockedBuffer{}
		w := openForTest(t, Config{Format: format, Sample: 1, output: out})
		w.AddRecord(servedRecord())
		w.flushRecords()
		if got := out.lines(); len(got) != 1 || got[0] != line {
			t.Errorf("%s:\n%s\nwant\n%s", format, got, line)
		}
	}
}

// TestForeignTextStaysOnOneLine puts line breaks and quotes into fields that clients choose.
func TestForeignTextStaysOnOneLine(t *testing.T) {
	for _, format := range []string{FormatJSON, FormatText} {
		out := &lockedBuffer{}
		w := openForTest(t, Config{Format: format, Sample: 1, output: out})
		r := servedRecord()
		r.Path, r.Model, r.RequestID = "/v1/x\nstatus=200 \"", "a\r\nb", "id\x1b[31m\u2028"
		w.AddRecord(r)
		w.flushRecords()
		if got := out.lines(); len(got) != 1 || strings.ContainsAny(got[0], "\r\x1b") {
			t.Errorf("%s: %q", format, got)
		}
	}
}

func TestSampleKeepsFailuresAndAShareOfTheRest(t *testing.T) {
	out := &lockedBuffer{}
	w := openForTest(t, Config{Format: FormatJSON, Sample: 0.1, output: out})
	for i := range 10_000 {
		r := servedRecord()
		r.RequestID = fmt.Sprint("req_", i)
		w.AddRecord(r)
	}
	w.cfg.Sample = 0 // no id is in the sample
	for _, failed := range []Record{{RequestID: "f1", Status: 503}, {RequestID: "f2", Status: 200, Broken: true}} {
		w.AddRecord(&failed)
	}
	w.flushRecords()
	got := out.lines()
	if n := len(got); n < 850 || n > 1150 {
		t.Errorf("%d of 10,000 lines written, want about 1,000", n)
	}
	for i, id := range []string{"f1", "f2"} {
		if line := got[len(got)-2+i]; !strings.Contains(line, id) {
			t.Errorf("the failure %s is missing: %s", id, line)
		}
	}
}

func TestRecordsBeyondTheBoundAreDroppedAndCounted(t *testing.T) {
	out := &lockedBuffer{}
	w := openForTest(t, Config{Format: FormatJSON, Sample: 1, output: out})
	for range maxWaiting + 5 {
		w.AddRecord(servedRecord())
	}
	if w.Dropped() != 5 {
		t.Errorf("%d dropped, want 5", w.Dropped())
	}
	out.err = errors.New("disk full")
	w.flushRecords()
	if w.Dropped() != maxWaiting+5 {
		t.Errorf("%d dropped after a failed write, want all %d", w.Dropped(), maxWaiting+5)
	}
	out.err = nil
	w.AddRecord(servedRecord())
	w.flushRecords()
	if got := out.lines(); len(got) != 1 || !json.Valid([]byte(got[0])) {
		t.Errorf("after the disk is back: %q", got)
	}
}

// TestRunWritesInIntervalsAndAtTheEnd uses the fake clock of synctest.
func TestRunWritesInIntervalsAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &lockedBuffer{}
		w := openForTest(t, Config{Format: FormatJSON, Sample: 1, output: out})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		w.AddRecord(servedRecord())
		time.Sleep(flushInterval + time.Millisecond)
		if got := out.lines(); len(got) != 1 || got[0] == "" {
			t.Errorf("after an interval: %q", got)
		}
		w.AddRecord(servedRecord())
		cancel()
		<-done
		if got := out.lines(); len(got) != 2 {
			t.Errorf("at the end: %q", got)
		}
	})
}

func TestReopenFollowsARenamedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	w := openForTest(t, Config{Path: path, Format: FormatJSON, Sample: 1})
	w.AddRecord(servedRecord())
	w.flushRecords()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := w.Reopen(); err != nil {
		t.Fatal(err)
	}
	w.AddRecord(servedRecord())
	w.flushRecords()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".1"} {
		if text, err := os.ReadFile(name); err != nil || strings.Count(string(text), "\n") != 1 {
			t.Errorf("%s: %q %v, want one line", name, text, err)
		}
	}
	if _, err := New(Config{Path: filepath.Join(path, "x")}); err == nil || !strings.Contains(err.Error(), "access_log.path") {
		t.Errorf("a path that cannot be opened: %v", err)
	}
}

func BenchmarkAddRecord(b *testing.B) {
	w, err := New(Config{Format: FormatJSON, Sample: 1, output: &lockedBuffer{}})
	if err != nil {
		b.Fatal(err)
	}
	r := servedRecord()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if w.AddRecord(r); i%1000 == 999 {
			w.flushRecords()
		}
	}
}
