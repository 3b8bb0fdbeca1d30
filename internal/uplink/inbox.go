package uplink

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// inbox puts the statements of one session together at the parent: snapshots, and deltas on one of the last two of
// them, since a delta may have left before the child knew that its newest snapshot arrived.
type inbox struct {
	path   capacity.Path
	boot   uint64 // of the Hello: older statements come from nowhere honest
	most   uint64 // the greatest boot that is taken (see maxBoot)
	bases  [2]*capacity.Summary
	newest *capacity.Summary
	lacks  bool // a delta was passed over whose snapshot is not held
}

// snapshot takes an encoded snapshot; the statement is nil when it is older than one already held.
func (in *inbox) snapshot(b []byte) (*capacity.Summary, error) {
	s, err := capacity.Decode(b)
	if err != nil {
		return nil, rubbish(err)
	}
	if err := in.claims(s); err != nil {
		return nil, err
	}
	if in.bases[0] == nil || newer(s, in.bases[0]) {
		s.Borrow(in.bases[0])
		in.bases[1], in.bases[0] = in.bases[0], s
	}
	in.lacks = false
	return in.take(s), nil
}

// delta takes an encoded delta; the statement is nil when it is overtaken or builds on a snapshot that is not held.
func (in *inbox) delta(b []byte) (*capacity.Summary, error) {
	d, err := capacity.DecodeDelta(b)
	if err != nil {
		return nil, rubbish(err)
	}
	if err := in.claims(&d.Head); err != nil {
		return nil, err
	}
	if in.newest != nil && !newer(&d.Head, in.newest) {
		return nil, nil
	}
	base := in.base(d.Head.Boot, d.BaseSeq)
	if base == nil {
		in.lacks = true
		return nil, nil
	}
	if err := d.Fits(base); err != nil {
		return nil, rubbish(err)
	}
	if base == in.bases[0] {
		in.bases[1] = nil // what is on its way and builds on that one is overtaken
	}
	held := base
	if d.Partial {
		if in.newest == nil || in.newest.Boot != d.Head.Boot {
			return nil, nil
		}
		held = in.newest
	}
	s := d.Overlay(base, held)
	return in.take(&s), nil
}

// base finds the snapshot of that number; number 0 is the empty one, which every parent holds.
func (in *inbox) base(boot, seq uint64) *capacity.Summary {
	if seq == 0 {
		return &capacity.Summary{}
	}
	for _, s := range in.bases {
		if s != nil && s.Boot == boot && s.Seq == seq {
			return s
		}
	}
	return nil
}

func (in *inbox) claims(s *capacity.Summary) error {
	if s.Path != in.path {
		return rubbish(fmt.Errorf("a statement about %q in a session of %q", s.Path.String(), in.path.String()))
	}
	if s.Boot < in.boot {
		return rubbish(fmt.Errorf("a statement of boot %d in a session of boot %d", s.Boot, in.boot))
	}
	if s.Boot > in.most {
		return rubbish(fmt.Errorf("a statement of boot %d, at most %d: %w", s.Boot, in.most, errBoot))
	}
	return nil
}

func (in *inbox) take(s *capacity.Summary) *capacity.Summary {
	if in.newest != nil && !newer(s, in.newest) {
		return nil
	}
	in.newest = s
	return s
}

func newer(a, b *capacity.Summary) bool { return a.Boot > b.Boot || a.Boot == b.Boot && a.Seq > b.Seq }
