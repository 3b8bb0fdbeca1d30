package admin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// listenTCP says who wanted the port when it is taken.
func listenTCP(addr, who string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s wants %s and another process has it: stop that process or change %s.listen", who, addr, who)
	}
	if err != nil {
		return nil, fmt.Errorf("listening for %s: %w", who, err)
	}
	return l, nil
}

// maxSocketPath is the shortest limit among the systems we run on, in bytes (macOS: 104 with the final zero).
const maxSocketPath = 103

// listenSocket makes a socket that only its owner can open. It is made under another name and renamed once its mode is
// right, so that there is no moment in which others could connect.
func listenSocket(path string) (net.Listener, error) {
	temp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if len(temp) > maxSocketPath {
		return nil, fmt.Errorf("admin socket %s: the name is too long for a socket: choose a shorter directory", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the admin socket's directory: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("admin socket %s is in use: another node runs with this directory", path)
	}
	os.Remove(temp)
	l, err := net.Listen("unix", temp)
	if err != nil {
		return nil, fmt.Errorf("listening for admin: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it would remove the temporary name
	if err := errors.Join(os.Chmod(temp, 0o600), os.Rename(temp, path)); err != nil {
		l.Close()
		os.Remove(temp)
		return nil, fmt.Errorf("placing the admin socket: %w", err)
	}
	return l, nil
}
