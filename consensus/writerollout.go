package consensus

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// SpecChange is a new spec with the way in which it comes into force.
type SpecChange struct {
	BasedOn        uint64 // the version in force on which it is based
	Body           []byte
	By             Attribution
	Detail         string         // what differs, for the audit; at most 8 KiB are kept
	Rollout        *RolloutConfig // nil: it is in force at once and permanently
	ReplaceRollout bool           // end a stage that is in progress
}

// PutSpecChange puts a spec in force, or stages it. number is the new version, or that of a stage in some regions.
func (w *stateWriter) PutSpecChange(ctx context.Context, x SpecChange) (number uint64, err error) {
	c := newCommand(kindPutSpec)
	if x.Rollout != nil && len(x.Rollout.Regions) > 0 {
		c.Kind = kindStartRollout
	}
	c.BasedOn, c.Body, c.Actor, c.Reason, c.Rollout, c.ReplaceRollout = x.BasedOn, x.Body, x.By.Actor, x.By.Reason, x.Rollout, x.ReplaceRollout
	c.Detail = truncateDetail(x.Detail)
	r, err := w.proposer.proposeCommand(ctx, c)
	return r.Value, err
}

// EndRollout promotes the staged spec or rolls it back, and returns the version that is then in force.
func (w *stateWriter) EndRollout(ctx context.Context, number uint64, promote bool, by Attribution, detail string) (version uint64, err error) {
	s := w.applied.State()
	g := s.Rollout
	if g == nil || g.Number != number {
		return 0, ErrRefused{Reason: fmt.Sprintf("stage %d has ended: `spillway audit` shows how", number)}
	}
	c := newCommand(kindEndRollout)
	if promote != g.IsEverywhere() { // one spec replaces another, and the version rises: SOA serials never go back
		c.Kind, c.BasedOn, c.Body = kindPutSpec, s.SpecVersion, g.Body
	}
	c.Action = "rollback"
	if promote {
		c.Action = "promote"
	}
	c.EndsRollout, c.Actor, c.Reason, c.Detail = number, by.Actor, by.Reason, truncateDetail(detail)
	r, err := w.proposer.proposeCommand(ctx, c)
	return r.Value, err
}

// RecordRolloutProgress records the elapsed part of a stage's window and the measurements, so that another leader
// continues from there. Only the leader has them: elsewhere the error is ErrNotLeader.
func (w *stateWriter) RecordRolloutProgress(ctx context.Context, number uint64, elapsed time.Duration, figures string) error {
	if !w.isLeader() {
		return ErrNotLeader
	}
	c := newCommand(kindRolloutProgress)
	c.ID, c.EndsRollout, c.Elapsed, c.Detail = "", number, elapsed, truncateDetail(figures) // a repeat is harmless
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
}

// truncateDetail shortens a detail to the allowed length.
func truncateDetail(detail string) string {
	if len(detail) <= maxDetail {
		return detail
	}
	return strings.ToValidUTF8(detail[:maxDetail-len(cutMark)], "") + cutMark
}
