package discover

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// leaseStore persists registered workers in the instance's directory.
type leaseStore struct {
	dir       string
	lastSaved []byte
}

// storedLease is one persisted worker. The remaining lease time is not stored, because the instance cannot know how
// long it was down.
type storedLease struct {
	Owner  string
	Worker Worker
}

func (b *leaseTable) storedLeases() []storedLease {
	out := make([]storedLease, 0, len(b.leases))
	for _, l := range b.leases {
		out = append(out, storedLease{Owner: hex.EncodeToString(l.owner[:]), Worker: l.worker})
	}
	slices.SortFunc(out, func(x, y storedLease) int { return strings.Compare(x.Worker.Name, y.Worker.Name) })
	return out
}

// restoreWorker returns the stored worker; false unless its URL holds an address, as those of all registered workers
// do.
func (e *storedLease) restoreWorker() (w Worker, by tokenHash, ok bool) {
	b, err := hex.DecodeString(e.Owner)
	if err != nil || len(b) != len(by) {
		return w, by, false
	}
	u, err := url.Parse(e.Worker.URL)
	if err != nil {
		return w, by, false
	}
	_, err = netip.ParseAddr(u.Hostname())
	return e.Worker, tokenHash(b), err == nil
}

func (k *leaseStore) filePath() string { return filepath.Join(k.dir, "registered.json") }

func (k *leaseStore) loadLeases() ([]storedLease, error) {
	if k.dir == "" {
		return nil, nil
	}
	f, err := os.Open(k.filePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", k.filePath(), err)
	}
	return decodeLeases(text)
}

func decodeLeases(text []byte) (out []storedLease, err error) {
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("more than %d bytes", maxFileBytes)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("reading registered workers: %w", err)
	}
	return out[:min(len(out), MaxWorkers)], nil
}

// saveLeases writes the entries atomically if they have changed.
func (k *leaseStore) saveLeases(entries []storedLease) error {
	if k.dir == "" {
		return nil
	}
	text, err := json.Marshal(entries)
	if err != nil || bytes.Equal(text, k.lastSaved) {
		return err
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(k.filePath()+".new", text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(k.filePath()+".new", k.filePath()); err != nil {
		return err
	}
	k.lastSaved = text
	return nil
}
