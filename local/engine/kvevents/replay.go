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
	errNoReplay = errors.New("the replay breaks its own order")
	errForgot   = errors.New("the engine does not remember that far back")
)

// catchUp asks the engine for everything after the last batch; true when that came without a hole. What an engine has
// forgotten of its beginning is no hole to somebody who joins.
func (s *stream) catchUp(ctx context.Context) bool {
	if s.cfg.Replay == "" {
		return false
	}
	now := time.Now()
	s.replays = min(s.replays+now.Sub(s.asked).Seconds(), replayBurst)
	s.asked = now
	if s.replays < 1 {
		return false
	}
	s.replays--
	err := s.replay(ctx)
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("a worker's missed cache events could not be asked for", "address", s.cfg.Replay, "error", err)
	}
	return err == nil
}

// replay asks once and applies what comes.
func (s *stream) replay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	z, c, end, err := s.dial(ctx, s.cfg.Replay, zmtp.Dealer)
	if err != nil {
		return err
	}
	defer end()
	if err := c.SetDeadline(time.Now().Add(replayTimeout)); err != nil {
		return fmt.Errorf("asking for a replay: %w", err)
	}
	from := uint64(0)
	if s.order.begun {
		from = s.order.last + 1
	}
	if err := z.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return err
	}
	for range maxReplay {
		frames, err := z.Recv()
		if err != nil {
			return err
		}
		seq, payload, ok := replayed(frames)
		switch {
		case !ok:
			return fmt.Errorf("%w: a message of %d frames", errNoReplay, len(frames))
		case seq == endOfReplay:
			return nil
		case !s.order.begun:
		case seq <= s.order.last:
			return fmt.Errorf("%w: %d after %d", errNoReplay, seq, s.order.last)
		case seq > s.order.last+1:
			return fmt.Errorf("%w: %d comes after %d", errForgot, seq, s.order.last)
		}
		s.apply(seq, payload)
	}
	return fmt.Errorf("%w: more than %d batches", errNoReplay, maxReplay)
}

// replayed takes a replay's message apart: an empty frame, the topic where the engine does not lose it, the number, and
// the payload.
func replayed(frames [][]byte) (seq uint64, payload []byte, ok bool) {
	n := len(frames)
	if n < 2 || n > 4 || len(frames[n-2]) != 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(frames[n-2]), frames[n-1], true
}
