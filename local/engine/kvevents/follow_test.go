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
	"time"

	"github.com/spillway-lb/spillway/internal/zmtp"
)

// notes is a sink that writes down what it is told.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) note(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, s)
}

func (n *notes) Batch(b *Batch) { n.note(fmt.Sprint(b.Rank)) } // the tests' batches are told by their rank
func (n *notes) State(s State)  { n.note([]string{"lost", "live"}[s]) }
func (n *notes) Gap()           { n.note("gap") }
func (n *notes) Restart()       { n.note("restart") }
func (n *notes) Garbled()       { n.note("garbled") }

func (n *notes) want(t *testing.T, all ...string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		n.mu.Lock()
		got := slices.Clone(n.all)
		n.mu.Unlock()
		if slices.Equal(got, all) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the sink was told %v, want %v", got, all)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// engine is a publisher whose every message the test sends itself.
type engine struct {
	t       *testing.T
	events  net.Listener
	replays net.Listener
	subs    chan *zmtp.Conn
	conns   chan net.Conn

	mu     sync.Mutex
	past   []uint64 // what a replay answers with, from the number that is asked for
	topics bool     // a replay does not lose the topic
}

func newEngine(t *testing.T) *engine {
	e := &engine{t: t, subs: make(chan *zmtp.Conn, 9), conns: make(chan net.Conn, 9)}
	e.events, e.replays = bind(t), bind(t)
	go e.accept(e.events, zmtp.Pub, func(z *zmtp.Conn, c net.Conn) {
		if m, err := z.Recv(); err == nil && string(m[0]) == "\x01" {
			e.conns <- c
			e.subs <- z
		}
	})
	go e.accept(e.replays, zmtp.Router, func(z *zmtp.Conn, c net.Conn) {
		defer c.Close()
		m, err := z.Recv()
		if err != nil {
			return
		}
		from := binary.BigEndian.Uint64(m[1])
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, seq := range append(slices.Clone(e.past), math.MaxUint64) {
			frames := [][]byte{nil, []byte("topic"), binary.BigEndian.AppendUint64(nil, seq), payload(seq)}
			if !e.topics {
				frames = slices.Delete(frames, 1, 2)
			}
			if seq >= from && z.Send(frames...) != nil {
				return
			}
		}
	})
	return e
}

func bind(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (e *engine) accept(l net.Listener, kind string, serve func(*zmtp.Conn, net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		e.t.Cleanup(func() { c.Close() })
		if z, err := zmtp.Open(c, kind); err == nil {
			serve(z, c)
		}
	}
}

// payload is an empty batch whose rank is its number.
func payload(seq uint64) []byte { return []byte{0x93, 0, 0x90, byte(seq & 0x7f)} }

func send(t *testing.T, z *zmtp.Conn, seqs ...uint64) {
	t.Helper()
	for _, seq := range seqs {
		if err := z.Send([]byte("kv@x@m"), binary.BigEndian.AppendUint64(nil, seq), payload(seq)); err != nil {
			t.Fatal(err)
		}
	}
}

func follow(t *testing.T, e *engine, replay bool) *notes {
	n := &notes{}
	cfg := Config{Events: "tcp://" + e.events.Addr().String(), Dial: (&net.Dialer{}).DialContext, Log: slog.New(slog.DiscardHandler)}
	if replay {
		cfg.Replay = "tcp://" + e.replays.Addr().String()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Follow(ctx, cfg, n)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return n
}

func TestGapsAndRestartsWithoutReplay(t *testing.T) {
	e := newEngine(t)
	n := follow(t, e, false)
	z := <-e.subs
	send(t, z, 0, 1, 2, 5, 6) // 3 and 4 are lost
	n.want(t, "0", "live", "1", "2", "gap", "5", "6")
	send(t, z, 0, 1) // the engine began anew behind the same address
	n.want(t, "0", "live", "1", "2", "gap", "5", "6", "restart", "0", "1")
	if err := z.Send([]byte("topic"), []byte("short")); err != nil {
		t.Fatal(err)
	}
	if err := z.Send([]byte("topic"), binary.BigEndian.AppendUint64(nil, 2), []byte{7}); err != nil {
		t.Fatal(err)
	}
	n.want(t, "0", "live", "1", "2", "gap", "5", "6", "restart", "0", "1", "garbled", "garbled", "gap")
}

func TestReplayFillsGaps(t *testing.T) {
	for _, topics := range []bool{false, true} {
		e := newEngine(t)
		e.topics, e.past = topics, []uint64{0, 1, 2}
		n := follow(t, e, true)
		z := <-e.subs
		n.want(t, "0", "1", "2", "live") // before anything has come live
		e.mu.Lock()
		e.past = []uint64{0, 1, 2, 3, 4, 5, 6, 7}
		e.mu.Unlock()
		send(t, z, 2, 3, 6, 7, 8) // 2 came by the replay already; the next replay knows 7 before it comes
		n.want(t, "0", "1", "2", "live", "3", "4", "5", "6", "7", "8")
		e.mu.Lock()
		e.past = []uint64{11, 12}
		e.mu.Unlock()
		send(t, z, 12) // 9 and 10 are forgotten
		n.want(t, "0", "1", "2", "live", "3", "4", "5", "6", "7", "8", "gap", "12")
	}
}

func TestReconnects(t *testing.T) {
	e := newEngine(t)
	n := follow(t, e, false)
	z := <-e.subs
	send(t, z, 4, 5) // joined late
	n.want(t, "4", "live", "5")
	(<-e.conns).Close()
	z = <-e.subs
	send(t, z, 6) // nothing was missed
	n.want(t, "4", "live", "5", "lost", "6", "live")
	(<-e.conns).Close()
	z = <-e.subs
	send(t, z, 3) // it counts from the beginning again: another engine
	n.want(t, "4", "live", "5", "lost", "6", "live", "lost", "restart", "gap", "3", "live")
	e.events.Close() // and now nobody listens
	(<-e.conns).Close()
	n.want(t, "4", "live", "5", "lost", "6", "live", "lost", "restart", "gap", "3", "live", "lost", "restart")
}
