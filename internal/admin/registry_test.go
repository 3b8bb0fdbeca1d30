package admin

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A node is found wherever its socket is, and not after it has ended.
func TestListRunning(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	list := func() []Running {
		t.Helper()
		out, err := ListRunning(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := list(); len(out) != 0 {
		t.Fatalf("nothing runs: %v", out)
	}
	socket := filepath.Join(t.TempDir(), "admin.sock")
	s, err := New(Config{Socket: socket, Role: "global", Node: "g1", Fleet: "example/1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := list(); len(out) != 1 || out[0] != (Running{Role: "global", Node: "g1", Socket: socket, Fleet: "example/1"}) {
		t.Fatalf("one node runs: %+v", out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "spillway", "*")); len(left) != 0 {
		t.Errorf("a stopped node leaves %v", left)
	}
	// A process that was killed leaves its entry and its socket.
	path, err := register(Running{Role: "local", Node: "l1", Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	if out := list(); len(out) != 0 {
		t.Errorf("a killed node is listed: %v", out)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the entry of a killed node is left")
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add([]byte(`{"role":"global","node":"g1","socket":"/run/a.sock","fleet":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, ok := decodeEntry(text); ok && !filepath.IsAbs(r.Socket) {
			t.Errorf("a relative socket: %q", r.Socket)
		}
	})
}
