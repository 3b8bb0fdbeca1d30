package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"errors"
	"io/fs"

	"github.com/spillway-lb/spillway/internal/identity"
)

// Running is a node that runs on this machine under this user, as it registers itself in the runtime folder, wherever its
// socket is.
type Running struct {
	Role   string `json:"role"`
	Node   string `json:"node"`
	Socket string `json:"socket"`
	// Fleet is equal for the nodes of one installation: their trust domain and authority. A node without certificates is a
	// fleet of its own.
	Fleet string `json:"fleet"`
}

// Server is the address to call.
func (r *Running) Server() string { return "unix://" + r.Socket }

const (
	entrySuffix = ".node"
	// maxEntry and maxEntries bound what is read of the runtime folder.
	maxEntry   = 4 << 10
	maxEntries = 1000
	// probeTimeout bounds the wait for a socket that may have no process behind it.
	probeTimeout = time.Second
)

// FleetOf identifies the installation that certificates are of; name is the node's own where it has none.
func FleetOf(certs *identity.Certs, name string) string {
	if certs == nil {
		return "alone/" + name
	}
	return certs.Fleet()
}

// register adds the node to the runtime folder and returns the entry's path.
func register(r Running) (string, error) {
	socket, err := filepath.Abs(r.Socket)
	if err != nil {
		return "", err
	}
	r.Socket = socket
	text, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	dir := RuntimeDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(socket))
	path := filepath.Join(dir, r.Role+"-"+hex.EncodeToString(sum[:6])+entrySuffix)
	temp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(temp, text, 0o600); err != nil {
		return "", err
	}
	return path, os.Rename(temp, path)
}

// ListRunning returns the nodes that run on this machine under this user, by role and name. Entries of processes that have
// ended are removed.
func ListRunning(ctx context.Context) ([]Running, error) {
	dir := RuntimeDir()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for running nodes: %w", err)
	}
	var out []Running
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), entrySuffix) || len(out) >= maxEntries {
			continue
		}
		path := filepath.Join(dir, e.Name())
		r, ok := readEntry(path)
		switch {
		case !ok:
		case ended(ctx, r.Socket):
			_ = os.Remove(path) // another command may have removed it
		default:
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Running) int {
		return strings.Compare(a.Role+"\x00"+a.Node+"\x00"+a.Socket, b.Role+"\x00"+b.Node+"\x00"+b.Socket)
	})
	return out, nil
}

func readEntry(path string) (r Running, ok bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxEntry {
		return r, false
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return r, false
	}
	return decodeEntry(text)
}

func decodeEntry(text []byte) (r Running, ok bool) {
	err := json.Unmarshal(text, &r)
	return r, err == nil && filepath.IsAbs(r.Socket)
}

// ended reports whether no process listens on a socket. A process that is too busy to accept has not ended.
func ended(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		_ = c.Close() // nothing was sent
		return false
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
