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

// keep holds registered workers across restarts, in the instance's folder.
type keep struct {
	dir  string
	last []byte
}

// entry is one registered worker on disk. How long its lease still had is not told: the instance cannot know how long it
// was away.
type entry struct {
	Owner  string
	Worker Worker
}

func (b *book) entries() []entry {
	out := make([]entry, 0, len(b.leases))
	for _, l := range b.leases {
		out = append(out, entry{Owner: hex.EncodeToString(l.owner[:]), Worker: l.worker})
	}
	slices.SortFunc(out, func(x, y entry) int { return strings.Compare(x.Worker.Name, y.Worker.Name) })
	return out
}

// worker is the entry's, unless its URL does not hold an address as all do that were registered.
func (e *entry) worker() (w Worker, by owner, ok bool) {
	b, err := hex.DecodeString(e.Owner)
	if err != nil || len(b) != len(by) {
		return w, by, false
	}
	u, err := url.Parse(e.Worker.URL)
	if err != nil {
		return w, by, false
	}
	_, err = netip.ParseAddr(u.Hostname())
	return e.Worker, owner(b), err == nil
}

func (k *keep) path() string { return filepath.Join(k.dir, "registered.json") }

func (k *keep) load() ([]entry, error) {
	if k.dir == "" {
		return nil, nil
	}
	f, err := os.Open(k.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", k.path(), err)
	}
	return decodeEntries(text)
}

func decodeEntries(text []byte) (out []entry, err error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("reading registered workers: %w", err)
	}
	return out[:min(len(out), MaxWorkers)], nil
}

// save writes the entries in one step, when they have changed.
func (k *keep) save(entries []entry) error {
	if k.dir == "" {
		return nil
	}
	text, err := json.Marshal(entries)
	if err != nil || bytes.Equal(text, k.last) {
		return err
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(k.path()+".new", text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(k.path()+".new", k.path()); err != nil {
		return err
	}
	k.last = text
	return nil
}
