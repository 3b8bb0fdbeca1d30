package forward

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

// TunnelLimits are the limits of a tunnel.
type TunnelLimits struct {
	// IdleTimeout bounds the silence in both directions, MaxLifetime the life of the tunnel.
	IdleTimeout, MaxLifetime time.Duration
	// ToOwnTier: the other end is a Spillway tier. The body of a worker's refusal of an upgrade is not
	// forwarded.
	ToOwnTier bool
}

// errWrongUpgrade means that the response to an upgrade request does not switch to WebSocket.
var errWrongUpgrade = errors.New("the response does not upgrade to WebSocket")

// ForwardTunnel sends req, which requests a WebSocket. Once the upgrade is accepted, it joins the connection of
// the client with the one to the worker until either side ends, ctx ends, or a limit is reached. A response
// that does not accept it is stored in Result.Refusal. The client must use HTTP/1.1. The content is not
// read: a message may name any model of the worker, so the caller must choose a worker all of whose models the
// client may use.
func (f *Forwarder) ForwardTunnel(ctx context.Context, w http.ResponseWriter, req *http.Request, obs Observer, b TunnelLimits) (res Result) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() { res.attributeToClient(ctx, nil); res.DoneAt = time.Now() }()
	late := time.AfterFunc(b.IdleTimeout, func() { cancel(errIdleTimeout) })
	resp, err := f.Transport.RoundTrip(req.WithContext(ctx))
	late.Stop()
	if err != nil {
		res.recordNoAnswer(ctx, err)
		return res
	}
	defer func() { _ = resp.Body.Close() }()
	res.Status = resp.StatusCode
	below, ok := resp.Body.(io.ReadWriteCloser)
	switch {
	case resp.StatusCode != http.StatusSwitchingProtocols:
		begun := resp.Header.Get(HeaderNotStarted) == ""
		res.recordRefusal(resp)
		if begun {
			res.Outcome, res.NoWorkBegun = Unsupported, false
		}
		if !b.ToOwnTier {
			res.Refusal = upgradeRefusal(resp.StatusCode)
		}
		return res
	case !ok || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket"):
		res.recordNoAnswer(ctx, errWrongUpgrade)
		return res
	}
	if h, ok := obs.(HeadObserver); ok {
		copyHeaders(w.Header(), resp.Header, nil)
		h.EditHead(resp, w.Header())
	}
	client, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		res.Err = fmt.Errorf("hijacking the client's connection: %w", err)
		return res
	}
	res.Outcome, res.ReachedClient = Completed, true
	j := tunnel{ctx: ctx, client: client, clientReader: in.Reader, upstream: below, observer: obs, limits: b, result: &res}
	j.runTunnel(w.Header(), resp.Header)
	return res
}

// upgradeRefusal returns our own refusal in place of a worker's, whose body and headers can be anything.
func upgradeRefusal(status int) *Refusal {
	e := openai.UpstreamFailed("the worker refused the WebSocket with status " + strconv.Itoa(status))
	if status/100 == 4 {
		e.Status, e.Type, e.NoRetry = status, openai.TypeInvalidRequest, true
	}
	return &Refusal{Status: e.Status, Header: http.Header{"Content-Type": {"application/json"}}, Body: e.JSON()}
}

// tunnel is a pair of joined connections.
type tunnel struct {
	ctx          context.Context
	client       net.Conn
	clientReader *bufio.Reader // buffered bytes of the client
	upstream     io.ReadWriteCloser
	observer     Observer
	limits       TunnelLimits
	result       *Result

	once     sync.Once
	endCause string
}

// The values of TunnelEnd.
const (
	endedByClient = "client"
	endedByWorker = "worker"
	endedByIdle   = "idle"
	endedByAge    = "age"
	endedByStop   = "stopped"
)

func (j *tunnel) runTunnel(out, from http.Header) {
	if p, ok := j.client.(interface{ StopChecking() }); ok {
		p.StopChecking() // what follows is not HTTP
	}
	_ = j.client.SetDeadline(time.Time{}) // the deadlines of the server are for requests
	idle := time.AfterFunc(j.limits.IdleTimeout, func() { j.closeBoth(endedByIdle) })
	defer idle.Stop()
	age := time.AfterFunc(j.limits.MaxLifetime, func() { j.closeBoth(endedByAge) })
	defer age.Stop()
	defer context.AfterFunc(j.ctx, func() { j.closeBoth(endedByStop) })()
	if err := j.writeUpgrade(out, from); err != nil {
		j.closeBoth(endedByClient)
	}
	var both sync.WaitGroup
	both.Go(func() {
		j.copyOneWay(j.client, j.upstream, idle, j.observer)
		j.closeBoth(endedByWorker)
	})
	j.copyOneWay(j.upstream, j.clientReader, idle, nil)
	j.closeBoth(endedByClient)
	both.Wait()
	if j.result.TunnelEnd = j.endCause; j.endCause == endedByClient {
		j.result.Outcome = ClientGone
	}
}

// closeBoth closes both connections, once.
func (j *tunnel) closeBoth(why string) {
	j.once.Do(func() {
		j.endCause = why
		_ = j.client.Close()   // one of them may have failed already
		_ = j.upstream.Close() // one of them may have failed already
	})
}

// writeUpgrade sends the accepted upgrade to the client.
func (j *tunnel) writeUpgrade(out, from http.Header) error {
	out.Set("Connection", "Upgrade")
	out.Set("Upgrade", "websocket")
	out.Del("Content-Length")
	if v := from["Sec-Websocket-Accept"]; v != nil {
		out["Sec-WebSocket-Accept"] = v // spelled as in RFC 6455
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

func (j *tunnel) copyOneWay(to io.Writer, from io.Reader, idle *time.Timer, obs Observer) {
	buf := make([]byte, 8<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			idle.Reset(j.limits.IdleTimeout)
			if to == io.Writer(j.upstream) {
				j.result.BytesIn += int64(n)
			}
			if obs != nil {
				obs.AddChunk(buf[:n])
				j.result.BytesOut += int64(n)
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
