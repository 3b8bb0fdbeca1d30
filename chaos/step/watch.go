package step

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Watch is the resolvers of a place, over the network: each client asks from its own address whenever its answer has run
// out. It belongs to one goroutine until Run has returned.
type Watch struct {
	Servers []string // host:port of name servers, asked in turn
	Name    string   // that is asked for
	Clients []netip.Addr
	Home    map[netip.Addr]bool // addresses of the region that is looked at
	From    time.Duration       // moves count from then on
	Failed  int                 // questions without an answer

	until []time.Time
	home  []bool
	moves []int
	turn  int
	begun time.Time
}

// Run watches until ctx ends, and returns the part of the clients that are sent home, once a second.
func (w *Watch) Run(ctx context.Context) (parts []float64) {
	w.until, w.home, w.moves = make([]time.Time, len(w.Clients)), make([]bool, len(w.Clients)), make([]int, len(w.Clients))
	w.begun = time.Now()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		at := 0
		for i := range w.Clients {
			if !time.Now().Before(w.until[i]) {
				w.refresh(i)
			}
			if w.home[i] {
				at++
			}
		}
		parts = append(parts, float64(at)/float64(len(w.Clients)))
		select {
		case <-ctx.Done():
			return parts
		case <-t.C:
		}
	}
}

func (w *Watch) refresh(i int) {
	first := w.until[i].IsZero()
	w.turn++
	to, ttl, err := lookUp(w.Servers[w.turn%len(w.Servers)], w.Clients[i], w.Name)
	if err != nil {
		w.Failed++
		return
	}
	if first { // so that not all ask in the same second ever after
		ttl = ttl * time.Duration(i%8+1) / 8
	} else if w.home[i] != w.Home[to] && time.Since(w.begun) >= w.From {
		w.moves[i]++
	}
	w.home[i], w.until[i] = w.Home[to], time.Now().Add(ttl)
}

// Moved is the part of the clients that left or came home, and the part that did so more than once.
func (w *Watch) Moved() (once, again float64) {
	for _, n := range w.moves {
		if n > 0 {
			once += 1 / float64(len(w.moves))
		}
		if n > 1 {
			again += 1 / float64(len(w.moves))
		}
	}
	return once, again
}

// lookUp asks a name server for a name's IPv4 address, from an address of this machine.
func lookUp(server string, from netip.Addr, name string) (netip.Addr, time.Duration, error) {
	n, err := dnsmessage.NewName(strings.TrimSuffix(name, ".") + ".")
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("asking for %s: %w", name, err)
	}
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	msg, err := q.Pack()
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("asking for %s: %w", name, err)
	}
	d := net.Dialer{Timeout: time.Second, LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	c, err := d.Dial("udp", server)
	if err != nil {
		return netip.Addr{}, 0, err
	}
	defer c.Close()
	buf := make([]byte, 1500)
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return netip.Addr{}, 0, err
	}
	if _, err := c.Write(msg); err != nil {
		return netip.Addr{}, 0, err
	}
	k, err := c.Read(buf)
	if err != nil {
		return netip.Addr{}, 0, err
	}
	var a dnsmessage.Message
	if err := a.Unpack(buf[:k]); err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%s answers %s: %w", server, name, err)
	}
	for _, rr := range a.Answers {
		if x, ok := rr.Body.(*dnsmessage.AResource); ok {
			return netip.AddrFrom4(x.A), time.Duration(rr.Header.TTL) * time.Second, nil
		}
	}
	return netip.Addr{}, 0, fmt.Errorf("%s answers %s with %v and no address", server, name, a.RCode)
}
