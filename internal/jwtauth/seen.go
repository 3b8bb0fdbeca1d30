package jwtauth

import (
	"crypto/sha256"
	"sync"
)

// maxCachedTokens bounds the cached tokens: about 2 MiB. Beyond it the older half is dropped.
const maxCachedTokens = 1 << 14

// tokenCache holds the verified tokens by hash, in two generations by age.
type tokenCache struct {
	mu         sync.Mutex
	recent     map[[sha256.Size]byte]verifiedToken
	older      map[[sha256.Size]byte]verifiedToken
	generation uint64
	halfSize   int
}

func newTokenCache() *tokenCache {
	return &tokenCache{recent: map[[sha256.Size]byte]verifiedToken{}, halfSize: maxCachedTokens / 2}
}

func (s *tokenCache) hashToken(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// currentGeneration returns the generation of a result, which clearAll increments.
func (s *tokenCache) currentGeneration() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

func (s *tokenCache) getToken(id [sha256.Size]byte) (verifiedToken, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.recent[id]; ok {
		return c, true
	}
	c, ok := s.older[id]
	if ok {
		s.storeToken(id, c)
	}
	return c, ok
}

// putToken caches a result, unless the cache was cleared since, because the keys have changed.
func (s *tokenCache) putToken(id [sha256.Size]byte, c verifiedToken, round uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if round == s.generation {
		s.storeToken(id, c)
	}
}

func (s *tokenCache) storeToken(id [sha256.Size]byte, c verifiedToken) {
	if len(s.recent) >= s.halfSize {
		s.recent, s.older = map[[sha256.Size]byte]verifiedToken{}, s.recent
	}
	s.recent[id] = c
}

func (s *tokenCache) clearAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent, s.older = map[[sha256.Size]byte]verifiedToken{}, nil
	s.generation++
}
