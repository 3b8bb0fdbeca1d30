package billing

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
)

func newRecord(n int) UsageRecord {
	return UsageRecord{
		At: time.Unix(1_000_000, 0).UTC(), Gateway: "gw1", Region: "fra", Tenant: "acme", Model: "m", Request: fmt.Sprint("req", n),
		Prompt: 10, Cached: 4, Completion: 5, Micros: 7, Stated: true,
	}
}

// TestEachRecordIsReadOnce writes from several goroutines over many files, and reads each record once.
func TestEachRecordIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, err := New(Config{Dir: dir, Boot: 9, RotateSize: 4 << 10})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { w.Run(ctx) })
		var sides sync.WaitGroup
		for range 4 {
			sides.Go(func() {
				for n := range 50 {
					w.AddRecord(newRecord(n))
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
		sides.Wait()
		cancel()
		all.Wait()
		if w.Lost() != 0 || w.Waiting() != 0 || w.Written() != 200 {
			t.Errorf("%d lost, %d wait, %d written", w.Lost(), w.Waiting(), w.Written())
		}
	})
	r, err := ReadFiles([]string{dir, dir}, []string{"tenant", "model", "region", "day"}) // twice, as when files are copied together
	if err != nil {
		t.Fatal(err)
	}
	want := Total{Requests: 200, Prompt: 2000, Cached: 800, Completion: 1000, Micros: 1400}
	if got := r.Totals[TotalKey{"acme", "m", "fra", "1970-01-12"}]; got != want || r.Records != 200 || r.Duplicates != 200 || r.Missing != 0 || r.Files < 4 || r.Torn != nil || r.BadLines != nil {
		t.Errorf("%+v: %+v", got, r)
	}
}

// fullDiskFile is a file on a disk that is full for a while; a write then writes half of its data.
type fullDiskFile struct {
	*os.File
	full *bool
}

func (d fullDiskFile) Write(b []byte) (int, error) {
	if *d.full {
		n, _ := d.File.Write(b[:len(b)/2])
		return n, syscall.ENOSPC
	}
	return d.File.Write(b)
}

// TestFullDiskLosesOnlyRecordsBeyondBacklog: records wait, those beyond the backlog count as lost, and later ones are
// intact.
func TestFullDiskLosesOnlyRecordsBeyondBacklog(t *testing.T) {
	dir, full := t.TempDir(), false
	w, err := New(Config{Dir: dir, Boot: 9, Backlog: 10})
	if err != nil {
		t.Fatal(err)
	}
	open := w.cfg.openFile
	w.cfg.openFile = func(name string) (recordFile, error) {
		f, err := open(name)
		if err != nil {
			return nil, err
		}
		return fullDiskFile{f.(*os.File), &full}, nil
	}
	for n := range 5 {
		w.AddRecord(newRecord(n))
	}
	w.flushWaiting()
	full = true
	for n := range 13 {
		if ok := w.AddRecord(newRecord(n)); ok != (n < 10) {
			t.Fatalf("record %d found room: %v", n, ok)
		}
		w.flushWaiting()
	}
	if w.Lost() != 3 || w.Waiting() != 10 {
		t.Fatalf("%d lost, %d wait", w.Lost(), w.Waiting())
	}
	full = false
	w.flushWaiting()
	w.AddRecord(newRecord(99))
	w.flushWaiting()
	r, err := ReadFiles([]string{dir}, nil)
	if err != nil || r.Records != 16 || r.Missing != 3 || r.Duplicates != 0 || r.Torn != nil || r.BadLines != nil {
		t.Fatalf("%+v, %v", r, err)
	}
}

// TestDevFullLosesRecords writes to /dev/full, which accepts nothing.
func TestDevFullLosesRecords(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	w, err := New(Config{Dir: t.TempDir(), Boot: 9})
	if err != nil {
		t.Fatal(err)
	}
	w.cfg.openFile = func(string) (recordFile, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) }
	w.AddRecord(newRecord(1))
	if err := w.writeBatch(w.waiting); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a full disk says %v", err)
	}
	if w.flushWaiting(); w.Waiting() != 1 || w.Written() != 0 {
		t.Errorf("%d wait, %d written", w.Waiting(), w.Written())
	}
}

// TestAKilledWriter kills a writing process and reads its files: every record that it reported as on disk, each once,
// and no gap before the end.
func TestAKilledWriter(t *testing.T) {
	if dir := os.Getenv("USAGE_DIR"); dir != "" {
		w, err := New(Config{Dir: dir, Boot: 7, SyncInterval: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		go w.Run(context.Background())
		for n := 0; ; n++ {
			w.AddRecord(newRecord(n))
			if n%100 == 0 {
				fmt.Println("written", w.Written())
				testkit.PauseUnlessDone(t.Context(), time.Millisecond) // the parent reads this line
			}
		}
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestAKilledWriter$")
	cmd.Env = append(os.Environ(), "USAGE_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	known := int64(0)
	for lines := bufio.NewScanner(out); known < 2000 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "written "); ok {
			known, _ = strconv.ParseInt(text, 10, 64)
		}
	}
	_ = cmd.Process.Kill() // killed
	_ = cmd.Wait()         // it reports the kill
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if len(files) == 0 {
		t.Fatal("nothing was written")
	}
	f, err := os.OpenFile(files[len(files)-1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"boot":7,"seq":1000000,"ten`); err != nil { // as after a kill in the middle of a write
		t.Fatal(err)
	}
	f.Close()
	r, err := ReadFiles([]string{dir}, nil)
	if err != nil || known < 2000 || r.Records < known || r.Missing != 0 || r.Duplicates != 0 || r.BadLines != nil || len(r.Torn) != 1 {
		t.Fatalf("%d were known to be on disk; %+v, %v", known, r, err)
	}
}

func FuzzReadFiles(f *testing.F) {
	line, _ := encodeRecord(&UsageRecord{Boot: 1, Seq: 1, Tenant: "a"})
	f.Add(line)
	f.Add([]byte("{}\n\n{\"boot\":1,\"seq\":18446744073709551615,\"tenant\":\"a\"}\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		name := filepath.Join(t.TempDir(), "usage-1.jsonl")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := ReadFiles([]string{name, name}, []string{"tenant"})
		if err != nil {
			t.Fatal(err)
		}
		if r.Duplicates != r.Records+r.Duplicates-r.Records || r.Records < 0 || r.Duplicates < r.Records {
			t.Fatalf("read twice: %+v", r)
		}
	})
}
