package admin

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

// Client calls one node's admin interface.
type Client struct {
	server string
	base   string
	http   *http.Client
	token  string
}

// Dial prepares calls to server, "unix:///path/admin.sock" or "https://host:port"; a bare path is a socket. certs is
// the operator's certificate, needed for https alone. Nothing is sent yet.
func Dial(server string, certs *identity.Certs) (*Client, error) {
	if strings.HasPrefix(server, "/") || strings.HasPrefix(server, ".") {
		server = "unix://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", server, err)
	}
	t := &http.Transport{MaxIdleConns: 2, DisableCompression: true}
	c := &Client{server: server, base: "http://node", http: &http.Client{Transport: t}}
	switch {
	case u.Scheme == "unix":
		path := strings.TrimPrefix(server, "unix://")
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	case u.Scheme == "https" && certs == nil:
		return nil, fmt.Errorf("server %s needs an operator's certificate or a token: give --cert, --key and --ca, or --token-file and --ca", server)
	case u.Scheme == "https":
		c.base = "https://" + u.Host
		t.TLSClientConfig = certs.Client(alpn, nodesOnly)
	default:
		return nil, fmt.Errorf("server %q: write unix:///path/admin.sock or https://host:port", server)
	}
	return c, nil
}

// DialToken prepares calls to "https://host:port" that prove themselves by a bearer token. roots are the authorities that
// signed the nodes' certificates.
func DialToken(server string, roots *x509.CertPool, token string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" {
		return nil, fmt.Errorf("server %q: a token is for https://host:port", server)
	}
	t := &http.Transport{MaxIdleConns: 2, DisableCompression: true, TLSClientConfig: identity.Anonymous(roots, alpn, nodesOnly)}
	return &Client{server: server, base: "https://" + u.Host, http: &http.Client{Transport: t}, token: token}, nil
}

// nodesOnly keeps an operator's certificate from posing as a node.
func nodesOnly(id identity.ID) error {
	if id.Role == identity.RoleOperator {
		return errors.New("that is an operator, not a node")
	}
	return nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks what the node stands over.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return call[Status](ctx, c, http.MethodGet, pathStatus, nil)
}

// Explain replays the decisions that a request would meet.
func (c *Client) Explain(ctx context.Context, q ExplainQuery) (*ExplainAnswer, error) {
	return call[ExplainAnswer](ctx, c, http.MethodPost, pathExplain, q)
}

// Spec returns the spec in force.
func (c *Client) Spec(ctx context.Context) (*SpecAnswer, error) {
	return call[SpecAnswer](ctx, c, http.MethodGet, pathSpec, nil)
}

// SpecNow is Spec with every write made before the call, wherever it was made. It needs a leader.
func (c *Client) SpecNow(ctx context.Context) (*SpecAnswer, error) {
	return call[SpecAnswer](ctx, c, http.MethodGet, pathSpec+"?"+paramLinearizable+"=1", nil)
}

// DrainsNow is Drains likewise.
func (c *Client) DrainsNow(ctx context.Context) (*DrainAnswer, error) {
	return call[DrainAnswer](ctx, c, http.MethodGet, pathDrains+"?"+paramLinearizable+"=1", nil)
}

// Apply puts a new spec in force, or with DryRun says what that would do.
func (c *Client) Apply(ctx context.Context, r ApplyRequest) (*ApplyAnswer, error) {
	return call[ApplyAnswer](ctx, c, http.MethodPut, pathSpec, r)
}

// Drain asks that a region, zone or worker takes nothing new.
func (c *Client) Drain(ctx context.Context, r DrainRequest) (*DrainAnswer, error) {
	return call[DrainAnswer](ctx, c, http.MethodPost, pathDrains, r)
}

// Undrain takes a drain back.
func (c *Client) Undrain(ctx context.Context, path, reason string) (*DrainAnswer, error) {
	return call[DrainAnswer](ctx, c, http.MethodDelete, pathDrains+"?"+url.Values{"path": {path}, "reason": {reason}}.Encode(), nil)
}

// Drains lists the drains in force.
func (c *Client) Drains(ctx context.Context) (*DrainAnswer, error) {
	return call[DrainAnswer](ctx, c, http.MethodGet, pathDrains, nil)
}

// NoAnswer is the error of a call that was sent, or may have been, and to which no answer came.
type NoAnswer struct {
	Write bool // the call may have changed something
	Err   error
}

// Error is why there is no answer.
func (e *NoAnswer) Error() string { return e.Err.Error() }

// Unwrap is why there is no answer.
func (e *NoAnswer) Unwrap() error { return e.Err }

// Alive asks whether the node answers at all, within a time.
func (c *Client) Alive(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("making the call: %w", err)
	}
	resp, err := c.http.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s takes connections and does not answer within %s", c.server, within)
	}
	if err != nil {
		return c.unreachable(err)
	}
	return resp.Body.Close()
}

// maxAnswer bounds what a node may make us hold, in bytes.
const maxAnswer = 64 << 20

func call[A any](ctx context.Context, c *Client, method, path string, body any) (*A, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding the call: %w", err)
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	if err != nil {
		return nil, fmt.Errorf("making the call: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &NoAnswer{Write: method != http.MethodGet && path != pathExplain, Err: c.unreachable(err)}
	}
	defer resp.Body.Close()
	r := io.LimitReader(resp.Body, maxAnswer)
	if resp.StatusCode/100 != 2 {
		return nil, refusal(resp.StatusCode, r)
	}
	out := new(A)
	if err := json.NewDecoder(r).Decode(out); err != nil {
		return nil, &NoAnswer{Write: method != http.MethodGet && path != pathExplain, Err: fmt.Errorf("reading the answer of %s: %w", c.server, err)}
	}
	return out, nil
}

// unreachable says what to do about a node that cannot be called.
func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("nothing listens on %s: start a node, or name another with --server", c.server)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s refuses connections: the node is not running; start it, or name another with --server", c.server)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s is closed to this user: only the user that runs the node may open it", c.server)
	}
	return fmt.Errorf("calling %s: %w", c.server, err)
}

func refusal(status int, body io.Reader) error {
	var e envelope
	if err := json.NewDecoder(body).Decode(&e); err != nil || e.Error == nil {
		return fmt.Errorf("the node answered %d %s without a reason", status, http.StatusText(status))
	}
	e.Error.Status = status
	return e.Error
}
