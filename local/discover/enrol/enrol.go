package enrol

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/local/discover"
)

const (
	callTimeout = 5 * time.Second
	firstWait   = 500 * time.Millisecond // after a failure; doubles
	maxWait     = 15 * time.Second
	maxAnswer   = 64 << 10
	// minRenew bounds how often a local may have itself asked.
	minRenew = 100 * time.Millisecond
)

// Config of a Client.
type Config struct {
	// Locals are the doors of the zone's local instances, "http://host:port" or "https://host:port".
	Locals []string
	// Name is the worker's, Registration what is said of it.
	Name         string
	Registration discover.Registration
	// Token opens the doors.
	Token string
	// Health is the engine's page that answers 200 once it is up; empty waits for nothing.
	Health string
	// Transport reaches locals and engine.
	Transport http.RoundTripper
	// Say tells a person what happens, a line at a time, from several goroutines.
	Say func(line string)
}

// Client keeps a worker registered.
type Client struct {
	cfg  Config
	http *http.Client
}

// New checks the configuration.
func New(cfg Config) (*Client, error) {
	if len(cfg.Locals) == 0 {
		return nil, errors.New("no local instance named: write --local http://HOST:7404, once for each of the zone")
	}
	for i, l := range cfg.Locals {
		u, err := url.Parse(l)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("--local %q: write scheme, host and port of registration.listen, such as https://10.0.1.11:7404", l)
		}
		cfg.Locals[i] = strings.TrimRight(l, "/")
	}
	if problems := discover.Check([]discover.Worker{{Name: cfg.Name, URL: cfg.Registration.URL, Weight: 1}}); len(problems) > 0 {
		return nil, fmt.Errorf("%s: %s", problems[0].Reason, problems[0].Hint)
	}
	if cfg.Token == "" {
		return nil, errors.New("no token: `spillway config key` makes one; give it here, and its hash to the local instances")
	}
	if cfg.Say == nil {
		cfg.Say = func(string) {}
	}
	// Redirects are not followed: they would carry the token elsewhere.
	return &Client{cfg: cfg, http: &http.Client{
		Transport: cfg.Transport, Timeout: callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Run keeps the worker registered until ctx ends; then it leaves every local that has it.
func (c *Client) Run(ctx context.Context) {
	if !c.await(ctx) {
		return
	}
	var wg sync.WaitGroup
	for _, l := range c.cfg.Locals {
		wg.Go(func() { c.keep(ctx, l) })
	}
	wg.Wait()
}

// await waits until the engine is up; false when ctx ends first.
func (c *Client) await(ctx context.Context) bool {
	if c.cfg.Health == "" {
		return ctx.Err() == nil
	}
	for wait, told := firstWait, false; ; wait = min(2*wait, maxWait/3) {
		err := c.healthy(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			c.cfg.Say("the engine is up")
			return true
		}
		if !told {
			told = true
			c.cfg.Say(fmt.Sprintf("waiting for the engine: %v", err))
		}
		if !pause(ctx, wait) {
			return false
		}
	}
}

func (c *Client) healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.Health, nil)
	if err != nil {
		return fmt.Errorf("health page: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // so that the connection may be used again
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", c.cfg.Health, resp.StatusCode)
	}
	return nil
}

// keep registers with one local and renews until ctx ends.
func (c *Client) keep(ctx context.Context, local string) {
	var (
		in      bool // registered, as far as is known
		trouble string
		wait    time.Duration
	)
	for {
		lease, err := c.call(ctx, http.MethodPut, local)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if trouble != err.Error() {
				trouble = err.Error()
				c.cfg.Say(fmt.Sprintf("%s: not registered, trying again: %v", local, err))
			}
			wait = min(max(2*wait, firstWait), maxWait)
		case !in || trouble != "":
			c.cfg.Say(fmt.Sprintf("%s: registered as %s at %s, lease %gs", local, lease.Name, lease.URL, lease.LeaseSeconds))
			in, trouble = true, ""
		}
		if err == nil {
			wait = 0
		}
		next := wait
		if err == nil {
			next = max(time.Duration(min(lease.RenewSeconds, 3600)*float64(time.Second)), minRenew)
		}
		if !pause(ctx, next) {
			break
		}
	}
	if in {
		c.leave(context.WithoutCancel(ctx), local)
	}
}

func (c *Client) leave(ctx context.Context, local string) {
	if _, err := c.call(ctx, http.MethodDelete, local); err != nil {
		c.cfg.Say(fmt.Sprintf("%s: could not sign off, the lease will end by itself: %v", local, err))
		return
	}
	c.cfg.Say(local + ": signed off")
}

// call says something to a local and reads what it answers.
func (c *Client) call(ctx context.Context, method, local string) (lease discover.Lease, err error) {
	body, err := json.Marshal(c.cfg.Registration)
	if err != nil {
		return lease, fmt.Errorf("writing the registration: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, local+"/v1/workers/"+c.cfg.Name, bytes.NewReader(body))
	if err != nil {
		return lease, err
	}
	req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return lease, unwrapURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return lease, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return lease, refusal(resp.StatusCode, text)
	}
	if err := json.Unmarshal(text, &lease); err != nil {
		return lease, errors.New("the answer is none of a local instance: is this the address of registration.listen?")
	}
	return lease, nil
}

func refusal(status int, text []byte) error {
	var e struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(text, &e) != nil || e.Error.Message == "" {
		return fmt.Errorf("status %d: is this the address of registration.listen?", status)
	}
	return fmt.Errorf("%s (%s)", e.Error.Message, e.Error.Code)
}

// unwrapURL takes the address out of an HTTP client's error: the line has it already.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// pause waits, give or take a tenth; false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(time.Duration(float64(d) * (0.9 + 0.2*rand.Float64())))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
