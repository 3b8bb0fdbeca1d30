package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// lines collects what a process prints.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// process runs the real binary until stop, which interrupts it as Ctrl-C does and returns whether it ended well.
func (f *fixture) process(args ...string) (out *lines, stop func() error) {
	f.t.Helper()
	out = &lines{}
	cmd := exec.Command("spillway", args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	done := false
	stop = func() error {
		if done {
			return nil
		}
		done = true
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			return err
		}
		end := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		defer end.Stop()
		return cmd.Wait()
	}
	f.t.Cleanup(func() { _ = stop() })
	return out, stop
}

// simulated runs `spillway worker` at an address.
func (f *fixture) simulated(name, addr string) {
	f.t.Helper()
	f.process("worker", "-c", f.file(name+".yaml", "role: worker\nname: "+name+"\nlisten: "+addr+"\nserved_as: m1\nspeed: 100\n"))
}

// The real binary serves real processes, without a key, and waits for a worker that starts later.
func TestUp(t *testing.T) {
	f := newFixture(t)
	w1, w2, addr := freePort(t), freePort(t), freePort(t)
	f.simulated("sim1", w1)
	out, stop := f.process("up", "--worker", "http://"+w1, "--worker", "http://"+w2, "--listen", addr)
	f.until("one worker is ready and one is waited for", func() (bool, string) {
		s := out.String()
		return strings.Contains(s, "w1 http://"+w1+": ready") && strings.Contains(s, "w2 http://"+w2+": not ready") && strings.Contains(s, "curl http://"+addr+"/v1/chat/completions"), s
	})
	f.until("the reason is printed", func() (bool, string) {
		s := out.String()
		return strings.Contains(s, "w2 http://"+w2+": not ready: GET /v1/models: connection refused ("), s
	})
	f.answers(addr, "", "m1", 200)
	f.simulated("sim2", w2)
	f.until("the second worker is ready", func() (bool, string) { s := out.String(); return strings.Contains(s, "w2 http://"+w2+": ready"), s })
	_, port, _ := net.SplitHostPort(addr)
	server := "--server=unix://" + filepath.Join(f.dir, "run", "spillway", "local-up-"+port+".sock")
	f.cli("drain", "worker", "here/a/w1", server)
	if s := f.cli("status", "--workers", server); !strings.Contains(s, "drain: here/a/w1") {
		t.Errorf("status: %s", s)
	}
	if err := stop(); err != nil || !strings.Contains(out.String(), "stopped.") {
		t.Errorf("stop: %v\n%s", err, out)
	}
}

// With --key only the key that was printed once is served, also after a restart.
func TestUpWithKey(t *testing.T) {
	f := newFixture(t)
	w1, addr := freePort(t), freePort(t)
	f.simulated("sim1", w1)
	args := []string{"up", "--worker", "http://" + w1, "--listen", addr, "--key", "acme", "--dir", filepath.Join(f.dir, "state")}
	out, stop := f.process(args...)
	find := regexp.MustCompile(`key of tenant acme, shown once: (sk-\S+)`)
	f.until("a key is printed", func() (bool, string) { s := out.String(); return find.MatchString(s), s })
	key := find.FindStringSubmatch(out.String())[1]
	f.answers(addr, key, "m1", 200)
	f.answers(addr, "", "m1", 401)
	f.until("the line to copy has the key", func() (bool, string) {
		s := out.String()
		return strings.Contains(s, `-H "Authorization: Bearer `+key+`"`), s
	})
	if err := stop(); err != nil {
		t.Errorf("stop: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(f.dir, "state", "spec.yaml"))
	if err != nil || bytes.Contains(text, []byte(key)) || !bytes.Contains(text, []byte("sha256:")) {
		t.Errorf("the spec: %v\n%s", err, text)
	}
	again, _ := f.process(args...)
	f.answers(addr, key, "m1", 200)
	f.answers(addr, "", "m1", 401)
	if s := again.String(); find.MatchString(s) || !strings.Contains(s, "printed by an earlier run") {
		t.Errorf("the second run: %s", s)
	}
}

// With --api-key-file every worker gets the key of the file, whose path counts from the working directory. What is printed of a
// worker that refuses names the flag, once.
func TestUpSendsWorkersAKey(t *testing.T) {
	f := newFixture(t)
	w1, w2, addr := freePort(t), freePort(t), freePort(t)
	f.file("keys", "sk-worker-hunter2\n")
	f.file("wrong", "sk-wrong-hunter3\n")
	for name, at := range map[string]string{"sim1": w1, "sim2": w2} {
		f.process("worker", "-c", f.file(name+".yaml", "role: worker\nname: "+name+"\nlisten: "+at+"\nserved_as: m1\nspeed: 100\napi_key_file: keys\n"))
	}
	t.Chdir(f.dir)
	for _, c := range []struct{ flags, cause string }{
		{"", "not ready: GET /v1/models: status 401 Unauthorized (the worker requires a key: set --api-key-file) ("},
		{"--api-key-file wrong", "not ready: GET /v1/models: status 401 Unauthorized (the worker rejects the configured key: check --api-key-file) ("},
	} {
		args := append([]string{"up", "--worker", "http://" + w1, "--listen", freePort(t)}, strings.Fields(c.flags)...)
		out, stop := f.process(args...)
		f.until("the refusal is printed", func() (bool, string) {
			s := out.String()
			return strings.Contains(s, "w1 http://"+w1+": "+c.cause), s
		})
		if err := stop(); err != nil || strings.Contains(out.String(), "hunter") {
			t.Errorf("up %s: %v\n%s", c.flags, err, out)
		}
	}
	out, stop := f.process("up", "--worker", "http://"+w1, "--worker", "http://"+w2, "--listen", addr, "--api-key-file", "keys", "--dir", "state")
	f.until("both workers are ready", func() (bool, string) {
		s := out.String()
		return strings.Contains(s, "w1 http://"+w1+": ready") && strings.Contains(s, "w2 http://"+w2+": ready"), s
	})
	f.answers(addr, "", "m1", 200)
	if err := stop(); err != nil || strings.Contains(out.String(), "hunter") {
		t.Errorf("up: %v\n%s", err, out)
	}
}

// TestUpPrintsWorkers holds what is printed of a worker and when it is printed again.
func TestUpPrintsWorkers(t *testing.T) {
	refused := func(n int) *admin.WorkerStatus {
		return &admin.WorkerStatus{
			Name: "w1", URL: "http://h:80", State: admin.StateStarting, LastError: "GET /v1/models: connection refused", Attempts: n,
			Reason: fmt.Sprintf("not ready: GET /v1/models: connection refused (%s)", plural(n, "attempt")),
		}
	}
	for want, w := range map[string]*admin.WorkerStatus{
		"not ready: GET /v1/models: connection refused (1 attempt)":   refused(1),
		"not ready: GET /v1/models: connection refused (12 attempts)": refused(12),
		"not ready: starting":                {Name: "w1", URL: "http://h:80", State: admin.StateStarting, Reason: admin.StateStarting},
		"not ready: draining":                {Name: "w1", URL: "http://h:80", State: admin.StateDraining, Reason: admin.StateDraining},
		"not ready: ejected: probe: timeout": {Name: "w1", URL: "http://h:80", State: admin.StateSick, Reason: "ejected: probe: timeout"},
		"ready, engine vllm, models m1":      {Name: "w1", URL: "http://h:80", State: admin.StateReady, Engine: "vllm", Models: []string{"m1"}},
	} {
		var out bytes.Buffer
		printWorker(&out, w)
		if out.String() != "  w1 http://h:80: "+want+"\n" {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
	}
	var printed []int
	last := ""
	for n := 1; n <= 250; n++ {
		if now := workerLine(refused(n)); now != last {
			last = now
			printed = append(printed, n)
		}
	}
	if !slices.Equal(printed, []int{1, 10, 100}) {
		t.Errorf("printed after %v attempts", printed)
	}
	if slow := refused(100); workerLine(slow) != last {
		t.Error("the same cause is printed again")
	} else if slow.Reason = "not ready: GET /v1/models: timeout (100 attempts)"; workerLine(slow) == last {
		t.Error("another cause is not printed")
	}
}

// Mistakes are found before anything runs.
func TestUpMistakes(t *testing.T) {
	f := newFixture(t)
	empty, two, key := f.file("empty", "\n"), f.file("two", "secret-1\nsecret-2\n"), f.file("key", "secret\n")
	for want, args := range map[string]string{
		"no worker is named":                                      "",
		"leave it out, Spillway adds it: http://h:80":             "--worker http://h:80/v1",
		"is not the address of an HTTP server":                    "--worker h:8000",
		"given twice":                                             "--worker http://h:80 --worker http://H:80/",
		"without user and query: http://h:80":                     "--worker http://u:secret@h:80",
		"--listen":                                                "--worker http://h:80 --listen nowhere",
		"--api-key-file /x/key: no such file or directory; write": "--worker http://h:80 --api-key-file /x/key",
		"--api-key-file " + empty + ": the file is empty; write":  "--worker http://h:80 --api-key-file " + empty,
		"the file holds more than one line":                       "--worker http://h:80 --api-key-file " + two,
	} {
		_, _, err := spillway(t, append([]string{"up"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("up %s: %v, want %q", args, err, want)
		}
	}
	out, _, err := spillway(t, "up", "--worker", "http://h:80", "--dir", "/x/y", "--config")
	if err != nil || !strings.Contains(out, "role: local") || !strings.Contains(out, "http://h:80") {
		t.Errorf("up --config: %v\n%s", err, out)
	}
	t.Chdir(f.dir)
	out, _, err = spillway(t, "up", "--worker", "http://h:80", "--worker", "http://h:81", "--api-key-file", "key", "--config")
	if err != nil || strings.Count(out, "api_key_file: "+key+"\n") != 2 || strings.Contains(out, "secret") {
		t.Errorf("up --api-key-file --config: %v\n%s", err, out)
	}
	if _, err := os.Stat("/x/y"); err == nil {
		t.Error("--config makes the folder")
	}
}
