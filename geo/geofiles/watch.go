package geofiles

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/geo"
)

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
