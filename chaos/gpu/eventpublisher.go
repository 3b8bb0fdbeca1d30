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
	// replayBatches is the number of batches available for replay, as in vLLM.
	replayBatches = 10_000
	// maxQueuedBatches bounds the batches that wait for one subscriber; further ones are not sent to it.
	maxQueuedBatches = 1000
)

// eventPublisher publishes the cache's changes to subscribers and answers replay requests.
type eventPublisher struct {
	topic                         []byte
	log                           *slog.Logger
	eventListener, replayListener net.Listener
	ctx                           context.Context
	stop                          context.CancelFunc
	wg                            sync.WaitGroup

	mu          sync.Mutex
	nextSeq     uint64
	pastBatches [][]byte // the newest batches; the last has number next-1
	subscribers map[chan numberedBatch]struct{}
}

type numberedBatch struct {
	seq     uint64
	payload []byte
}

func newEventPublisher(c *Config) (*eventPublisher, error) {
	p := &eventPublisher{log: c.Log, subscribers: map[chan numberedBatch]struct{}{}, eventListener: c.KVEventsListener, replayListener: c.KVReplayListener}
	var err error
	if p.eventListener == nil {
		if p.eventListener, err = net.Listen("tcp", c.KVEvents); err != nil {
			return nil, fmt.Errorf("worker %s cannot listen on %s for cache events: %w", c.ServedModel, c.KVEvents, err)
		}
	}
	if p.replayListener == nil && c.KVReplay != "" {
		if p.replayListener, err = net.Listen("tcp", c.KVReplay); err != nil {
			p.eventListener.Close()
			return nil, fmt.Errorf("worker %s cannot listen on %s to replay cache events: %w", c.ServedModel, c.KVReplay, err)
		}
	}
	p.topic = fmt.Appendf(nil, "kv@%s@%s", p.eventListener.Addr(), c.ServedModel)
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p, nil
}

func (p *eventPublisher) startServing() {
	p.wg.Go(func() { p.acceptConns(p.eventListener, zmtp.Pub, p.serveSubscriber) })
	if p.replayListener != nil {
		p.wg.Go(func() { p.acceptConns(p.replayListener, zmtp.Router, p.serveReplay) })
	}
}

func (p *eventPublisher) stopServing() {
	p.stop()
	p.eventListener.Close()
	if p.replayListener != nil {
		p.replayListener.Close()
	}
	p.wg.Wait()
}

func (p *eventPublisher) acceptConns(l net.Listener, kind string, serve func(*zmtp.PeerConn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() {
			defer c.Close()
			defer context.AfterFunc(p.ctx, func() { c.Close() })()
			z, err := zmtp.OpenPeer(c, kind)
			if err != nil {
				p.log.Debug("a subscriber was turned away", "error", err)
				return
			}
			serve(z)
		})
	}
}

// publishBatch numbers a batch and sends it to all subscribers without blocking. A lost one is numbered, and neither sent
// nor kept for replay.
func (p *eventPublisher) publishBatch(payload []byte, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := numberedBatch{p.nextSeq, payload}
	p.nextSeq++
	if lost {
		payload = nil
	}
	if len(p.pastBatches) == replayBatches {
		p.pastBatches = append(p.pastBatches[:0:0], p.pastBatches[replayBatches/10:]...)
	}
	p.pastBatches = append(p.pastBatches, payload)
	if lost {
		return
	}
	for ch := range p.subscribers {
		select {
		case ch <- n:
		default: // as at ZeroMQ's high-water mark
		}
	}
}

// serveSubscriber sends to one subscriber, once it has subscribed to a prefix of the topic.
func (p *eventPublisher) serveSubscriber(z *zmtp.PeerConn) {
	gone := make(chan struct{})
	wanted := make(chan struct{}, 1)
	p.wg.Go(func() {
		defer close(gone)
		for {
			m, err := z.ReceiveMessage()
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
	ch := make(chan numberedBatch, maxQueuedBatches)
	p.mu.Lock()
	p.subscribers[ch] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.subscribers, ch)
		p.mu.Unlock()
	}()
	for {
		select {
		case n := <-ch:
			if z.SendMessage(p.topic, binary.BigEndian.AppendUint64(nil, n.seq), n.payload) != nil {
				return
			}
		case <-gone:
			return
		}
	}
}

// serveReplay answers requests for everything from a number on.
func (p *eventPublisher) serveReplay(z *zmtp.PeerConn) {
	for {
		m, err := z.ReceiveMessage()
		if err != nil || len(m) != 2 || len(m[1]) != 8 {
			return
		}
		from := binary.BigEndian.Uint64(m[1])
		p.mu.Lock()
		first := p.nextSeq - uint64(len(p.pastBatches))
		from = max(from, first)
		past := p.pastBatches[min(from-first, uint64(len(p.pastBatches))):]
		p.mu.Unlock()
		for i, payload := range past {
			if payload == nil { // lost
				continue
			}
			if z.SendMessage(nil, p.topic, binary.BigEndian.AppendUint64(nil, from+uint64(i)), payload) != nil {
				return
			}
		}
		if z.SendMessage(nil, p.topic, binary.BigEndian.AppendUint64(nil, math.MaxUint64), nil) != nil {
			return
		}
	}
}

// publishChanges publishes the engine's changes. The driver's lock must be held.
func (d *engineDriver) publishChanges() {
	if d.publisher == nil {
		return
	}
	if b := d.engine.cache.journal.encodeBatch(d.arrayEvents, time.Now()); b != nil {
		d.publisher.publishBatch(b, d.eventLoss > 0 && d.lossRand.Float64() < d.eventLoss)
	}
}

// resetCache empties the prefix cache; false while sequences hold blocks, as in vLLM.
func (d *engineDriver) resetCache() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.engine.cache.clearCache() {
		return false
	}
	d.publishChanges()
	return true
}
