package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/backoff"
	"github.com/spillway-lb/spillway/internal/zmtp"
)

// StreamState is the state of one stream.
type StreamState uint8

// States of a stream.
const (
	StreamDisconnected StreamState = iota // not connected, or nothing received since
	StreamInOrder                         // in order
)

// EventSink receives the events of a stream, in order, from one goroutine. While a method runs nothing more is read.
type EventSink interface {
	// OnBatch is called with the next batch.
	OnBatch(*EventBatch)
	// OnState is called when the state has changed.
	OnState(StreamState)
	// OnGap is called when batches are lost for good. Their changes are unknown.
	OnGap()
	// OnRestart is called when the engine has restarted with an empty cache.
	OnRestart()
	// OnMalformed is called for a message that could not be decoded.
	OnMalformed()
}

// Config of one stream.
type Config struct {
	// EventsURL is where the engine publishes, tcp://host:port.
	EventsURL string
	// ReplayURL is where it answers replay requests, tcp://host:port; empty if it does not.
	ReplayURL string
	// Dial connects.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log receives messages when the stream is lost and when it is back.
	Log *slog.Logger
}

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	// replayTimeout bounds one replay. After a burst, at most one a second is requested.
	replayTimeout = 5 * time.Second
	replayBurst   = 3
	// maxReplayBatches bounds the batches of one replay: engines keep 10,000.
	maxReplayBatches = 20_000
)

// eventStream follows one engine.
type eventStream struct {
	cfg             Config
	sink            EventSink
	position        streamPosition
	decoder         Decoder
	state           StreamState
	lossLogged      bool    // the loss of the stream is logged
	replaysAllowed  float64 // that may be requested now
	replayCountedAt time.Time
}

// FollowEvents reads a stream until ctx ends, and reconnects whenever it is lost.
func FollowEvents(ctx context.Context, cfg Config, sink EventSink) {
	s := &eventStream{cfg: cfg, sink: sink, replaysAllowed: replayBurst}
	waits := backoff.Doubling{First: minBackoff, Longest: maxBackoff}
	for {
		began := time.Now()
		err := s.readStream(ctx)
		s.handleLoss(ctx, err)
		if time.Since(began) > maxBackoff {
			waits.Reset()
		}
		t := time.NewTimer(backoff.SpreadAround(waits.NextDelay(), 0.5, rand.Float64()))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// handleLoss handles the end of the stream. If connections are refused, the engine and its cache are gone.
func (s *eventStream) handleLoss(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.setState(StreamDisconnected)
	if errors.Is(err, syscall.ECONNREFUSED) && s.position.begun {
		s.position.resetPosition()
		s.sink.OnRestart()
	}
	s.position.markReconnected()
	if !s.lossLogged {
		s.lossLogged = true
		s.cfg.Log.Warn("lost a worker's KV cache event stream: its cached prefixes are estimated until it is back", "address", s.cfg.EventsURL, "error", err)
	}
}

func (s *eventStream) setState(st StreamState) {
	if s.state != st {
		s.state = st
		s.sink.OnState(st)
	}
}

// dialPeer connects and does the handshake; the connection closes when ctx ends or the returned function is called.
func (s *eventStream) dialPeer(ctx context.Context, address, kind string) (*zmtp.PeerConn, net.Conn, func(), error) {
	c, err := s.cfg.Dial(ctx, "tcp", strings.TrimPrefix(address, "tcp://"))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("connecting to cache events at %s: %w", address, err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	end := func() {
		stop()
		c.Close()
	}
	z, err := zmtp.OpenPeer(c, kind)
	if err != nil {
		end()
		return nil, nil, nil, fmt.Errorf("connecting to cache events at %s: %w", address, err)
	}
	return z, c, end, nil
}

// readStream reads one connection until it breaks.
func (s *eventStream) readStream(ctx context.Context) error {
	z, _, end, err := s.dialPeer(ctx, s.cfg.EventsURL, zmtp.Sub)
	if err != nil {
		return err
	}
	defer end()
	if err := z.SubscribeTopic(""); err != nil {
		return err
	}
	if s.requestReplay(ctx) { // otherwise the first number will show what is missing
		s.markLive()
	}
	for {
		frames, err := z.ReceiveMessage()
		if err != nil {
			return err
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			s.sink.OnMalformed()
			continue
		}
		s.handleMessage(ctx, binary.BigEndian.Uint64(frames[1]), frames[2])
	}
}

// handleMessage processes one live message.
func (s *eventStream) handleMessage(ctx context.Context, seq uint64, payload []byte) {
	switch s.position.checkSequence(seq) {
	case seqReplayed:
		return
	case seqRestart:
		s.position.resetPosition()
		s.position.checkSequence(seq)
		s.sink.OnRestart()
		if seq > 0 {
			s.fillGap(ctx, seq)
		}
	case seqJoined:
		if s.cfg.ReplayURL != "" {
			s.fillGap(ctx, seq)
		}
	case seqGap:
		s.fillGap(ctx, seq)
	}
	if s.position.begun && seq <= s.position.lastApplied {
		return // the replay contained it
	}
	s.applyBatch(seq, payload)
	s.markLive()
}

// markLive records that the stream is in order.
func (s *eventStream) markLive() {
	s.setState(StreamInOrder)
	if s.lossLogged {
		s.lossLogged = false
		s.cfg.Log.Info("a worker's KV cache event stream is back", "address", s.cfg.EventsURL)
	}
}

// fillGap requests what is missing before seq, or reports the gap.
func (s *eventStream) fillGap(ctx context.Context, seq uint64) {
	if !s.requestReplay(ctx) || s.position.lastApplied+1 < seq {
		s.sink.OnGap()
	}
}

// applyBatch passes one batch to the sink. A malformed one counts as missing.
func (s *eventStream) applyBatch(seq uint64, payload []byte) {
	s.position.markApplied(seq)
	b, err := s.decoder.DecodeBatch(payload)
	if err != nil {
		s.sink.OnMalformed()
		s.sink.OnGap()
		return
	}
	s.sink.OnBatch(b)
}

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

// endOfReplay is the number of a replay's last message.
const endOfReplay = math.MaxUint64

// streamPosition is the position in a stream.
type streamPosition struct {
	begun         bool
	lastApplied   uint64 // the newest applied batch
	lastReceived  uint64 // highest live number: an engine that has not restarted never sends it again; a replay can be ahead of it
	receivedValid bool   // lastReceived is set
}

// sequenceCheck is the meaning of a number.
type sequenceCheck uint8

const (
	seqInOrder  sequenceCheck = iota // in order
	seqReplayed                      // a replay contained it already
	seqJoined                        // the stream starts here; earlier batches are unknown
	seqGap                           // batches before it are missing
	seqRestart                       // the engine has restarted
)

// checkSequence checks the number of a live message.
func (o *streamPosition) checkSequence(seq uint64) sequenceCheck {
	back := o.receivedValid && seq <= o.lastReceived
	o.lastReceived, o.receivedValid = seq, true
	switch {
	case back:
		return seqRestart
	case !o.begun && seq == 0:
		return seqInOrder
	case !o.begun:
		return seqJoined
	case seq <= o.lastApplied:
		return seqReplayed
	case seq == o.lastApplied+1:
		return seqInOrder
	}
	return seqGap
}

// markApplied records that the batch of that number is applied.
func (o *streamPosition) markApplied(seq uint64) { o.begun, o.lastApplied = true, seq }

// resetPosition forgets the position.
func (o *streamPosition) resetPosition() { o.begun, o.lastApplied, o.receivedValid = false, 0, false }

// markReconnected records that nothing up to the last batch is sent again.
func (o *streamPosition) markReconnected() { o.lastReceived, o.receivedValid = o.lastApplied, o.begun }
