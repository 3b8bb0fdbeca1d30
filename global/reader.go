package global

import (
	"bytes"
	"sync"

	"github.com/spillway-lb/spillway/internal/spec"
)

// readTexts is how many texts are remembered: one that is applied is read in four places, and the one before it in two.
const readTexts = 4

// reader remembers the specs that the last texts were read as, newest first: reading one of 10,000 objects takes a third
// of a second, and what is read is never written to. The nodes of a process share it.
type reader struct {
	mu   sync.Mutex
	last []readAs
}

type readAs struct {
	text []byte
	spec *spec.Spec
}

var specs reader

// read is spec.Decode of an agreed text.
func (r *reader) read(text []byte) (*spec.Spec, error) {
	if s := r.known(text); s != nil {
		return s, nil
	}
	s, err := spec.Decode("spec", text)
	if err == nil {
		r.learn(text, s)
	}
	return s, err
}

func (r *reader) known(text []byte) *spec.Spec {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.last {
		if bytes.Equal(x.text, text) {
			return x.spec
		}
	}
	return nil
}

// encode is spec.Encode, which takes a tenth of a second for 10,000 objects.
func (r *reader) encode(s *spec.Spec) []byte {
	r.mu.Lock()
	for _, x := range r.last {
		if x.spec == s {
			r.mu.Unlock()
			return x.text
		}
	}
	r.mu.Unlock()
	text := spec.Encode(s)
	r.learn(text, s)
	return text
}

// learn remembers what a text says. The text must not be written to any more.
func (r *reader) learn(text []byte, s *spec.Spec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = append([]readAs{{text, s}}, r.last[:min(len(r.last), readTexts-1)]...)
}
