package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/zmtp"
)

var (
	errReplayOrder     = errors.New("the replay is out of order")
	errReplayForgotten = errors.New("the engine no longer has these batches")
)

// requestReplay requests everything after the last batch and returns whether it came without a gap. For a stream that
// is just joined, batches that the engine no longer has are no gap.
func (s *eventStream) requestReplay(ctx context.Context) bool {
	if s.cfg.ReplayURL == "" {
		return false
	}
	now := time.Now()
	s.replaysAllowed = min(s.replaysAllowed+now.Sub(s.replayCountedAt).Seconds(), replayBurst)
	s.replayCountedAt = now
	if s.replaysAllowed < 1 {
		return false
	}
	s.replaysAllowed--
	err := s.runReplay(ctx)
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("requesting a worker's missed KV cache events failed", "address", s.cfg.ReplayURL, "error", err)
	}
	return err == nil
}

// runReplay requests once and applies the batches.
func (s *eventStream) runReplay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	z, c, end, err := s.dialPeer(ctx, s.cfg.ReplayURL, zmtp.Dealer)
	if err != nil {
		return err
	}
	defer end()
	if err := c.SetDeadline(time.Now().Add(replayTimeout)); err != nil {
		return fmt.Errorf("asking for a replay: %w", err)
	}
	from := uint64(0)
	if s.position.begun {
		from = s.position.lastApplied + 1
	}
	if err := z.SendMessage(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return err
	}
	for range maxReplayBatches {
		frames, err := z.ReceiveMessage()
		if err != nil {
			return err
		}
		seq, payload, ok := parseReplayMessage(frames)
		switch {
		case !ok:
			return fmt.Errorf("%w: a message of %d frames", errReplayOrder, len(frames))
		case seq == endOfReplay:
			return nil
		case !s.position.begun:
		case seq <= s.position.lastApplied:
			return fmt.Errorf("%w: %d after %d", errReplayOrder, seq, s.position.lastApplied)
		case seq > s.position.lastApplied+1:
			return fmt.Errorf("%w: %d comes after %d", errReplayForgotten, seq, s.position.lastApplied)
		}
		s.applyBatch(seq, payload)
	}
	return fmt.Errorf("%w: more than %d batches", errReplayOrder, maxReplayBatches)
}

// parseReplayMessage parses a replay message: an empty frame, the topic unless the engine omits it, the number, and
// the payload.
func parseReplayMessage(frames [][]byte) (seq uint64, payload []byte, ok bool) {
	n := len(frames)
	if n < 2 || n > 4 || len(frames[n-2]) != 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(frames[n-2]), frames[n-1], true
}
