package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// inputInjury sends harmful input to the public listeners of nodes for as long as the fault lasts. The sender is the agent:
// it ends with it, and the process that replaces it starts it again.
type inputInjury struct {
	files *fleet.Files

	mu      sync.Mutex
	senders map[string]*inputSender // by lease
}

// inputSender is a running fault of input.
type inputSender struct {
	stop func() // waits
	sent atomic.Uint64
	open atomic.Int64 // connections
}

func (k *inputInjury) findVictims(s Spec) ([]string, error) {
	nodes, err := selectProcesses(k.files, s, func() (string, error) { return findLeader(k.files) })
	role := inputRoles[s.Kind]
	var out []string
	for _, n := range nodes {
		if n.Role == role {
			out = append(out, n.ID())
		}
	}
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: %s has no node of role %s", s.Kind, describeTarget(s), role)
	}
	return out, err
}

// inputRoles is the role that has the listener of a kind.
var inputRoles = map[Kind]string{InputDNSGarbage: "global", InputDNSFlood: "global", InputSlowClients: "regional", InputHugeBodies: "regional"}

func (k *inputInjury) apply(_ context.Context, l *lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.senders[l.Spec.ID] != nil { // renewed
		return nil
	}
	in, _ := FindKind(l.Spec.Kind)
	ctx, cancel := context.WithCancel(context.Background())
	s := &inputSender{}
	var running sync.WaitGroup
	for i, id := range l.Victims {
		n, ok := k.files.FindNode(id)
		if !ok {
			continue
		}
		seed := uint64(i) + 1
		switch l.Spec.Kind {
		case InputDNSGarbage, InputDNSFlood:
			rate := parseShare(in.param(l.Spec, "rate"))
			garbage := l.Spec.Kind == InputDNSGarbage
			running.Go(func() { s.sendQueries(ctx, n.Addr["dns"].String(), rate, garbage, seed) })
		case InputSlowClients:
			interval, _ := time.ParseDuration(in.param(l.Spec, "interval"))
			for range parseCount(in.param(l.Spec, "count")) {
				running.Go(func() { s.sendSlowly(ctx, n.Addr["http"].String(), interval) })
			}
		case InputHugeBodies:
			for range parseCount(in.param(l.Spec, "count")) {
				running.Go(func() { s.sendBodies(ctx, n.Addr["http"].String(), parseCount(in.param(l.Spec, "size"))) })
			}
		}
	}
	s.stop = func() {
		cancel()
		running.Wait()
	}
	k.senders[l.Spec.ID] = s
	return nil
}

func (k *inputInjury) clear(_ context.Context, l *lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.senders[l.Spec.ID]; s != nil {
		s.stop()
		delete(k.senders, l.Spec.ID)
	}
	return nil
}

// inputProbe is how long a probe counts.
const inputProbe = 300 * time.Millisecond

func (k *inputInjury) probe(ctx context.Context, l *lease) (bool, string, error) {
	k.mu.Lock()
	s := k.senders[l.Spec.ID]
	k.mu.Unlock()
	if s == nil {
		return false, "nothing is sent", nil
	}
	before := s.sent.Load()
	select {
	case <-ctx.Done():
		return false, "", ctx.Err()
	case <-time.After(inputProbe):
	}
	now, open := s.sent.Load(), s.open.Load()
	return now > before || open > 0, fmt.Sprintf("%d sent in %s, %d in all, %d connections open", now-before, inputProbe, now, open), nil
}

// pause waits; false: the fault has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// queryTick is how often a flood sends its share of a second.
const queryTick = 10 * time.Millisecond

// sendQueries sends DNS messages at a rate: random bytes behind a header, or well-formed queries for names that do not
// exist. It reads no answers.
func (s *inputSender) sendQueries(ctx context.Context, to string, rate float64, garbage bool, seed uint64) {
	c, err := net.Dial("udp", to)
	if err != nil {
		return
	}
	defer c.Close()
	rng := rand.New(rand.NewPCG(seed, 0xd15))
	due := 0.0
	for pause(ctx, queryTick) {
		for due += rate * queryTick.Seconds(); due >= 1; due-- {
			c.Write(buildQuery(rng, garbage)) // an error means that the port is closed: the next one may be received
			s.sent.Add(1)
		}
	}
}

// buildQuery builds a DNS message for a random name below the service's, or malformed.
func buildQuery(rng *rand.Rand, garbage bool) []byte {
	b := []byte{byte(rng.Uint32()), byte(rng.Uint32()), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	if garbage {
		for range rng.IntN(500) {
			b = append(b, byte(rng.Uint32()))
		}
		b[2], b[5] = byte(rng.Uint32())&0x7f, byte(rng.Uint32()) // a query with any counts
		return b
	}
	for _, label := range strings.Split(fmt.Sprintf("r%08x.%s", rng.Uint32(), strings.TrimSuffix(fleet.ServiceName, ".")), ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0, 0, 1, 0, 1)
}

// sendSlowly keeps a connection open and sends a request's head byte by byte. It connects again when it is closed.
func (s *inputSender) sendSlowly(ctx context.Context, to string, interval time.Duration) {
	const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: chat.spillway.test\r\nX-Slow: "
	for ctx.Err() == nil {
		s.holdConn(ctx, to, func(c net.Conn) error {
			for i := 0; ; i++ {
				next := byte('x')
				if i < len(head) {
					next = head[i]
				}
				if _, err := c.Write([]byte{next}); err != nil {
					return err
				}
				s.sent.Add(1)
				if !pause(ctx, interval) {
					return ctx.Err()
				}
			}
		})
		pause(ctx, interval)
	}
}

// sendBodies sends requests with bodies of a size, one after the other.
func (s *inputSender) sendBodies(ctx context.Context, to string, size int) {
	block := []byte(strings.Repeat(" ", 64<<10))
	for ctx.Err() == nil {
		s.holdConn(ctx, to, func(c net.Conn) error {
			if _, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: chat.spillway.test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size); err != nil {
				return err
			}
			for left := size; left > 0; left -= len(block) {
				c.SetWriteDeadline(time.Now().Add(10 * time.Second))
				if _, err := c.Write(block[:min(left, len(block))]); err != nil {
					return err
				}
			}
			s.sent.Add(1)
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, err := c.Read(block)
			return err
		})
		pause(ctx, 50*time.Millisecond)
	}
}

// holdConn opens a connection for use, which ends with ctx.
func (s *inputSender) holdConn(ctx context.Context, to string, use func(net.Conn) error) {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := use(c); err != nil && !errors.Is(err, net.ErrClosed) {
		s.sent.Add(1) // refused or closed by the node: it did receive something
	}
}
