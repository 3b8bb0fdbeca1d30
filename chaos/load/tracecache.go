package load

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"
)

// An experiment opens a few small files thousands of times: their unzipped and parsed contents are cached.

// maxCachedBytes bounds the cached bytes of all files, and maxParsedArrivals the cached requests of one parsed trace.
// Larger files are read as they are played.
const (
	maxCachedBytes    = 64 << 20
	maxParsedArrivals = 1 << 17
)

// traceCache caches unzipped and parsed files.
type traceCache struct {
	mu        sync.Mutex
	bytesLeft int // remaining bytes
	files     map[string]*cachedTrace
}

// cachedTrace is a file as of one modification.
type cachedTrace struct {
	size    int64 // size of the file
	modTime time.Time
	text    []byte // unzipped

	arrivals []Arrival // of a trace in Mooncake's format, before spreading; nil if not cached
	rate     float64   // of a trace, requests per second; 0 if not measured yet
}

var traceFiles = &traceCache{bytesLeft: maxCachedBytes, files: map[string]*cachedTrace{}}

// findFile returns the current file; nil for one that is not cached, because it is too long or cannot be read. The
// lock must be held.
func (s *traceCache) findFile(path string) *cachedTrace {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if f := s.files[path]; f != nil {
		if f.size == info.Size() && f.modTime.Equal(info.ModTime()) {
			return f
		}
		s.bytesLeft += len(f.text)
		delete(s.files, path)
	}
	text, ok := readWholeFile(path, s.bytesLeft)
	if !ok {
		return nil
	}
	f := &cachedTrace{size: info.Size(), modTime: info.ModTime(), text: text}
	s.bytesLeft -= len(text)
	s.files[path] = f
	return f
}

// readWholeFile unzips a file; false when it exceeds the bound or cannot be read to its end.
func readWholeFile(path string, most int) ([]byte, bool) {
	o, err := streamFile(path)
	if err != nil {
		return nil, false
	}
	defer o.Close()
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(o, int64(most)+1))
	if err != nil || n > int64(most) {
		return nil, false
	}
	return bytes.Clone(b.Bytes()), true
}

// readText is a file's unzipped text; false when it is not cached.
func (s *traceCache) readText(path string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.findFile(path)
	if f == nil {
		return nil, false
	}
	return f.text, true
}

// readArrivals are a Mooncake trace's arrivals, with consecutive blocks merged; nil when they are not cached. They
// are shared: callers must copy a prompt before they change it.
func (s *traceCache) readArrivals(path string) []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.findFile(path)
	if f == nil {
		return nil
	}
	if f.arrivals == nil {
		f.arrivals = parseMooncake(f.text)
	}
	return f.arrivals
}

// parseMooncake parses a whole trace; empty for one with an error, which the player reports, or for one that is too
// long.
func parseMooncake(text []byte) []Arrival {
	m := newMooncakeReader(bytes.NewReader(text), 0)
	m.mergeBlocks = true
	for len(m.unspread) <= maxParsedArrivals && m.readRecord() {
	}
	if m.endErr != io.EOF {
		return []Arrival{}
	}
	return m.unspread
}

// readRate is a trace's requests per second, as returned by measure.
func (s *traceCache) readRate(path string, measure func() (float64, error)) (float64, error) {
	s.mu.Lock()
	f := s.findFile(path)
	if f != nil && f.rate > 0 {
		defer s.mu.Unlock()
		return f.rate, nil
	}
	s.mu.Unlock()
	rate, err := measure()
	if f != nil && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.rate = rate
	}
	return rate, err
}
