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

// listenTCP listens at an address. section is the config section with the key listen, for errors.
func listenTCP(addr, section string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s.listen: %s is in use by another process: stop that process or change %s.listen", section, addr, section)
	}
	if err != nil {
		return nil, fmt.Errorf("%s.listen: %w", section, err)
	}
	return l, nil
}

// maxSocketPathBytes is the lowest limit of the supported systems, in bytes (macOS: 104 with the terminating zero).
const maxSocketPathBytes = 103

// listenSocket creates a socket that only its owner can open. The socket gets a temporary name and is renamed after its mode
// is set, so that no other user can connect in between.
func listenSocket(path string) (net.Listener, error) {
	temp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if len(temp) > maxSocketPathBytes {
		return nil, fmt.Errorf("admin socket %s: the path is too long for a socket: choose a shorter directory", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the admin socket's directory: %w", err)
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
	l.(*net.UnixListener).SetUnlinkOnClose(false) // Close would remove the temporary name
	if err := errors.Join(os.Chmod(temp, 0o600), os.Rename(temp, path)); err != nil {
		l.Close()
		os.Remove(temp)
		return nil, fmt.Errorf("placing the admin socket: %w", err)
	}
	return l, nil
}
