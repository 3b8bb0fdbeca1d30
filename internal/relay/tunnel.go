package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Bounds of a tunnel.
type Bounds struct {
	// Idle is how long nothing may pass either way, Life how long the tunnel may last.
	Idle, Life time.Duration
	// Below says that the other end is a tier of ours. What a worker says to an upgrade that it refuses is not passed on.
	Below bool
}

// errNoUpgrade means that what was answered to an upgrade is none to a WebSocket.
var errNoUpgrade = errors.New("the answer upgrades to something else")

// Tunnel sends req, which asks for a WebSocket, and once it is granted joins the client's connection with the one to the
// worker until either side ends, ctx ends, or a bound is reached. An answer that does not grant it is kept in
// Result.Refused. The client must speak HTTP/1.1.
func (f *Forwarder) Tunnel(ctx context.Context, w http.ResponseWriter, req *http.Request, obs Observer, b Bounds) (res Result) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() { res.excuse(ctx, nil); res.Done = time.Now() }()
	late := time.AfterFunc(b.Idle, func() { cancel(errIdle) })
	resp, err := f.Transport.RoundTrip(req.WithContext(ctx))
	late.Stop()
	if err != nil {
		res.unreached(ctx, err)
		return res
	}
	defer func() { _ = resp.Body.Close() }()
	res.Status = resp.StatusCode
	below, ok := resp.Body.(io.ReadWriteCloser)
	switch {
	case resp.StatusCode != http.StatusSwitchingProtocols:
		begun := resp.Header.Get(HeaderNotStarted) == ""
		res.refuse(resp)
		if begun {
			res.NotStarted, res.Retryable = false, false
		}
		if !b.Below {
			res.Refused = refusedUpgrade(resp.StatusCode)
		}
		return res
	case !ok || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket"):
		res.unreached(ctx, errNoUpgrade)
		return res
	}
	if h, ok := obs.(HeadObserver); ok {
		pass(w.Header(), resp.Header, nil)
		h.Head(resp, w.Header())
	}
	client, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		res.Err = fmt.Errorf("taking the client's connection over: %w", err)
		return res
	}
	res.Started = true
	j := joint{ctx: ctx, client: client, in: in.Reader, below: below, obs: obs, bounds: b, res: &res}
	j.run(w.Header(), resp.Header)
	return res
}

// refusedUpgrade is a refusal of our own for one of a worker's: its body and headers can be any page of the worker.
func refusedUpgrade(status int) *Refusal {
	e := openai.Upstream("the worker refused the WebSocket with status " + strconv.Itoa(status))
	if status/100 == 4 {
		e.Status, e.Type, e.NoRetry = status, openai.TypeInvalidRequest, true
	}
	return &Refusal{Status: e.Status, Header: http.Header{"Content-Type": {"application/json"}}, Body: e.JSON()}
}

// joint is two connections that are one.
type joint struct {
	ctx    context.Context
	client net.Conn
	in     *bufio.Reader // what the client sent is read from here
	below  io.ReadWriteCloser
	obs    Observer
	bounds Bounds
	res    *Result

	once sync.Once
	why  string
}

// What ended a tunnel.
const (
	endedByClient = "client"
	endedByWorker = "worker"
	endedByIdle   = "idle"
	endedByAge    = "age"
	endedByUs     = "stopped"
)

func (j *joint) run(out, from http.Header) {
	if p, ok := j.client.(interface{ Pass() }); ok {
		p.Pass() // what comes now is no HTTP
	}
	_ = j.client.SetDeadline(time.Time{}) // the server's deadlines are for requests
	idle := time.AfterFunc(j.bounds.Idle, func() { j.end(endedByIdle) })
	defer idle.Stop()
	age := time.AfterFunc(j.bounds.Life, func() { j.end(endedByAge) })
	defer age.Stop()
	defer context.AfterFunc(j.ctx, func() { j.end(endedByUs) })()
	if err := j.accept(out, from); err != nil {
		j.end(endedByClient)
	}
	var both sync.WaitGroup
	both.Go(func() {
		j.copy(j.client, j.below, idle, j.obs)
		j.end(endedByWorker)
	})
	j.copy(j.below, j.in, idle, nil)
	j.end(endedByClient)
	both.Wait()
	j.res.Ended = j.why
	j.res.ClientGone = j.why == endedByClient
}

// end closes both, once.
func (j *joint) end(why string) {
	j.once.Do(func() {
		j.why = why
		_ = j.client.Close() // one of the two has failed already, or will
		_ = j.below.Close()  // as above
	})
}

// accept tells the client that the worker has taken it.
func (j *joint) accept(out, from http.Header) error {
	out.Set("Connection", "Upgrade")
	out.Set("Upgrade", "websocket")
	out.Del("Content-Length")
	if v := from["Sec-Websocket-Accept"]; v != nil {
		out["Sec-WebSocket-Accept"] = v // as RFC 6455 spells it
		delete(out, "Sec-Websocket-Accept")
	}
	b := bufio.NewWriter(j.client)
	_, _ = b.WriteString("HTTP/1.1 101 Switching Protocols\r\n") // Flush returns its error
	if err := out.Write(b); err != nil {
		return err
	}
	_, _ = b.WriteString("\r\n") // as above
	return b.Flush()
}

func (j *joint) copy(to io.Writer, from io.Reader, idle *time.Timer, obs Observer) {
	buf := make([]byte, 8<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			idle.Reset(j.bounds.Idle)
			if to == io.Writer(j.below) {
				j.res.BytesIn += int64(n)
			}
			if obs != nil {
				obs.Chunk(buf[:n])
				j.res.Bytes += int64(n)
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
