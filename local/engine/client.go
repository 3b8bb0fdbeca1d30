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
	"time"
)

// Client calls workers over HTTP. All workers of a zone share one, which bounds the number of concurrent calls.
type Client struct {
	httpClient *http.Client
	slots      chan struct{}
	buffers    sync.Pool // of *bytes.Buffer: a metrics page is large and is read every second
}

// NewClient returns a client that makes at most atOnce calls at a time. hc must not follow redirects: a worker must
// not direct calls to other addresses.
func NewClient(hc *http.Client, atOnce int) *Client {
	return &Client{httpClient: hc, slots: make(chan struct{}, max(atOnce, 1)), buffers: sync.Pool{New: func() any { return new(bytes.Buffer) }}}
}

// StatusError is an answer that is not 200.
type StatusError struct {
	Method string
	Path   string
	Status int
	Body   string // its first 512 bytes
}

func (e *StatusError) Error() string { return fmt.Sprintf("asking %s: status %d", e.Path, e.Status) }

// isMissingPage reports whether the worker has no such page: it is up, and the page is disabled or not part of this
// engine.
func isMissingPage(err error) bool {
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

// parseBaseURL checks a worker's URL, "http://host:port".
func parseBaseURL(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("worker URL %q is not of the form http://host:port", base)
	}
	return u, nil
}

// getPage gets a page and passes its bytes to read, which must not keep them.
func (c *Client) getPage(ctx context.Context, address string, limit int64, read func([]byte) error) error {
	return c.sendQueued(ctx, http.MethodGet, address, nil, limit, func(_ http.Header, b []byte) error { return read(b) })
}

// postCommand sends a command to the worker. It has no time limit of its own.
func (c *Client) postCommand(ctx context.Context, address string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding a command: %w", err)
	}
	return c.sendRequest(ctx, http.MethodPost, address, text, maxSmallPageBytes, func(http.Header, []byte) error { return nil })
}

// sendQueued sends one request when fewer than atOnce are in flight.
func (c *Client) sendQueued(ctx context.Context, method, address string, body []byte, limit int64, read func(http.Header, []byte) error) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for a free call slot: %w", ctx.Err())
	}
	return c.sendRequest(ctx, method, address, body, limit, read)
}

// sendRequest sends one request and passes the answer to read. Errors name the path and not the host, which the
// caller knows.
func (c *Client) sendRequest(ctx context.Context, method, address string, body []byte, limit int64, read func(http.Header, []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking a worker: %w", err)
	}
	path := req.URL.Path
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4, application/json, */*;q=0.1")
	resp, err := c.httpClient.Do(req)
	if err != nil {
		return &CallError{Method: method, Path: path, Err: unwrapURLError(err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // an unreadable body is left out
		return &StatusError{Method: method, Path: path, Status: resp.StatusCode, Body: string(text)}
	}
	buf := c.buffers.Get().(*bytes.Buffer)
	defer c.buffers.Put(buf)
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

// unwrapURLError removes the URL from an HTTP client's error.
func unwrapURLError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// workerServer is common to all dialects: the worker's addresses and the client.
type workerServer struct {
	baseURL    string
	metricsURL string // address of the metrics page, if configured
	client     *Client
}

func (s *workerServer) urlFor(path string) string { return s.baseURL + path }

// metricsURLOr returns the configured metrics page, or the engine's own.
func (s *workerServer) metricsURLOr(path string) string {
	if s.metricsURL != "" {
		return s.metricsURL
	}
	return s.urlFor(path)
}

// checkPage gets a page and checks its status only.
func (s *workerServer) checkPage(ctx context.Context, path string) error {
	return s.client.getPage(ctx, s.urlFor(path), maxSmallPageBytes, func([]byte) error { return nil })
}

// checkAnyPage tries pages in turn until one answers 200. It goes on only after a page that does not exist.
func (s *workerServer) checkAnyPage(ctx context.Context, paths ...string) error {
	var err error
	for _, p := range paths {
		if err = s.checkPage(ctx, p); !isMissingPage(err) {
			return err
		}
	}
	return err
}

// pageParser parses a page on top of a last reading. ok is false when the page contains nothing of its engine.
type pageParser func(text []byte, last Reading, now time.Time) (next Reading, ok bool)

// scrapePage reads a metrics page. On an error it returns the last reading unchanged.
func (s *workerServer) scrapePage(ctx context.Context, address string, last Reading, parse pageParser) (Reading, error) {
	next := last
	err := s.client.getPage(ctx, address, MaxPageBytes, func(b []byte) error {
		r, ok := parse(b, last, time.Now())
		if !ok {
			return ErrUnknownPage
		}
		next = r
		return nil
	})
	return next, err
}
