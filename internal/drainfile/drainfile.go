// Package drainfile stores the drains of a node without a global tier, in memory and in a file.
//
// A drain that cannot be written to the file is refused. What a drain means for requests is decided elsewhere.
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
	// maxDrains bounds the list. A region has far fewer workers.
	maxDrains = 10_000
	// maxFileBytes bounds the file that is read at start, in bytes.
	maxFileBytes = 16 << 20
)

// ErrTooManyDrains means that the list is full.
var ErrTooManyDrains = errors.New("10000 drains are in force: undrain some first")

// DrainStore is the list of drains. It is safe for concurrent use.
type DrainStore struct {
	path string // empty: nothing is written

	mu   sync.Mutex
	list []admin.Drain // by path
}

// OpenStore reads the list that an earlier process wrote. An empty path keeps the list in memory alone.
func OpenStore(path string) (*DrainStore, error) {
	s := &DrainStore{path: path}
	if path == "" {
		return s, nil
	}
	text, _, err := uplink.ReadFileLimited(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("reading the drains: %w", err)
	}
	if text == nil {
		return s, nil
	}
	if s.list, err = decodeDrains(text); err != nil {
		return nil, fmt.Errorf("reading the drains in %s: %w: repair the file, or remove it to start without drains", path, err)
	}
	return s, nil
}

func decodeDrains(text []byte) ([]admin.Drain, error) {
	var list []admin.Drain
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	if len(list) > maxDrains {
		return nil, ErrTooManyDrains
	}
	slices.SortStableFunc(list, compareByPath)
	return slices.CompactFunc(list, func(a, b admin.Drain) bool { return a.Path == b.Path }), nil
}

func compareByPath(a, b admin.Drain) int { return strings.Compare(a.Path, b.Path) }

// IsPersistent reports whether the drains outlive the process.
func (s *DrainStore) IsPersistent() bool { return s.path != "" }

// ListDrains returns the drains in force at now, by path.
func (s *DrainStore) ListDrains(now time.Time) []admin.Drain {
	s.mu.Lock()
	defer s.mu.Unlock()
	return drainsInForce(s.list, now)
}

// DirectiveDrains returns the drains in force at now as a directive holds them.
func (s *DrainStore) DirectiveDrains(now time.Time) (out []uplink.ActiveDrain) {
	for _, d := range s.ListDrains(now) {
		out = append(out, uplink.ActiveDrain{Path: d.Path, Until: d.Until, Reason: d.Reason, Start: d.At, Over: d.RampDuration()})
	}
	return out
}

func drainsInForce(list []admin.Drain, now time.Time) []admin.Drain {
	return slices.DeleteFunc(slices.Clone(list), func(d admin.Drain) bool { return !d.Until.IsZero() && !now.Before(d.Until) })
}

// FindDrain returns the drain of a path that is in force at now.
func (s *DrainStore) FindDrain(path string, now time.Time) (admin.Drain, bool) {
	for _, d := range s.ListDrains(now) {
		if d.Path == path {
			return d, true
		}
	}
	return admin.Drain{}, false
}

// PutDrain adds a drain, or replaces the one with the same path. If the file cannot be written, nothing changes.
func (s *DrainStore) PutDrain(d admin.Drain, now time.Time) error {
	return s.updateDrains(now, func(list []admin.Drain) []admin.Drain {
		i, found := slices.BinarySearchFunc(list, d, compareByPath)
		if found {
			list[i] = d
			return list
		}
		return slices.Insert(list, i, d)
	})
}

// DeleteDrain removes the drain of a path and reports whether there was one. If the file cannot be written, nothing
// changes.
func (s *DrainStore) DeleteDrain(path string, now time.Time) (found bool, err error) {
	err = s.updateDrains(now, func(list []admin.Drain) []admin.Drain {
		n := len(list)
		list = slices.DeleteFunc(list, func(d admin.Drain) bool { return d.Path == path })
		found = len(list) < n
		return list
	})
	return found, err
}

func (s *DrainStore) updateDrains(now time.Time, edit func([]admin.Drain) []admin.Drain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := edit(drainsInForce(s.list, now))
	if len(list) > maxDrains {
		return ErrTooManyDrains
	}
	if s.path != "" {
		text, err := json.Marshal(list)
		if err == nil {
			err = uplink.WriteFileAtomic(s.path, text)
		}
		if err != nil {
			return fmt.Errorf("writing the drains to %s: %w", s.path, err)
		}
	}
	s.list = list
	return nil
}
