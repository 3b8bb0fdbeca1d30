package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/config"
)

// reloadCounter is a node that counts reloads.
type reloadCounter struct {
	fleet.Runner
	reloads int
	err     error
}

func (r *reloadCounter) Reload() error {
	r.reloads++
	return r.err
}

// TestReloadReportsKeysThatNeedARestart: a reload logs the changed keys that need a restart, and an invalid config file.
func TestReloadReportsKeysThatNeedARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "local.yaml")
	text := "role: local\nname: l1\nregion: fra\nzone: a\nhttp: {listen: \"127.0.0.1:0\", plain: true}\nworkers: [{name: w1, url: \"http://127.0.0.1:9\"}]\n"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	running, err := config.LoadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	node := &reloadCounter{}
	reload := func() string {
		var log bytes.Buffer
		reloadNode(node, file, running, slog.New(slog.NewTextHandler(&log, nil)))
		return log.String()
	}
	if got := reload(); strings.Contains(got, "restart") || !strings.Contains(got, "reloaded") || node.reloads != 1 {
		t.Errorf("without a change: %s", got)
	}
	write(strings.Replace(text, "127.0.0.1:0", "127.0.0.1:1", 1) + "drain_timeout: 5s\n")
	if got := reload(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "keys=http.listen,http.advertise\n") {
		t.Errorf("another address: %s", got)
	}
	write(text + "nonsense: 1\n")
	node.err = errors.New("bad list")
	if got := reload(); !strings.Contains(got, "config file is invalid") || !strings.Contains(got, "reload failed") {
		t.Errorf("an invalid file: %s", got)
	}
}
