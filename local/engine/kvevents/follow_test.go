package kvevents

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/zmtp"
)

// recordingSink is a sink that records its calls.
type recordingSink struct {
	mu    sync.Mutex
	calls []string
}

func (n *recordingSink) recordCall(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, s)
}

func (n *recordingSink) OnBatch(b *EventBatch) { n.recordCall(fmt.Sprint(b.Rank)) } // batches are identified by their rank
func (n *recordingSink) OnState(s StreamState) { n.recordCall([]string{"lost", "live"}[s]) }
func (n *recordingSink) OnGap()                { n.recordCall("gap") }
func (n *recordingSink) OnRestart()            { n.recordCall("restart") }
func (n *recordingSink) OnMalformed()          { n.recordCall("malformed") }

func (n *recordingSink) waitForCalls(t *testing.T, all ...string) {
	t.Helper()
	var got []string
	t.Cleanup(func() {
		if !slices.Equal(got, all) {
			t.Logf("the sink got %v, want %v", got, all)
		}
	})
	testkit.Eventually(t, "the calls of the sink", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		got = slices.Clone(n.calls)
		return slices.Equal(got, all)
	})
}

// fakePublisher is a publisher that sends only what the test sends.
type fakePublisher struct {
	t       *testing.T
	events  net.Listener
	replays net.Listener
	subs    chan *zmtp.PeerConn
	conns   chan net.Conn

	mu         sync.Mutex
	replayable []uint64 // the numbers that a replay contains, from the requested one on
	keepsTopic bool     // a replay includes the topic
}

func newFakePublisher(t *testing.T) *fakePublisher {
	e := &fakePublisher{t: t, subs: make(chan *zmtp.PeerConn, 9), conns: make(chan net.Conn, 9)}
	e.events, e.replays = listenLoopback(t), listenLoopback(t)
	go e.acceptConns(e.events, zmtp.Pub, func(z *zmtp.PeerConn, c net.Conn) {
		if m, err := z.ReceiveMessage(); err == nil && string(m[0]) == "\x01" {
			e.conns <- c
			e.subs <- z
		}
	})
	go e.acceptConns(e.replays, zmtp.Router, func(z *zmtp.PeerConn, c net.Conn) {
		defer c.Close()
		m, err := z.ReceiveMessage()
		if err != nil {
			return
		}
		from := binary.BigEndian.Uint64(m[1])
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, seq := range append(slices.Clone(e.replayable), math.MaxUint64) {
			frames := [][]byte{nil, []byte("topic"), binary.BigEndian.AppendUint64(nil, seq), emptyBatch(seq)}
			if !e.keepsTopic {
				frames = slices.Delete(frames, 1, 2)
			}
			if seq >= from && z.SendMessage(frames...) != nil {
				return
			}
		}
	})
	return e
}

func listenLoopback(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (e *fakePublisher) acceptConns(l net.Listener, kind string, serve func(*zmtp.PeerConn, net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		e.t.Cleanup(func() { c.Close() })
		if z, err := zmtp.OpenPeer(c, kind); err == nil {
			serve(z, c)
		}
	}
}

// emptyBatch is an empty batch with its number as rank.
func emptyBatch(seq uint64) []byte { return []byte{0x93, 0, 0x90, byte(seq & 0x7f)} }

func sendBatches(t *testing.T, z *zmtp.PeerConn, seqs ...uint64) {
	t.Helper()
	for _, seq := range seqs {
		if err := z.SendMessage([]byte("kv@x@m"), binary.BigEndian.AppendUint64(nil, seq), emptyBatch(seq)); err != nil {
			t.Fatal(err)
		}
	}
}

func startFollowing(t *testing.T, e *fakePublisher, replay bool) *recordingSink {
	n := &recordingSink{}
	cfg := Config{EventsURL: "tcp://" + e.events.Addr().String(), Dial: (&net.Dialer{}).DialContext, Log: slog.New(slog.DiscardHandler)}
	if replay {
		cfg.ReplayURL = "tcp://" + e.replays.Addr().String()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		FollowEvents(ctx, cfg, n)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return n
}

func TestGapsAndRestartsWithoutReplay(t *testing.T) {
	e := newFakePublisher(t)
	n := startFollowing(t, e, false)
	z := <-e.subs
	sendBatches(t, z, 0, 1, 2, 5, 6) // 3 and 4 are lost
	n.waitForCalls(t, "0", "live", "1", "2", "gap", "5", "6")
	sendBatches(t, z, 0, 1) // the engine restarted at the same address
	n.waitForCalls(t, "0", "live", "1", "2", "gap", "5", "6", "restart", "0", "1")
	if err := z.SendMessage([]byte("topic"), []byte("short")); err != nil {
		t.Fatal(err)
	}
	if err := z.SendMessage([]byte("topic"), binary.BigEndian.AppendUint64(nil, 2), []byte{7}); err != nil {
		t.Fatal(err)
	}
	n.waitForCalls(t, "0", "live", "1", "2", "gap", "5", "6", "restart", "0", "1", "malformed", "malformed", "gap")
}

func TestReplayFillsGaps(t *testing.T) {
	for _, topics := range []bool{false, true} {
		e := newFakePublisher(t)
		e.keepsTopic, e.replayable = topics, []uint64{0, 1, 2}
		n := startFollowing(t, e, true)
		z := <-e.subs
		n.waitForCalls(t, "0", "1", "2", "live") // before any live message
		e.mu.Lock()
		e.replayable = []uint64{0, 1, 2, 3, 4, 5, 6, 7}
		e.mu.Unlock()
		sendBatches(t, z, 2, 3, 6, 7, 8) // 2 came by the replay already; the next replay contains 7 before it arrives live
		n.waitForCalls(t, "0", "1", "2", "live", "3", "4", "5", "6", "7", "8")
		e.mu.Lock()
		e.replayable = []uint64{11, 12}
		e.mu.Unlock()
		sendBatches(t, z, 12) // 9 and 10 are no longer available
		n.waitForCalls(t, "0", "1", "2", "live", "3", "4", "5", "6", "7", "8", "gap", "12")
	}
}

func TestStreamReconnects(t *testing.T) {
	e := newFakePublisher(t)
	n := startFollowing(t, e, false)
	z := <-e.subs
	sendBatches(t, z, 4, 5) // joined late
	n.waitForCalls(t, "4", "live", "5")
	(<-e.conns).Close()
	z = <-e.subs
	sendBatches(t, z, 6) // nothing was missed
	n.waitForCalls(t, "4", "live", "5", "lost", "6", "live")
	(<-e.conns).Close()
	z = <-e.subs
	sendBatches(t, z, 3) // it counts from the start again: another engine
	n.waitForCalls(t, "4", "live", "5", "lost", "6", "live", "lost", "restart", "gap", "3", "live")
	e.events.Close() // connections are now refused
	(<-e.conns).Close()
	n.waitForCalls(t, "4", "live", "5", "lost", "6", "live", "lost", "restart", "gap", "3", "live", "lost", "restart")
}
