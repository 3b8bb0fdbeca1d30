package gpu

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/zmtp"
)

const (
	// remembered is how many batches a replay can reach back, as vLLM's.
	remembered = 10_000
	// mostWaiting bounds the batches that wait for one subscriber; further ones are lost to it.
	mostWaiting = 1000
)

// publisher tells subscribers of the cache's changes and answers for what they missed.
type publisher struct {
	topic         []byte
	log           *slog.Logger
	events, again net.Listener
	ctx           context.Context
	stop          context.CancelFunc
	wg            sync.WaitGroup

	mu    sync.Mutex
	next  uint64
	past  [][]byte // the newest batches; the last is number next-1
	heard map[chan numbered]struct{}
}

type numbered struct {
	seq     uint64
	payload []byte
}

func newPublisher(c *Config) (*publisher, error) {
	p := &publisher{log: c.Log, heard: map[chan numbered]struct{}{}, events: c.KVEventsListener, again: c.KVReplayListener}
	var err error
	if p.events == nil {
		if p.events, err = net.Listen("tcp", c.KVEvents); err != nil {
			return nil, fmt.Errorf("worker %s wants %s for its cache events: %w", c.Served, c.KVEvents, err)
		}
	}
	if p.again == nil && c.KVReplay != "" {
		if p.again, err = net.Listen("tcp", c.KVReplay); err != nil {
			p.events.Close()
			return nil, fmt.Errorf("worker %s wants %s to replay its cache events: %w", c.Served, c.KVReplay, err)
		}
	}
	p.topic = fmt.Appendf(nil, "kv@%s@%s", p.events.Addr(), c.Served)
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p, nil
}

func (p *publisher) start() {
	p.wg.Go(func() { p.accept(p.events, zmtp.Pub, p.serve) })
	if p.again != nil {
		p.wg.Go(func() { p.accept(p.again, zmtp.Router, p.replay) })
	}
}

func (p *publisher) close() {
	p.stop()
	p.events.Close()
	if p.again != nil {
		p.again.Close()
	}
	p.wg.Wait()
}

func (p *publisher) accept(l net.Listener, kind string, serve func(*zmtp.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() {
			defer c.Close()
			defer context.AfterFunc(p.ctx, func() { c.Close() })()
			z, err := zmtp.Open(c, kind)
			if err != nil {
				p.log.Debug("a subscriber was turned away", "error", err)
				return
			}
			serve(z)
		})
	}
}

// publish numbers a batch and hands it to whoever listens, without waiting for anybody.
func (p *publisher) publish(payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := numbered{p.next, payload}
	p.next++
	if len(p.past) == remembered {
		p.past = append(p.past[:0:0], p.past[remembered/10:]...)
	}
	p.past = append(p.past, payload)
	for ch := range p.heard {
		select {
		case ch <- n:
		default: // as at ZeroMQ's high-water mark
		}
	}
}

// serve sends to one subscriber, once it has subscribed to anything that begins the topic.
func (p *publisher) serve(z *zmtp.Conn) {
	gone := make(chan struct{})
	wanted := make(chan struct{}, 1)
	p.wg.Go(func() {
		defer close(gone)
		for {
			m, err := z.Recv()
			if err != nil {
				return
			}
			if len(m[0]) > 0 && m[0][0] == 1 && len(m[0])-1 <= len(p.topic) && string(m[0][1:]) == string(p.topic[:len(m[0])-1]) {
				select {
				case wanted <- struct{}{}:
				default:
				}
			}
		}
	})
	select {
	case <-wanted:
	case <-gone:
		return
	}
	ch := make(chan numbered, mostWaiting)
	p.mu.Lock()
	p.heard[ch] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.heard, ch)
		p.mu.Unlock()
	}()
	for {
		select {
		case n := <-ch:
			if z.Send(p.topic, binary.BigEndian.AppendUint64(nil, n.seq), n.payload) != nil {
				return
			}
		case <-gone:
			return
		}
	}
}

// replay answers requests for everything from a number on.
func (p *publisher) replay(z *zmtp.Conn) {
	for {
		m, err := z.Recv()
		if err != nil || len(m) != 2 || len(m[1]) != 8 {
			return
		}
		from := binary.BigEndian.Uint64(m[1])
		p.mu.Lock()
		first := p.next - uint64(len(p.past))
		from = max(from, first)
		past := p.past[min(from-first, uint64(len(p.past))):]
		p.mu.Unlock()
		for i, payload := range past {
			if z.Send(nil, p.topic, binary.BigEndian.AppendUint64(nil, from+uint64(i)), payload) != nil {
				return
			}
		}
		if z.Send(nil, p.topic, binary.BigEndian.AppendUint64(nil, math.MaxUint64), nil) != nil {
			return
		}
	}
}

// tell publishes what the engine has changed. The caller holds the driver's lock.
func (d *driver) tell() {
	if d.publisher == nil {
		return
	}
	if b := d.engine.pool.journal.take(d.array, time.Now()); b != nil {
		d.publisher.publish(b)
	}
}

// forget empties the prefix cache; false while sequences hold blocks, as vLLM has it.
func (d *driver) forget() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.engine.pool.reset() {
		return false
	}
	d.tell()
	return true
}
