package geo

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"time"
)

// WatchEvery is the time between two looks at the files.
const WatchEvery = 5 * time.Second

// stamp is what a changed file differs in. The zero stamp is a file that is not there.
type stamp struct {
	changed time.Time
	size    int64
}

// stamps looks at each of the files.
func (c *Config) stamps() []stamp {
	files := slices.Clone(c.Databases)
	if c.OverridesFile != "" {
		files = append(files, c.OverridesFile)
	}
	out := make([]stamp, len(files))
	for i, name := range files {
		if info, err := os.Stat(name); err == nil {
			out[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return out
}

// Watch reloads when a file was replaced or written, until ctx ends. A file is read once it has stayed the same for two
// looks, so that one that is still being written is left alone; one that is bad all the same is reported, and what is
// in force stays.
func (l *Live) Watch(ctx context.Context, every time.Duration, log *slog.Logger) {
	last := l.cfg.stamps()
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
		now := l.cfg.stamps()
		settled := slices.Equal(now, last)
		if last = now; !settled || slices.Equal(now, *l.read.Load()) {
			continue
		}
		if err := l.Reload(); err != nil {
			log.Error("geo files have changed and cannot be used, what was loaded before stays in force", "error", err)
			continue
		}
		log.Info("geo files have changed and were loaded")
	}
}
