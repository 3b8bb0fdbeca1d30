package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
)

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
		{"a read", cut, []string{"get", "drains"}, 1, ""},
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
