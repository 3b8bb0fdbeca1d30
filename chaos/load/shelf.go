package load

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"
)

// An experiment opens a few small files thousands of times: what was unzipped and parsed once is kept.

// maxShelf bounds the bytes of files that are kept, all together; maxKnown the requests of a trace that are kept parsed. What is
// larger is read as it is played.
const (
	maxShelf = 64 << 20
	maxKnown = 1 << 17
)

// shelf keeps files unzipped, and what was read in them.
type shelf struct {
	mu    sync.Mutex
	room  int // bytes
	files map[string]*shelved
}

// shelved is a file as it was at a time.
type shelved struct {
	size    int64 // as it lies on the disk
	changed time.Time
	text    []byte // unzipped

	arrivals []Arrival // of a trace in Mooncake's format, before they are spread; nil when they were not kept
	rate     float64   // of a trace, requests per second; 0 when it was not asked for
}

var files = &shelf{room: maxShelf, files: map[string]*shelved{}}

// find returns a file as it is now; nil for one that is not kept, because it is too long or cannot be read. The caller holds
// the lock.
func (s *shelf) find(path string) *shelved {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if f := s.files[path]; f != nil {
		if f.size == info.Size() && f.changed.Equal(info.ModTime()) {
			return f
		}
		s.room += len(f.text)
		delete(s.files, path)
	}
	text, ok := readAll(path, s.room)
	if !ok {
		return nil
	}
	f := &shelved{size: info.Size(), changed: info.ModTime(), text: text}
	s.room -= len(text)
	s.files[path] = f
	return f
}

// readAll unzips a file; false when it has more than so many bytes or cannot be read to its end.
func readAll(path string, most int) ([]byte, bool) {
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

// text is a file's, unzipped; false when it is not kept.
func (s *shelf) text(path string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(path)
	if f == nil {
		return nil, false
	}
	return f.text, true
}

// known are a Mooncake trace's arrivals, with blocks that follow each other joined; nil when they are not kept. They are
// shared: whoever hands one out gives it a prompt of its own.
func (s *shelf) known(path string) []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(path)
	if f == nil {
		return nil
	}
	if f.arrivals == nil {
		f.arrivals = parsed(f.text)
	}
	return f.arrivals
}

// parsed reads a whole trace; it is empty for one that has a mistake, which whoever plays it is to come upon, or is too long.
func parsed(text []byte) []Arrival {
	m := newMooncake(bytes.NewReader(text), 0)
	m.merge = true
	for len(m.ahead) <= maxKnown && m.read() {
	}
	if m.end != io.EOF {
		return []Arrival{}
	}
	return m.ahead
}

// rateOf is a trace's requests per second, as measure finds it.
func (s *shelf) rateOf(path string, measure func() (float64, error)) (float64, error) {
	s.mu.Lock()
	f := s.find(path)
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
