package fleet

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

// HTTPCaller sends HTTP requests from any client's address. Gateways count demand by client network, and a network's
// clients must be where its resolver is sent.
type HTTPCaller struct {
	fleet    *InMemory
	http     http.Client
	nextNode atomic.Uint32 // global node of the next redirect
}

// clientAddrKey is the context key of the client's address.
type clientAddrKey struct{}

// NewHTTPCaller returns an HTTPCaller of the fleet.
func (p *InMemory) NewHTTPCaller() *HTTPCaller {
	c := &HTTPCaller{fleet: p}
	c.http.Transport = &http.Transport{DialContext: c.dialFromClient, DisableKeepAlives: true, DisableCompression: true}
	return c
}

// dialFromClient dials an IP address as it is, the service's name at a global node, and a name below it at its
// region.
func (c *HTTPCaller) dialFromClient(ctx context.Context, network, address string) (net.Conn, error) {
	from, _ := ctx.Value(clientAddrKey{}).(netip.Addr)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddr(host)
	switch node := int(c.nextNode.Add(1)) % len(c.fleet.Globals); {
	case err == nil:
	case host+"." == ServiceName:
		to = GlobalHost(node)
	default:
		a, err := c.fleet.QueryDNS(node, from, host+".")
		if err != nil {
			return nil, fmt.Errorf("resolving %s: %w", host, err)
		}
		to = a.Addr
	}
	return c.fleet.Net.HostAt(from).DialContext(ctx, network, net.JoinHostPort(to.String(), port))
}

// HTTPReply is the outcome of a request.
type HTTPReply struct {
	Status         int
	FirstByteAfter time.Duration // to the first byte of the answer's body; 0: none came
	Region         string        // that served it; empty if none did
	Zone           string        // of that region
	Err            error
}

// PostCompletion requests a completion of a prompt from a client's address, at a gateway's address, or by a redirect
// when to is not valid.
func (c *HTTPCaller) PostCompletion(ctx context.Context, from, to netip.Addr, prompt string, output int) (r HTTPReply) {
	host := strings.TrimSuffix(ServiceName, ".")
	if to.IsValid() {
		host = to.String()
	}
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d,"ignore_eos":true,"stream":true}`, memoryModel, prompt, output)
	req, err := http.NewRequestWithContext(context.WithValue(ctx, clientAddrKey{}, from), http.MethodPost, "http://"+host+":8080/v1/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return HTTPReply{Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+memoryKey)
	begun := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return HTTPReply{Err: err}
	}
	defer resp.Body.Close()
	r.Status = resp.StatusCode
	var rest string
	r.Region, rest, _ = strings.Cut(resp.Header.Get("X-Spillway-Route"), "/")
	r.Zone, _, _ = strings.Cut(rest, "/")
	buf := make([]byte, 4<<10)
	n, err := resp.Body.Read(buf)
	if n > 0 {
		r.FirstByteAfter = time.Since(begun)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if !errors.Is(err, io.EOF) {
		r.Err = err
	}
	return r
}

// Close closes idle connections.
func (c *HTTPCaller) Close() { c.http.CloseIdleConnections() }
