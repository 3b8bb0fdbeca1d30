package experiment

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// ResolverWatch is the resolvers of a region, over the network: each client resolves from its own address whenever
// its answer has expired. It belongs to one goroutine until RunUntilDone has returned.
type ResolverWatch struct {
	Servers   []string // host:port of name servers, used in turn
	Name      string   // to resolve
	Clients   []netip.Addr
	HomeAddrs map[netip.Addr]bool // addresses of the observed region
	CountFrom time.Duration       // moves count from then on
	Failed    int                 // queries without an answer

	until      []time.Time
	atHome     []bool
	moves      []int
	nextServer int
	startedAt  time.Time
}

// RunUntilDone watches until ctx ends, and returns the fraction of the clients that are sent to the observed region,
// once a second.
func (w *ResolverWatch) RunUntilDone(ctx context.Context) (parts []float64) {
	w.until, w.atHome, w.moves = make([]time.Time, len(w.Clients)), make([]bool, len(w.Clients)), make([]int, len(w.Clients))
	w.startedAt = time.Now()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		at := 0
		for i := range w.Clients {
			if !time.Now().Before(w.until[i]) {
				w.refreshClient(i)
			}
			if w.atHome[i] {
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

func (w *ResolverWatch) refreshClient(i int) {
	first := w.until[i].IsZero()
	w.nextServer++
	to, ttl, err := queryAddr(w.Servers[w.nextServer%len(w.Servers)], w.Clients[i], w.Name)
	if err != nil {
		w.Failed++
		return
	}
	if first { // so that they do not all query in the same second later
		ttl = ttl * time.Duration(i%8+1) / 8
	} else if w.atHome[i] != w.HomeAddrs[to] && time.Since(w.startedAt) >= w.CountFrom {
		w.moves[i]++
	}
	w.atHome[i], w.until[i] = w.HomeAddrs[to], time.Now().Add(ttl)
}

// MovedShares is the fraction of the clients that left or entered the region, and the fraction that did so more than
// once.
func (w *ResolverWatch) MovedShares() (once, again float64) {
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

// queryAddr queries a name server for a name's IPv4 address, from an address of this machine.
func queryAddr(server string, from netip.Addr, name string) (netip.Addr, time.Duration, error) {
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
