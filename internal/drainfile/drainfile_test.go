package drainfile

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// A drain outlives the process, ends at its time, and is not reported where it cannot be written.
func TestStoreKeepsDrainsAcrossRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "drains.json")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	open := func() *DrainStore {
		t.Helper()
		s, err := OpenStore(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	for _, d := range []admin.Drain{{Path: "here/a/w2", Reason: "ECC", Actor: "uid:7"}, {Path: "here/a/w1", Until: now.Add(time.Minute)}} {
		if err := s.PutDrain(d, now); err != nil {
			t.Fatal(err)
		}
	}
	s = open()
	if l := s.ListDrains(now); len(l) != 2 || l[0].Path != "here/a/w1" || l[1].Reason != "ECC" || l[1].Actor != "uid:7" {
		t.Fatalf("after a restart: %+v", l)
	}
	if l := s.DirectiveDrains(now.Add(time.Minute)); len(l) != 1 || l[0].Path != "here/a/w2" {
		t.Fatalf("a minute later: %+v", l)
	}
	if _, ok := s.FindDrain("here/a/w1", now.Add(time.Minute)); ok {
		t.Error("a drain is in force after its end")
	}
	if found, err := s.DeleteDrain("here/a/w2", now); !found || err != nil {
		t.Fatal(found, err)
	}
	if found, err := s.DeleteDrain("here/a/w2", now); found || err != nil {
		t.Fatal(found, err)
	}
	if l := open().ListDrains(now); len(l) != 1 {
		t.Fatalf("after undrain and restart: %+v", l)
	}
	s.path = filepath.Join(path, "below-a-file")
	if err := s.PutDrain(admin.Drain{Path: "here/a/w9"}, now); err == nil {
		t.Error("a drain that cannot be written is accepted")
	}
	if _, ok := s.FindDrain("here/a/w9", now); ok {
		t.Error("a drain that cannot be written is in force")
	}
}

func FuzzDecodeDrains(f *testing.F) {
	f.Add([]byte(`[{"path":"here/a/w1"},{"path":"here/a/w1","until":"2026-01-02T03:04:05Z"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := decodeDrains(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeDrains(again); err != nil || len(back) != len(list) {
			t.Fatalf("%d drains become %d: %v", len(list), len(back), err)
		}
	})
}
