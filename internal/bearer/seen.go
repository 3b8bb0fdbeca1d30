package bearer

import (
	"crypto/sha256"
	"sync"
)

// maxSeen bounds the tokens that are remembered: about 2 MiB. Of those beyond it the older half is forgotten.
const maxSeen = 1 << 14

// seen is the tokens that were verified, by their hashes, in two halves by age.
type seen struct {
	mu       sync.Mutex
	young    map[[sha256.Size]byte]verified
	old      map[[sha256.Size]byte]verified
	cleared  uint64
	pastHalf int
}

func newSeen() *seen {
	return &seen{young: map[[sha256.Size]byte]verified{}, pastHalf: maxSeen / 2}
}

func (s *seen) id(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// round says since which clearing a verdict is made.
func (s *seen) round() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cleared
}

func (s *seen) get(id [sha256.Size]byte) (verified, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.young[id]; ok {
		return c, true
	}
	c, ok := s.old[id]
	if ok {
		s.keep(id, c)
	}
	return c, ok
}

// put remembers a verdict, unless it was made by keys that are gone since.
func (s *seen) put(id [sha256.Size]byte, c verified, round uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if round == s.cleared {
		s.keep(id, c)
	}
}

func (s *seen) keep(id [sha256.Size]byte, c verified) {
	if len(s.young) >= s.pastHalf {
		s.young, s.old = map[[sha256.Size]byte]verified{}, s.young
	}
	s.young[id] = c
}

func (s *seen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.young, s.old = map[[sha256.Size]byte]verified{}, nil
	s.cleared++
}
