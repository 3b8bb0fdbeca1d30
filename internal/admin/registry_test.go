package admin

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestListRunning: a node is found independent of its socket's path, and not after it has ended.
func TestListRunning(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	list := func() []RunningNode {
		t.Helper()
		out, err := ListRunning(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := list(); len(out) != 0 {
		t.Fatalf("without a node: %v", out)
	}
	socket := filepath.Join(t.TempDir(), "admin.sock")
	s, err := New(Config{Socket: socket, Role: "global", Node: "g1", Fleet: "example/1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := list(); len(out) != 1 || out[0] != (RunningNode{Role: "global", Node: "g1", Socket: socket, Fleet: "example/1"}) {
		t.Fatalf("with one node: %+v", out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "spillway", "*")); len(left) != 0 {
		t.Errorf("a stopped node leaves %v", left)
	}
	// A killed process does not remove its entry and its socket.
	path, err := registerNode(RunningNode{Role: "local", Node: "l1", Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	if out := list(); len(out) != 0 {
		t.Errorf("a killed node is listed: %v", out)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the entry of a killed node was not removed")
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
