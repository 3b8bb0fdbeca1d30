package consensus

import (
	"bytes"
	"sync"
)

// commandCache keeps the decoded form of the last commands that this node proposed. A leader decodes each command
// twice, before it proposes it and when it applies it. Decoding a plan takes a third of a millisecond of a core that
// also answers DNS queries.
type commandCache struct {
	mu       sync.Mutex
	recent   [2]cachedCommand
	nextSlot int
}

type cachedCommand struct {
	data    []byte
	command command
}

// addCommand stores the decoded form of data. Neither may be written to afterwards.
func (f *commandCache) addCommand(data []byte, c command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recent[f.nextSlot] = cachedCommand{data, c}
	f.nextSlot = (f.nextSlot + 1) % len(f.recent)
}

// decodeCached is decodeCommand with the cache.
func (f *commandCache) decodeCached(data []byte) (command, error) {
	if f != nil {
		if c, ok := f.popCommand(data); ok {
			return c, nil
		}
	}
	return decodeCommand(data)
}

// popCommand returns a command and removes it from the cache: a spec can have megabytes, and no command is applied
// twice.
func (f *commandCache) popCommand(data []byte) (command, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.recent {
		if x := f.recent[i]; len(data) > 0 && bytes.Equal(x.data, data) {
			f.recent[i] = cachedCommand{}
			return x.command, true
		}
	}
	return command{}, false
}
