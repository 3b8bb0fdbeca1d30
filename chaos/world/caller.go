package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// Caller asks over HTTP, from whichever client's address: gateways count whose network asks for how much, and where a
// network's resolver is sent has to be where its clients are.
type Caller struct {
	p    *Planet
	http http.Client
	turn atomic.Uint32 // which global node redirects next
}

// fromKey carries the client's address to where it dials.
type fromKey struct{}

// Caller makes one.
func (p *Planet) Caller() *Caller {
	c := &Caller{p: p}
	c.http.Transport = &http.Transport{DialContext: c.dial, DisableKeepAlives: true, DisableCompression: true}
	return c
}

// dial goes to an address as it is, for the service's name to a global node, and for a child of it to its region.
func (c *Caller) dial(ctx context.Context, network, address string) (net.Conn, error) {
	from, _ := ctx.Value(fromKey{}).(netip.Addr)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddr(host)
	switch node := int(c.turn.Add(1)) % len(c.p.Globals); {
	case err == nil:
	case host+"." == Service:
		to = GlobalHost(node)
	default:
		a, err := c.p.Ask(node, from, host+".")
		if err != nil {
			return nil, fmt.Errorf("resolving %s: %w", host, err)
		}
		to = a.Addr
	}
	return c.p.Net.Host(from).DialContext(ctx, network, net.JoinHostPort(to.String(), port))
}

// Reply is what came of a request.
type Reply struct {
	Status int
	First  time.Duration // to the first byte of the answer's body; 0: none came
	Region string        // that served it; empty where none did
	Zone   string        // of that region
	Err    error
}

// Post asks for a completion of a prompt from a client's address, at a gateway's address, or by a redirect when to is not valid.
func (c *Caller) Post(ctx context.Context, from, to netip.Addr, prompt string, output int) (r Reply) {
	host := strings.TrimSuffix(Service, ".")
	if to.IsValid() {
		host = to.String()
	}
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d,"ignore_eos":true,"stream":true}`, Model, prompt, output)
	req, err := http.NewRequestWithContext(context.WithValue(ctx, fromKey{}, from), http.MethodPost, "http://"+host+":8080/v1/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return Reply{Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+Key)
	begun := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return Reply{Err: err}
	}
	defer resp.Body.Close()
	r.Status = resp.StatusCode
	var rest string
	r.Region, rest, _ = strings.Cut(resp.Header.Get("X-Spillway-Route"), "/")
	r.Zone, _, _ = strings.Cut(rest, "/")
	buf := make([]byte, 4<<10)
	n, err := resp.Body.Read(buf)
	if n > 0 {
		r.First = time.Since(begun)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if !errors.Is(err, io.EOF) {
		r.Err = err
	}
	return r
}

// Close ends idle connections.
func (c *Caller) Close() { c.http.CloseIdleConnections() }
