// Package geofiles reads the files of an atlas and replaces the atlas when they change.
//
// OpenAtlas reads once. LiveAtlas holds the atlas in force: Reload and WatchFiles replace it, and an invalid file leaves
// the present one in force.
package geofiles

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/geo"
)

// OpenAtlas builds an Atlas from files. Opening millions of networks takes a second or two; the files are not read
// afterwards.
func OpenAtlas(cfg geo.Config) (*geo.Atlas, error) { return geo.BuildAtlas(cfg, readFile) }

// readFile reads at most one byte more than an Atlas accepts.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, geo.MaxFileBytes+1))
}

// LiveAtlas is an Atlas that can be replaced while it is read.
type LiveAtlas struct {
	cfg        geo.Config
	atlas      atomic.Pointer[geo.Atlas]
	lastStamps atomic.Pointer[[]fileStamp] // the state of the files just before they were last read
	reloadMu   sync.Mutex                  // one reload at a time; readers never take it
}

// NewLiveAtlas opens the first Atlas.
func NewLiveAtlas(cfg geo.Config) (*LiveAtlas, error) {
	l := &LiveAtlas{cfg: cfg}
	if err := l.Reload(); err != nil {
		return nil, err
	}
	return l, nil
}

// Reload reads all files again and then replaces the Atlas. On any error the present one stays in force.
func (l *LiveAtlas) Reload() error {
	l.reloadMu.Lock()
	defer l.reloadMu.Unlock()
	before := statFiles(&l.cfg) // a change during the read is seen later
	l.lastStamps.Store(&before)
	a, err := OpenAtlas(l.cfg)
	if err != nil {
		return err
	}
	l.atlas.Store(a)
	return nil
}

// Atlas returns the Atlas in force.
func (l *LiveAtlas) Atlas() *geo.Atlas { return l.atlas.Load() }

// Locate returns the location of an address in the Atlas in force.
func (l *LiveAtlas) Locate(addr netip.Addr) geo.AddressInfo { return l.Atlas().Locate(addr) }

// WatchInterval is the time between two checks of the files.
const WatchInterval = 5 * time.Second

// fileStamp identifies a version of a file. The zero stamp is an absent file.
type fileStamp struct {
	modTime time.Time
	size    int64
}

// statFiles returns the stamp of each file.
func statFiles(c *geo.Config) []fileStamp {
	files := slices.Clone(c.Databases)
	if c.OverridesFile != "" {
		files = append(files, c.OverridesFile)
	}
	out := make([]fileStamp, len(files))
	for i, name := range files {
		if info, err := os.Stat(name); err == nil {
			out[i] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	return out
}

// WatchFiles reloads when a file was replaced or written, until ctx ends. A file is read once it is unchanged in two
// checks, so that a file is not read while it is written. An invalid file is logged, and the present Atlas stays in
// force.
func (l *LiveAtlas) WatchFiles(ctx context.Context, every time.Duration, log *slog.Logger) {
	last := statFiles(&l.cfg)
	if len(last) == 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := statFiles(&l.cfg)
		settled := slices.Equal(now, last)
		if last = now; !settled || slices.Equal(now, *l.lastStamps.Load()) {
			continue
		}
		if err := l.Reload(); err != nil {
			log.Error("geo files have changed and cannot be used: the earlier data stays in force", "error", err)
			continue
		}
		log.Info("geo files have changed and were loaded")
	}
}
