package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/zmtp"
)

// State of one stream.
type State uint8

// The states of a stream.
const (
	Lost State = iota // not connected, or nothing has come since
	Live              // in order
)

// Sink takes what a stream says, in order, from one goroutine. While a method runs nothing more is read.
type Sink interface {
	// Batch is the next one.
	Batch(*Batch)
	// State has changed.
	State(State)
	// Gap: batches are missing for good. What they changed is not known.
	Gap()
	// Restart: the engine has begun anew, with an empty cache.
	Restart()
	// Garbled: a message could not be read.
	Garbled()
}

// Config of one stream.
type Config struct {
	// Events is where the engine publishes, tcp://host:port.
	Events string
	// Replay is where it answers for what was missed, tcp://host:port; empty when it does not.
	Replay string
	// Dial connects.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log is told of a stream that is lost and of one that is back.
	Log *slog.Logger
}

const (
	leastBackoff = 100 * time.Millisecond
	mostBackoff  = 5 * time.Second
	// replayTimeout bounds one replay. They are asked for once a second at most, after a burst.
	replayTimeout = 5 * time.Second
	replayBurst   = 3
	// maxReplay bounds the batches of one replay: engines remember 10,000.
	maxReplay = 20_000
)

// stream follows one engine.
type stream struct {
	cfg     Config
	sink    Sink
	order   order
	dec     Decoder
	state   State
	told    bool    // that it is lost
	replays float64 // that may be asked for now
	asked   time.Time
}

// Follow reads a stream until ctx ends, and connects again whenever it is lost.
func Follow(ctx context.Context, cfg Config, sink Sink) {
	s := &stream{cfg: cfg, sink: sink, replays: replayBurst}
	backoff := leastBackoff
	for {
		began := time.Now()
		err := s.listen(ctx)
		s.lost(ctx, err)
		if time.Since(began) > mostBackoff {
			backoff = leastBackoff
		}
		t := time.NewTimer(time.Duration(float64(backoff) * (0.5 + rand.Float64())))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		backoff = min(2*backoff, mostBackoff)
	}
}

// lost notes that the stream has broken off. Where nobody listens any more, the engine and its cache are gone.
func (s *stream) lost(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.set(Lost)
	if errors.Is(err, syscall.ECONNREFUSED) && s.order.begun {
		s.order.restart()
		s.sink.Restart()
	}
	s.order.reconnect()
	if !s.told {
		s.told = true
		s.cfg.Log.Warn("a worker's cache events are lost: what it has cached is guessed until they are back", "address", s.cfg.Events, "error", err)
	}
}

func (s *stream) set(st State) {
	if s.state != st {
		s.state = st
		s.sink.State(st)
	}
}

// dial connects and greets; the connection closes when ctx ends or the returned function is called.
func (s *stream) dial(ctx context.Context, address, kind string) (*zmtp.Conn, net.Conn, func(), error) {
	c, err := s.cfg.Dial(ctx, "tcp", strings.TrimPrefix(address, "tcp://"))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("connecting to cache events at %s: %w", address, err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	end := func() {
		stop()
		c.Close()
	}
	z, err := zmtp.Open(c, kind)
	if err != nil {
		end()
		return nil, nil, nil, fmt.Errorf("connecting to cache events at %s: %w", address, err)
	}
	return z, c, end, nil
}

// listen reads one connection until it breaks.
func (s *stream) listen(ctx context.Context) error {
	z, _, end, err := s.dial(ctx, s.cfg.Events, zmtp.Sub)
	if err != nil {
		return err
	}
	defer end()
	if err := z.Subscribe(""); err != nil {
		return err
	}
	if s.catchUp(ctx) { // otherwise the first number will show what is missing
		s.sound()
	}
	for {
		frames, err := z.Recv()
		if err != nil {
			return err
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			s.sink.Garbled()
			continue
		}
		s.message(ctx, binary.BigEndian.Uint64(frames[1]), frames[2])
	}
}

// message takes one live message in.
func (s *stream) message(ctx context.Context, seq uint64, payload []byte) {
	switch s.order.next(seq) {
	case newsOld:
		return
	case newsRestart:
		s.order.restart()
		s.order.next(seq)
		s.sink.Restart()
		if seq > 0 {
			s.mend(ctx, seq)
		}
	case newsFirst:
		if s.cfg.Replay != "" {
			s.mend(ctx, seq)
		}
	case newsGap:
		s.mend(ctx, seq)
	}
	if s.order.begun && seq <= s.order.last {
		return // the replay had it
	}
	s.apply(seq, payload)
	s.sound()
}

// sound notes that the stream is in order.
func (s *stream) sound() {
	s.set(Live)
	if s.told {
		s.told = false
		s.cfg.Log.Info("a worker's cache events are back", "address", s.cfg.Events)
	}
}

// mend fills what is missing before seq, or says that it is missing.
func (s *stream) mend(ctx context.Context, seq uint64) {
	if !s.catchUp(ctx) || s.order.last+1 < seq {
		s.sink.Gap()
	}
}

// apply hands one batch on. One that cannot be read is as good as missing.
func (s *stream) apply(seq uint64, payload []byte) {
	s.order.applied(seq)
	b, err := s.dec.Decode(payload)
	if err != nil {
		s.sink.Garbled()
		s.sink.Gap()
		return
	}
	s.sink.Batch(b)
}
