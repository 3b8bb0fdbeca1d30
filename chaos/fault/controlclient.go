package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// callTimeout bounds one call of a place. Probes of lossy links take seconds.
const callTimeout = 30 * time.Second

// placeClient calls a place over its unix socket. It keeps no connection, so that a place that was replaced after
// `kill -9` is found at once.
type placeClient struct {
	name   string
	socket string
	http   *http.Client
}

func newPlaceClient(name, socket string) *placeClient {
	return &placeClient{name: name, socket: socket, http: &http.Client{Timeout: callTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

// takeoverTimeout is how long a call waits for the process that replaces a killed one.
const takeoverTimeout = 3 * time.Second

// call sends one call and decodes its answer into out, if it is not nil. While nothing serves the socket it tries again.
func (c *placeClient) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = b
	}
	give := time.Now().Add(takeoverTimeout)
	for {
		err := c.callOnce(ctx, method, path, body, out)
		if op := (*net.OpError)(nil); !errors.As(err, &op) || op.Op != "dial" {
			return err
		}
		if time.Now().After(give) {
			return fmt.Errorf("the %s of the fleet does not answer on %s: %w: start the fleet with its relays", c.name, c.socket, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *placeClient) callOnce(ctx context.Context, method, path string, body []byte, out any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.name+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	a, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, 8<<20))
	if err != nil {
		return fmt.Errorf("reading the answer of the %s: %w", c.name, err)
	}
	if a.StatusCode != http.StatusOK {
		var e callError
		if json.Unmarshal(b, &e) != nil || e.Error == "" {
			e.Error = fmt.Sprintf("%s answered %s", c.name, a.Status)
		}
		return errors.New(e.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}
