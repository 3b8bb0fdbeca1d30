package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
)

// Client asks workers over HTTP. One is shared by all workers of a zone, so that only so many questions are under way.
type Client struct {
	http  *http.Client
	turns chan struct{}
	pages sync.Pool // of *bytes.Buffer: a metrics page is large and comes every second
}

// NewClient returns a client that asks at most so many questions at one time. hc must not follow redirects: a worker
// speaks for itself only.
func NewClient(hc *http.Client, atOnce int) *Client {
	return &Client{http: hc, turns: make(chan struct{}, max(atOnce, 1)), pages: sync.Pool{New: func() any { return new(bytes.Buffer) }}}
}

// StatusError is an answer that is not 200.
type StatusError struct {
	Method string
	Path   string
	Status int
	Body   string // its first 512 bytes
}

func (e *StatusError) Error() string { return fmt.Sprintf("asking %s: status %d", e.Path, e.Status) }

// missing says that the worker has no such page: it lives, and the page is off or not of this engine.
func missing(err error) bool {
	var s *StatusError
	if !errors.As(err, &s) {
		return false
	}
	switch s.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusForbidden, http.StatusUnauthorized:
		return true
	}
	return false
}

// parseBase checks a worker's URL, "http://host:port".
func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("worker URL %q is not of the form http://host:port", base)
	}
	return u, nil
}

// page asks for a page and gives its bytes to read, which must not keep them.
func (c *Client) page(ctx context.Context, address string, limit int64, read func([]byte) error) error {
	return c.do(ctx, http.MethodGet, address, nil, limit, func(_ http.Header, b []byte) error { return read(b) })
}

// command has the worker do something, however long that takes.
func (c *Client) command(ctx context.Context, address string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("telling a worker: %w", err)
	}
	return c.exchange(ctx, http.MethodPost, address, text, maxSmall, func(http.Header, []byte) error { return nil })
}

// do asks one question when its turn has come.
func (c *Client) do(ctx context.Context, method, address string, body []byte, limit int64, read func(http.Header, []byte) error) error {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for a turn to ask: %w", ctx.Err())
	}
	return c.exchange(ctx, method, address, body, limit, read)
}

// exchange sends one request and gives the answer to read. Errors name the path and not the host, which the caller
// knows.
func (c *Client) exchange(ctx context.Context, method, address string, body []byte, limit int64, read func(http.Header, []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking a worker: %w", err)
	}
	path := req.URL.Path
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4, application/json, */*;q=0.1")
	resp, err := c.http.Do(req)
	if err != nil {
		return &CallError{Method: method, Path: path, Err: unwrapURL(err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // what cannot be read is not told
		return &StatusError{Method: method, Path: path, Status: resp.StatusCode, Body: string(text)}
	}
	buf := c.pages.Get().(*bytes.Buffer)
	defer c.pages.Put(buf)
	buf.Reset()
	if n, err := buf.ReadFrom(io.LimitReader(resp.Body, limit+1)); err != nil {
		return &CallError{Method: method, Path: path, Err: err}
	} else if n > limit {
		return &CallError{Method: method, Path: path, Err: fmt.Errorf("%w of %d bytes", ErrTooLarge, limit)}
	}
	if err := read(resp.Header, buf.Bytes()); err != nil {
		return &CallError{Method: method, Path: path, Err: fmt.Errorf("the answer is not as expected: %w", err)}
	}
	return nil
}

// unwrapURL takes the address out of an HTTP client's error.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// server is what every dialect has: where its worker listens and how it is asked.
type server struct {
	base    string
	metrics string // address of the metrics page, where it is told
	client  *Client
}

func (s *server) at(path string) string { return s.base + path }

// metricsAt is the configured metrics page, or the engine's own.
func (s *server) metricsAt(path string) string {
	if s.metrics != "" {
		return s.metrics
	}
	return s.at(path)
}

// ok asks for a page for nothing but its status.
func (s *server) ok(ctx context.Context, path string) error {
	return s.client.page(ctx, s.at(path), maxSmall, func([]byte) error { return nil })
}

// aliveAt tries pages in turn until one answers 200; only a page that is not there leads on to the next.
func (s *server) aliveAt(ctx context.Context, paths ...string) error {
	var err error
	for _, p := range paths {
		if err = s.ok(ctx, p); !missing(err) {
			return err
		}
	}
	return err
}
