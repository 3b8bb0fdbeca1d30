package geo

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// Live is an Atlas that can be replaced while it is read.
type Live struct {
	cfg    Config
	atlas  atomic.Pointer[Atlas]
	read   atomic.Pointer[[]stamp] // the files as they were just before they were last read
	reload sync.Mutex              // one reload at a time; readers never take it
}

// NewLive opens the first Atlas.
func NewLive(cfg Config) (*Live, error) {
	l := &Live{cfg: cfg}
	if err := l.Reload(); err != nil {
		return nil, err
	}
	return l, nil
}

// Reload reads all files again and then swaps the Atlas. On any error the one in force stays.
func (l *Live) Reload() error {
	l.reload.Lock()
	defer l.reload.Unlock()
	before := l.cfg.stamps() // a change while they are read is seen later
	l.read.Store(&before)
	a, err := Open(l.cfg)
	if err != nil {
		return err
	}
	l.atlas.Store(a)
	return nil
}

// Atlas is the one in force.
func (l *Live) Atlas() *Atlas { return l.atlas.Load() }

// Locate says where an address is by the Atlas in force.
func (l *Live) Locate(addr netip.Addr) Fix { return l.Atlas().Locate(addr) }
