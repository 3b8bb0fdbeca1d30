package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spillway-lb/spillway/internal/admin"
)

// TestMain makes the test binary act as the spillway binary, for scripts and for the nodes of a process fleet.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spillway": main})
}

// TestScripts runs command lines and compares their output.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_RUNTIME_DIR", filepath.Join(e.WorkDir, "run")) // scripts do not find other nodes of this user
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "config"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"occupy": occupyPort,
			"expand": expandFiles,
			"node":   startScriptNode,
		},
	})
}

// occupyPort listens on a free port of the network ("tcp" or "udp") until the script ends and stores its address in a variable:
// occupy tcp NAME.
func occupyPort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: occupy tcp|udp NAME")
	}
	if args[0] == "udp" {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		ts.Check(err)
		ts.Defer(func() { c.Close() })
		ts.Setenv(args[1], c.LocalAddr().String())
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[1], l.Addr().String())
}

// expandFiles replaces $NAME by the script's variables in files.
func expandFiles(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: expand FILE...")
	}
	for _, name := range args {
		path := ts.MkAbs(name)
		b, err := os.ReadFile(path)
		ts.Check(err)
		ts.Check(os.WriteFile(path, []byte(os.Expand(string(b), ts.Getenv)), 0o644))
	}
}

// TestEveryCommandHasAnExample: the help of every command contains an example of it.
func TestEveryCommandHasAnExample(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			if child.Name() != "help" && child.Name() != "completion" {
				walk(child)
			}
		}
		if c.HasSubCommands() {
			return
		}
		out, _, err := runSpillway(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if err != nil {
			t.Errorf("%s --help: %v", c.CommandPath(), err)
		}
		if !strings.Contains(out, "Examples:\n  "+c.CommandPath()) && !strings.Contains(out, "  "+c.CommandPath()+" -c") {
			t.Errorf("%s --help shows no example of it:\n%s", c.CommandPath(), out)
		}
		if c.Short == "" {
			t.Errorf("%s has no short description", c.CommandPath())
		}
	}
	walk(newRootCommand())
}

// runSpillway runs one command line in this process.
func runSpillway(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runSpillwayContext(t.Context(), args...)
}

func runSpillwayContext(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errOut)
	err = root.ExecuteContext(ctx)
	return out.String(), errOut.String(), err
}

// TestUnknownOutcomeOfAChangeIsReported: the outcome of a write is unknown if the node closes the connection without an answer,
// or reports so. It is known after a refusal, a read without an answer, or a failed connection.
func TestUnknownOutcomeOfAChangeIsReported(t *testing.T) {
	dir := t.TempDir()
	serve := func(name string, reply func(http.ResponseWriter)) string {
		path := filepath.Join(dir, name)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" {
				return
			}
			io.Copy(io.Discard, r.Body)
			reply(w)
		})}
		go srv.Serve(l)
		t.Cleanup(func() { srv.Close() })
		return "unix://" + path
	}
	cut := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	say := func(e admin.Error) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(e.Status)
			json.NewEncoder(w).Encode(map[string]any{"error": e})
		}
	}
	for i, c := range []struct {
		name  string
		reply func(http.ResponseWriter)
		args  []string
		code  int
		check string
	}{
		{"drain", cut, []string{"drain", "region", "tokyo"}, exitOutcomeUnknown, "spillway get drains --linearizable"},
		{"undrain", cut, []string{"undrain", "region", "tokyo"}, exitOutcomeUnknown, "spillway get drains --linearizable"},
		{"promote", cut, []string{"promote"}, exitOutcomeUnknown, "spillway get stage"},
		{"tickets rotate", cut, []string{"tickets", "rotate"}, exitOutcomeUnknown, "spillway audit"},
		{"the cluster does not know", say(*admin.UnknownOutcomeError("no answer from the leader")), []string{"drain", "region", "tokyo"}, exitOutcomeUnknown, "no answer from the leader"},
		{"a refusal", say(*admin.ConflictError("refused", "")), []string{"drain", "region", "tokyo"}, 1, ""},
		{"a read", cut, []string{"get", "drains"}, exitUnreachable, ""},
	} {
		root := newRootCommand()
		root.SetArgs(append(c.args, "--server", serve(strconv.Itoa(i)+".sock", c.reply)))
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		if err == nil || exitCodeOf(err) != c.code {
			t.Errorf("%s: %v exits with %d, want %d", c.name, err, exitCodeOf(err), c.code)
			continue
		}
		if unknown := c.code == exitOutcomeUnknown; unknown != strings.Contains(err.Error(), "outcome unknown") || !strings.Contains(err.Error(), c.check) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
