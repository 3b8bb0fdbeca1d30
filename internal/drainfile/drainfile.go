package drainfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/uplink"
)

const (
	// maxDrains bounds the list: a region has far fewer workers.
	maxDrains = 10_000
	// maxFile bounds what is read back, in bytes.
	maxFile = 16 << 20
)

// ErrFull refuses one more drain.
var ErrFull = errors.New("10000 drains are in force: undrain some first")

// Store is the list of drains. It is safe for concurrent use.
type Store struct {
	path string // empty: nothing is written

	mu   sync.Mutex
	list []admin.Drain // by path
}

// Open reads the list that an earlier process wrote. An empty path keeps the list in memory alone.
func Open(path string) (*Store, error) {
	s := &Store{path: path}
	if path == "" {
		return s, nil
	}
	text, _, err := uplink.ReadWhole(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading the drains: %w", err)
	}
	if text == nil {
		return s, nil
	}
	if s.list, err = decode(text); err != nil {
		return nil, fmt.Errorf("reading the drains in %s: %w: repair the file, or remove it to start without drains", path, err)
	}
	return s, nil
}

func decode(text []byte) ([]admin.Drain, error) {
	var list []admin.Drain
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	if len(list) > maxDrains {
		return nil, ErrFull
	}
	slices.SortStableFunc(list, byPath)
	return slices.CompactFunc(list, func(a, b admin.Drain) bool { return a.Path == b.Path }), nil
}

func byPath(a, b admin.Drain) int { return strings.Compare(a.Path, b.Path) }

// Persistent reports whether the drains outlive the process.
func (s *Store) Persistent() bool { return s.path != "" }

// List returns the drains in force at now, by path.
func (s *Store) List(now time.Time) []admin.Drain {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inForce(s.list, now)
}

// Directive returns the drains in force at now as a directive holds them.
func (s *Store) Directive(now time.Time) (out []uplink.Drain) {
	for _, d := range s.List(now) {
		out = append(out, uplink.Drain{Path: d.Path, Until: d.Until, Reason: d.Reason})
	}
	return out
}

func inForce(list []admin.Drain, now time.Time) []admin.Drain {
	return slices.DeleteFunc(slices.Clone(list), func(d admin.Drain) bool { return !d.Until.IsZero() && !now.Before(d.Until) })
}

// Get returns the drain of a path that is in force at now.
func (s *Store) Get(path string, now time.Time) (admin.Drain, bool) {
	for _, d := range s.List(now) {
		if d.Path == path {
			return d, true
		}
	}
	return admin.Drain{}, false
}

// Put adds a drain, in the place of an earlier one of the same path. When the file cannot be written nothing changes.
func (s *Store) Put(d admin.Drain, now time.Time) error {
	return s.change(now, func(list []admin.Drain) []admin.Drain {
		i, found := slices.BinarySearchFunc(list, d, byPath)
		if found {
			list[i] = d
			return list
		}
		return slices.Insert(list, i, d)
	})
}

// Delete removes the drain of a path, and reports whether there was one. When the file cannot be written nothing changes.
func (s *Store) Delete(path string, now time.Time) (found bool, err error) {
	err = s.change(now, func(list []admin.Drain) []admin.Drain {
		n := len(list)
		list = slices.DeleteFunc(list, func(d admin.Drain) bool { return d.Path == path })
		found = len(list) < n
		return list
	})
	return found, err
}

func (s *Store) change(now time.Time, edit func([]admin.Drain) []admin.Drain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := edit(inForce(s.list, now))
	if len(list) > maxDrains {
		return ErrFull
	}
	if s.path != "" {
		text, err := json.Marshal(list)
		if err == nil {
			err = uplink.WriteWhole(s.path, text)
		}
		if err != nil {
			return fmt.Errorf("writing the drains to %s: %w", s.path, err)
		}
	}
	s.list = list
	return nil
}
