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

// TestRootFindsServices: root, who runs no node, finds the nodes that systemd runs as another user, and removes no file there.
func TestRootFindsServices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, own := t.TempDir(), t.TempDir()
	pattern := serviceRuntimeDirs
	serviceRuntimeDirs = filepath.Join(dir, "spillway-*", "spillway")
	t.Cleanup(func() { serviceRuntimeDirs = pattern })
	start := func(runtime, role string) {
		t.Helper()
		t.Setenv("XDG_RUNTIME_DIR", runtime)
		s, err := New(Config{Socket: filepath.Join(t.TempDir(), "admin.sock"), Role: role, Node: "n1", Fleet: "example/1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop(context.Background()) })
	}
	list := func() (roles []string) {
		t.Helper()
		t.Setenv("XDG_RUNTIME_DIR", own)
		out, err := ListRunning(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range out {
			roles = append(roles, n.Role)
		}
		return roles
	}
	start(filepath.Join(dir, "spillway-local"), "local")
	start(filepath.Join(dir, "spillway-global"), "global")
	ended, err := registerNode(RunningNode{Role: "regional", Node: "n2", Socket: filepath.Join(dir, "none.sock")})
	if err != nil {
		t.Fatal(err)
	}
	if got := list(); len(got) != 2 || got[0] != "global" || got[1] != "local" {
		t.Errorf("found %v, want the global and the local service", got)
	}
	if _, err := os.Stat(ended); err != nil {
		t.Errorf("the entry of an ended service was removed: %v", err)
	}
	start(own, "worker")
	if got := list(); len(got) != 1 || got[0] != "worker" {
		t.Errorf("found %v, want only root's own node", got)
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
