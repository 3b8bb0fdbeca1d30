package engine

import (
	"context"
	"time"
)

// parser reads a page on top of a last reading. ok is false when nothing on the page is its engine's.
type parser func(text []byte, last Reading, now time.Time) (next Reading, ok bool)

// scrape reads a metrics page. On an error the last reading comes back as it was.
func (s *server) scrape(ctx context.Context, address string, last Reading, parse parser) (Reading, error) {
	next := last
	err := s.client.page(ctx, address, MaxPage, func(b []byte) error {
		r, ok := parse(b, last, time.Now())
		if !ok {
			return ErrForeign
		}
		next = r
		return nil
	})
	return next, err
}
