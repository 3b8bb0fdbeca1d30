package uplink

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// summaryInbox assembles the summaries of one session at the parent: snapshots, and deltas on one of the last two of
// them, because a delta may have left before the child knew that its newest snapshot arrived.
type summaryInbox struct {
	path        capacity.Path
	boot        uint64 // of the Hello: a correct peer sends no older summaries
	bootLimit   uint64 // the greatest boot that is accepted (see maxBoot)
	bases       [2]*capacity.Summary
	newest      *capacity.Summary
	missingBase bool // a delta was skipped because its snapshot is missing
	deltas      capacity.DeltaDecoder
}

// acceptSnapshot decodes a snapshot; the summary is nil when it is older than one already held.
func (in *summaryInbox) acceptSnapshot(b []byte) (*capacity.Summary, error) {
	s, err := capacity.DecodeSummary(b)
	if err != nil {
		return nil, wrapMalformed(err)
	}
	if err := in.checkClaim(s); err != nil {
		return nil, err
	}
	if in.bases[0] == nil || isNewer(s, in.bases[0]) {
		s.ShareUnchanged(in.bases[0])
		in.bases[1], in.bases[0] = in.bases[0], s
	}
	in.missingBase = false
	return in.storeIfNewer(s), nil
}

// acceptDelta decodes a delta; the summary is nil when it is superseded or builds on a missing snapshot.
func (in *summaryInbox) acceptDelta(b []byte) (*capacity.Summary, error) {
	d, err := in.deltas.DecodeDelta(b)
	if err != nil {
		return nil, wrapMalformed(err)
	}
	if err := in.checkClaim(&d.Head); err != nil {
		return nil, err
	}
	if in.newest != nil && !isNewer(&d.Head, in.newest) {
		return nil, nil
	}
	base := in.findBase(d.Head.Boot, d.BaseSeq)
	if base == nil {
		in.missingBase = true
		return nil, nil
	}
	if err := d.CheckAgainst(base); err != nil {
		return nil, wrapMalformed(err)
	}
	if base == in.bases[0] {
		in.bases[1] = nil // deltas in transit that build on that one are superseded
	}
	held := base
	if d.IsPartial {
		if in.newest == nil || in.newest.Boot != d.Head.Boot {
			return nil, nil
		}
		held = in.newest
	}
	s := d.OverlayOn(base, held)
	return in.storeIfNewer(&s), nil
}

// findBase finds the snapshot of that number; number 0 is the empty one, which every parent holds.
func (in *summaryInbox) findBase(boot, seq uint64) *capacity.Summary {
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

func (in *summaryInbox) checkClaim(s *capacity.Summary) error {
	if s.Path != in.path {
		return wrapMalformed(fmt.Errorf("a summary of %q in a session of %q", s.Path.String(), in.path.String()))
	}
	if s.Boot < in.boot {
		return wrapMalformed(fmt.Errorf("a summary of boot %d in a session of boot %d", s.Boot, in.boot))
	}
	if s.Boot > in.bootLimit {
		return wrapMalformed(fmt.Errorf("a summary of boot %d, at most %d: %w", s.Boot, in.bootLimit, errBootTooFarAhead))
	}
	return nil
}

func (in *summaryInbox) storeIfNewer(s *capacity.Summary) *capacity.Summary {
	if in.newest != nil && !isNewer(s, in.newest) {
		return nil
	}
	in.newest = s
	return s
}

func isNewer(a, b *capacity.Summary) bool {
	return a.Boot > b.Boot || a.Boot == b.Boot && a.Seq > b.Seq
}
