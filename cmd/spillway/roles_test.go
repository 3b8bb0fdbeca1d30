package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestServiceManagerIsNotified reads the sd_notify messages of a node: ready after its listeners are open, reloading and ready
// around a SIGHUP, stopping before it stops.
func TestServiceManagerIsNotified(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	file := filepath.Join(dir, "worker.yaml")
	if err := os.WriteFile(file, []byte("{role: worker, name: w1, listen: 127.0.0.1:0}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		var b [256]byte
		n, err := manager.Read(b[:])
		if err != nil || string(b[:n]) != want {
			t.Fatalf("reported %q, %v; want %q", b[:n], err, want)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runNode(ctx, file, slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	expect("READY=1")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	expect("RELOADING=1")
	expect("READY=1")
	stop()
	expect("STOPPING=1")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
