package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

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
