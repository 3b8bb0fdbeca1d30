package engine

import (
	"context"
	"time"
)

// pageParser parses a page on top of a last reading. ok is false when the page contains nothing of its engine.
type pageParser func(text []byte, last Reading, now time.Time) (next Reading, ok bool)

// scrapePage reads a metrics page. On an error it returns the last reading unchanged.
func (s *workerServer) scrapePage(ctx context.Context, address string, last Reading, parse pageParser) (Reading, error) {
	next := last
	err := s.client.getPage(ctx, address, MaxPageBytes, func(b []byte) error {
		r, ok := parse(b, last, time.Now())
		if !ok {
			return ErrUnknownPage
		}
		next = r
		return nil
	})
	return next, err
}
