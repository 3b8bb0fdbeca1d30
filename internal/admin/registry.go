package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

// RunningNode is a node that runs on this machine under this user. It registers itself in the runtime folder, independent of
// the path of its socket.
type RunningNode struct {
	Role   string `json:"role"`
	Node   string `json:"node"`
	Socket string `json:"socket"`
	// Fleet is equal for the nodes of one fleet: it identifies their trust domain and CA. A node without certificates is its
	// own fleet.
	Fleet string `json:"fleet"`
}

// ServerAddr returns the address for Dial.
func (r *RunningNode) ServerAddr() string { return "unix://" + r.Socket }

const (
	entrySuffix = ".node"
	// maxEntryBytes and maxEntries bound what is read from the runtime folder.
	maxEntryBytes = 4 << 10
	maxEntries    = 1000
	// probeTimeout bounds a connection attempt to a socket that may have no process.
	probeTimeout = time.Second
)

// FleetOf identifies the fleet of certificates. Without certificates it is derived from the node's name.
func FleetOf(certs *identity.Certs, name string) string {
	if certs == nil {
		return "alone/" + name
	}
	return certs.Fleet()
}

// registerNode adds the node to the runtime folder and returns the entry's path.
func registerNode(r RunningNode) (string, error) {
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

// serviceRuntimeDirs matches the runtime folders of nodes that the systemd unit runs as a user of their own
// (deploy/systemd).
var serviceRuntimeDirs = "/run/spillway-*/spillway"

// ListRunning returns the nodes that run on this machine under this user, by role and name. If root runs none, it returns
// those of the system's services. Entries of processes that have ended are removed.
func ListRunning(ctx context.Context) ([]RunningNode, error) {
	out, err := listEntries(ctx, RuntimeDir(), true)
	if err != nil || len(out) > 0 || os.Geteuid() != 0 {
		return out, err
	}
	dirs, err := filepath.Glob(serviceRuntimeDirs)
	if err != nil {
		return nil, fmt.Errorf("looking for running services: %w", err)
	}
	for _, dir := range dirs {
		// The service's user owns this folder and may make it a link: root removes nothing there.
		nodes, err := listEntries(ctx, dir, false)
		if err != nil {
			return nil, err
		}
		out = append(out, nodes...)
	}
	sortNodes(out)
	return out, nil
}

// listEntries returns the nodes of one runtime folder. With clean it removes the entries of processes that have ended.
func listEntries(ctx context.Context, dir string, clean bool) ([]RunningNode, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for running nodes: %w", err)
	}
	var out []RunningNode
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), entrySuffix) || len(out) >= maxEntries {
			continue
		}
		path := filepath.Join(dir, e.Name())
		r, ok := readEntry(path)
		switch {
		case !ok:
		case !hasEnded(ctx, r.Socket):
			out = append(out, r)
		case clean:
			_ = os.Remove(path) // another command may have removed it
		}
	}
	sortNodes(out)
	return out, nil
}

func sortNodes(nodes []RunningNode) {
	slices.SortFunc(nodes, func(a, b RunningNode) int {
		return strings.Compare(a.Role+"\x00"+a.Node+"\x00"+a.Socket, b.Role+"\x00"+b.Node+"\x00"+b.Socket)
	})
}

func readEntry(path string) (r RunningNode, ok bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxEntryBytes {
		return r, false
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return r, false
	}
	return decodeEntry(text)
}

func decodeEntry(text []byte) (r RunningNode, ok bool) {
	err := json.Unmarshal(text, &r)
	return r, err == nil && filepath.IsAbs(r.Socket)
}

// hasEnded reports whether no process listens on a socket. A process that is too busy to accept has not ended.
func hasEnded(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		_ = c.Close() // no data was sent
		return false
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// RuntimeDir returns the default folder for the sockets of this user's nodes: below $XDG_RUNTIME_DIR, or below the system's
// folder for temporary files if that is not set. The sockets are named ROLE-NAME.sock.
func RuntimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "spillway")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("spillway-%d", os.Getuid()))
}
