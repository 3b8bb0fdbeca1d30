package certfile

import (
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// lookEvery is how often, at most, the files' times are looked at: handshakes drive it.
const lookEvery = time.Second

// stamp is what tells one version of a file from another without reading it.
type stamp struct {
	mod  time.Time
	size int64
}

// file is a value that is read from files and read again when one of them changes. It has no goroutine.
type file[T any] struct {
	name  string // for logs
	paths []string
	read  func() (*T, error)
	log   *slog.Logger
	now   atomic.Pointer[T]
	due   atomic.Int64 // next look at the files, in Unix nanoseconds

	mu     sync.Mutex // held by the one caller that looks
	stamp  [2]stamp
	warned [2]stamp
}

// current is the value in force, after a look at the files if one is due.
func (f *file[T]) current() *T {
	now, due := time.Now().UnixNano(), f.due.Load()
	if now >= due && f.due.CompareAndSwap(due, now+int64(lookEvery)) {
		f.look()
	}
	return f.now.Load()
}

func (f *file[T]) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stamps()
	if s == f.stamp {
		return
	}
	if err := f.replace(s); err != nil && s != f.warned {
		f.warned = s
		f.log.Warn("changed certificate file is refused, the content in use stays: correct the file", "certificate", f.name, telemetry.Err(err))
	}
}

// Reload reads the files now. On an error the content in use stays.
func (f *file[T]) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replace(f.stamps())
}

func (f *file[T]) replace(s [2]stamp) error {
	v, err := f.read()
	if err != nil {
		return err
	}
	f.stamp = s
	if f.now.Swap(v) != nil {
		f.log.Info("certificate file read again", "certificate", f.name)
	}
	return nil
}

func (f *file[T]) stamps() (s [2]stamp) {
	for i, path := range f.paths {
		if st, err := os.Stat(path); err == nil {
			s[i] = stamp{mod: st.ModTime(), size: st.Size()}
		}
	}
	return s
}
