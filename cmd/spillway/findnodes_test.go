package main

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/timed"
)

// startZone starts a zone whose worker does not answer, with its state in its own folder.
func (f *cliFixture) startZone(name string) (stop func()) {
	f.t.Helper()
	return f.startNode(f.openNode(f.writeFile(name+".yaml", fmt.Sprintf(`{role: local, name: %s, region: here, zone: a, dir: %s,
http: {listen: "127.0.0.1:0", plain: true}, workers: [{name: w1, url: "http://127.0.0.1:1"}]}`, name, name))))
}

// TestCommandsFindNodes: commands find a node independent of its dir, print which one they use, and do not choose between two
// fleets.
func TestCommandsFindNodes(t *testing.T) {
	f := newCLIFixture(t)
	f.startZone("one")
	out, errOut, err := runSpillway(t, "status")
	if err != nil || !strings.Contains(out, "one (local)") || !strings.Contains(errOut, "asking local node here/a/one at unix://"+f.dir) {
		t.Fatalf("%v\n%s%s", err, out, errOut)
	}
	if _, _, err := runSpillway(t, "status", "--check"); err == nil || !strings.Contains(err.Error(), "no ready worker") {
		t.Errorf("--check of a zone whose worker does not answer: %v", err)
	}
	stop := f.startZone("two")
	_, _, err = runSpillway(t, "drain", "worker", "here/a/w1")
	for _, name := range []string{"one", "two"} {
		if want := "--server unix://" + filepath.Join(f.dir, name, "admin.sock"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("two fleets: %v, want %s", err, want)
		}
	}
	stop()
	if out, _, err := runSpillway(t, "get", "drains"); err != nil || !strings.Contains(out, "nothing is drained") {
		t.Errorf("one fleet again: %v %s", err, out)
	}
}

// serveAdminSocket serves an admin socket until the test ends, and returns its address.
func (f *cliFixture) serveAdminSocket(name string, h http.Handler) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	l, err := net.Listen("unix", path)
	if err != nil {
		f.t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	f.t.Cleanup(func() { _ = s.Close() })
	return "unix://" + path
}

// TestServersAreTriedInTurn: after a node that hangs the next one is tried; a write that may have been made is not repeated.
func TestServersAreTriedInTurn(t *testing.T) {
	f := newCLIFixture(t)
	f.startZone("one")
	good := "unix://" + filepath.Join(f.dir, "one", "admin.sock")
	hung, err := net.Listen("unix", filepath.Join(f.dir, "hung")) // accepts connections and reads nothing
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	for _, args := range [][]string{{"status"}, {"drain", "worker", "here/a/w1", "--force"}} {
		began := time.Now()
		if _, errOut, err := runSpillway(t, append(args, "--server", "unix://"+filepath.Join(f.dir, "hung")+","+good)...); err != nil {
			t.Errorf("%v with a node that hangs: %v %s", args, err, errOut)
		}
		timed.AssertWithin(t, args[0]+" with a node that hangs", time.Since(began), callTimeout)
	}
	f.runCommand("undrain", "worker", "here/a/w1", "--server", good)

	var calls atomic.Int32
	cut := f.serveAdminSocket("cut", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			calls.Add(1)
			panic(http.ErrAbortHandler)
		}
	}))
	if _, _, err := runSpillway(t, "status", "--server", cut+","+good); err != nil {
		t.Errorf("a read with a node that dies: %v", err)
	}
	calls.Store(0)
	if _, _, err := runSpillway(t, "drain", "worker", "here/a/w1", "--server", cut+","+good); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("a write to a node that dies: %v", err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the write was sent %d times", n)
	}
	if out := f.runCommand("get", "drains", "--server", good); !strings.Contains(out, "nothing is drained") {
		t.Errorf("the write was sent to another node too: %s", out)
	}
}
