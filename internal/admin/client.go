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

// Client calls the admin API of one node.
type Client struct {
	server     string
	base       string
	httpClient *http.Client
	token      string
}

// Dial returns a client of a server, "unix:///path/admin.sock" or "https://host:port"; a bare path is a socket. certs is
// the operator's certificate, needed only for https. It does not connect yet.
func Dial(server string, certs *identity.Certs) (*Client, error) {
	if strings.HasPrefix(server, "/") || strings.HasPrefix(server, ".") {
		server = "unix://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", server, err)
	}
	t := &http.Transport{MaxIdleConns: 2, DisableCompression: true}
	c := &Client{server: server, base: "http://node", httpClient: &http.Client{Transport: t}}
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
		t.TLSClientConfig = certs.ClientTLS(alpn, requireNode)
	default:
		return nil, fmt.Errorf("server %q: write unix:///path/admin.sock or https://host:port", server)
	}
	return c, nil
}

// DialToken returns a client of "https://host:port" that authenticates by a bearer token. roots are the CAs of the nodes'
// certificates.
func DialToken(server string, roots *x509.CertPool, token string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" {
		return nil, fmt.Errorf("server %q: a token needs an https server: write https://host:port", server)
	}
	t := &http.Transport{MaxIdleConns: 2, DisableCompression: true, TLSClientConfig: identity.AnonymousClientTLS(roots, alpn, requireNode)}
	return &Client{server: server, base: "https://" + u.Host, httpClient: &http.Client{Transport: t}, token: token}, nil
}

// requireNode refuses a server with an operator's certificate.
func requireNode(id identity.ID) error {
	if id.Role == identity.RoleOperator {
		return errors.New("the server has the certificate of an operator, not of a node")
	}
	return nil
}

// Close closes idle connections.
func (c *Client) Close() { c.httpClient.CloseIdleConnections() }

// GetStatus returns the status of the node and the tiers below it.
func (c *Client) GetStatus(ctx context.Context) (*Status, error) {
	return callNode[Status](ctx, c, http.MethodGet, pathStatus, nil)
}

// ExplainRequest explains the decisions about a request.
func (c *Client) ExplainRequest(ctx context.Context, q ExplainQuery) (*ExplainAnswer, error) {
	return callNode[ExplainAnswer](ctx, c, http.MethodPost, pathExplain, q)
}

// TraceRequest returns what the node and the tiers below it have recorded about a request.
func (c *Client) TraceRequest(ctx context.Context, id string) (*TraceAnswer, error) {
	return callNode[TraceAnswer](ctx, c, http.MethodGet, pathTrace+"?"+url.Values{paramRequest: {id}}.Encode(), nil)
}

// TestNotifications sends a test event to webhooks of the node.
func (c *Client) TestNotifications(ctx context.Context, r NotifyTestRequest) (*NotifyTestAnswer, error) {
	return callNode[NotifyTestAnswer](ctx, c, http.MethodPost, pathNotifyTest, r)
}

// GetLogLevel returns the level of the node's log.
func (c *Client) GetLogLevel(ctx context.Context) (*LogLevelAnswer, error) {
	return callNode[LogLevelAnswer](ctx, c, http.MethodGet, pathLogLevel, nil)
}

// SetLogLevel changes the level of the node's log.
func (c *Client) SetLogLevel(ctx context.Context, r LogLevelRequest) (*LogLevelAnswer, error) {
	return callNode[LogLevelAnswer](ctx, c, http.MethodPut, pathLogLevel, r)
}

// GetSpec returns the spec in force.
func (c *Client) GetSpec(ctx context.Context) (*SpecAnswer, error) {
	return callNode[SpecAnswer](ctx, c, http.MethodGet, pathSpec, nil)
}

// GetSpecLinearizable returns a spec that includes every write that completed before the call, at any node. It needs a
// leader.
func (c *Client) GetSpecLinearizable(ctx context.Context) (*SpecAnswer, error) {
	return callNode[SpecAnswer](ctx, c, http.MethodGet, pathSpec+"?"+paramLinearizable+"=1", nil)
}

// ListDrainsLinearizable lists drains including every write that completed before the call. It needs a leader.
func (c *Client) ListDrainsLinearizable(ctx context.Context) (*DrainAnswer, error) {
	return callNode[DrainAnswer](ctx, c, http.MethodGet, pathDrains+"?"+paramLinearizable+"=1", nil)
}

// ApplySpec puts a new spec in force, or with DryRun computes its effect.
func (c *Client) ApplySpec(ctx context.Context, r ApplyRequest) (*ApplyAnswer, error) {
	return callNode[ApplyAnswer](ctx, c, http.MethodPut, pathSpec, r)
}

// StartDrain drains a region, zone or worker.
func (c *Client) StartDrain(ctx context.Context, r DrainRequest) (*DrainAnswer, error) {
	return callNode[DrainAnswer](ctx, c, http.MethodPost, pathDrains, r)
}

// EndDrain ends a drain.
func (c *Client) EndDrain(ctx context.Context, path, reason string) (*DrainAnswer, error) {
	return callNode[DrainAnswer](ctx, c, http.MethodDelete, pathDrains+"?"+url.Values{"path": {path}, "reason": {reason}}.Encode(), nil)
}

// ListDrains lists the drains in force.
func (c *Client) ListDrains(ctx context.Context) (*DrainAnswer, error) {
	return callNode[DrainAnswer](ctx, c, http.MethodGet, pathDrains, nil)
}

// NoAnswerError reports a call that was or may have been sent and got no answer.
type NoAnswerError struct {
	MayHaveChanged bool // the call may have changed something
	Err            error
}

// Error returns why there is no answer.
func (e *NoAnswerError) Error() string { return e.Err.Error() }

// Unwrap returns why there is no answer.
func (e *NoAnswerError) Unwrap() error { return e.Err }

// CheckAlive checks that the node answers within a time.
func (c *Client) CheckAlive(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("making the call: %w", err)
	}
	resp, err := c.httpClient.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s accepts connections and does not answer within %s", c.server, within)
	}
	if err != nil {
		return c.explainUnreachable(err)
	}
	return resp.Body.Close()
}

// maxAnswerBytes bounds the answer of a node, in bytes.
const maxAnswerBytes = 64 << 20

func callNode[A any](ctx context.Context, c *Client, method, path string, body any) (*A, error) {
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
	write := method != http.MethodGet && path != pathExplain
	resp, err := c.httpClient.Do(req)
	if err != nil {
		var dial *net.OpError
		unsent := errors.As(err, &dial) && dial.Op == "dial"
		return nil, &NoAnswerError{MayHaveChanged: write && !unsent, Err: c.explainUnreachable(err)}
	}
	defer resp.Body.Close()
	r := io.LimitReader(resp.Body, maxAnswerBytes)
	if resp.StatusCode/100 != 2 {
		return nil, decodeRefusal(resp, r)
	}
	out := new(A)
	if err := json.NewDecoder(r).Decode(out); err != nil {
		return nil, &NoAnswerError{MayHaveChanged: write, Err: fmt.Errorf("reading the answer of %s: %w", c.server, err)}
	}
	return out, nil
}

// explainUnreachable adds to a connection error what to do about it.
func (c *Client) explainUnreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no node listens on %s: start one, or name another with --server", c.server)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s refuses connections: the node is not running; start it, or name another with --server", c.server)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to open %s: only the user that runs the node may", c.server)
	}
	invalid, authority := x509.CertificateInvalidError{}, x509.UnknownAuthorityError{}
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate of %s has expired, or a clock is wrong: renew tls.cert at the node: %w", c.server, err)
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is of another CA than --ca: check that the server and the CA belong to the same fleet: %w", c.server, err)
	}
	return fmt.Errorf("calling %s: %w", c.server, err)
}

func decodeRefusal(resp *http.Response, body io.Reader) error {
	var e envelope
	if err := json.NewDecoder(body).Decode(&e); err != nil || e.Error == nil {
		return fmt.Errorf("the node answered %d %s without a reason", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	e.Error.Status = resp.StatusCode
	e.Error.ServerRole, e.Error.ServerNode, e.Error.ServerVersion = resp.Header.Get(headerRole), resp.Header.Get(headerNode), resp.Header.Get(headerVersion)
	return e.Error
}

// GetStopLever returns the stop lever.
func (c *Client) GetStopLever(ctx context.Context) (*StopLeverAnswer, error) {
	return callNode[StopLeverAnswer](ctx, c, http.MethodGet, pathStopLever, nil)
}

// SetStopLever pulls or releases the stop lever.
func (c *Client) SetStopLever(ctx context.Context, r StopLeverRequest) (*StopLeverAnswer, error) {
	return callNode[StopLeverAnswer](ctx, c, http.MethodPost, pathStopLever, r)
}

// GetSwitch returns the region switch in progress, or the last one.
func (c *Client) GetSwitch(ctx context.Context) (*SwitchAnswer, error) {
	return callNode[SwitchAnswer](ctx, c, http.MethodGet, pathSwitch, nil)
}

// ChangeSwitch starts a region switch, or aborts the one in progress.
func (c *Client) ChangeSwitch(ctx context.Context, r SwitchRequest) (*SwitchAnswer, error) {
	return callNode[SwitchAnswer](ctx, c, http.MethodPost, pathSwitch, r)
}
