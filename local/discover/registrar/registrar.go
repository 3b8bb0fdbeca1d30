// Package registrar keeps one worker registered with every local instance of its zone, running next to the engine: it
// waits until the engine is up, registers, renews at a third of the lease, and unregisters at the end. It only
// handles the registration and never the engine's requests.
package registrar

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

	"github.com/spillway-lb/spillway/internal/backoff"
	"github.com/spillway-lb/spillway/local/discover"
)

const (
	callTimeout    = 5 * time.Second
	minRetryWait   = 500 * time.Millisecond // after a failure; doubles
	maxRetryWait   = 15 * time.Second
	maxAnswerBytes = 64 << 10
	// minRenewInterval bounds the rate of renewals that a local instance can request.
	minRenewInterval = 100 * time.Millisecond
)

// Config of a Registrar.
type Config struct {
	// Locals are the registration URLs of the zone's local instances, "http://host:port" or "https://host:port".
	Locals []string
	// Name is the worker's name; Registration is sent with it.
	Name         string
	Registration discover.Registration
	// Token authenticates the registration.
	Token string
	// Health is the engine's page that answers 200 once it is up; empty does not wait.
	Health string
	// Transport connects to local instances and the engine.
	Transport http.RoundTripper
	// Notify receives progress lines for the operator, from several goroutines.
	Notify func(line string)
}

// Registrar keeps a worker registered.
type Registrar struct {
	cfg        Config
	httpClient *http.Client
}

// New checks the configuration.
func New(cfg Config) (*Registrar, error) {
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
	if problems := discover.CheckWorkers([]discover.Worker{{Name: cfg.Name, URL: cfg.Registration.URL, Weight: 1}}); len(problems) > 0 {
		return nil, fmt.Errorf("%s: %s", problems[0].Reason, problems[0].Hint)
	}
	if cfg.Token == "" {
		return nil, errors.New("no token: `spillway config key` makes one; give it here, and its hash to the local instances")
	}
	if cfg.Notify == nil {
		cfg.Notify = func(string) {}
	}
	// Redirects are not followed: they would send the token elsewhere.
	return &Registrar{cfg: cfg, httpClient: &http.Client{
		Transport: cfg.Transport, Timeout: callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Run keeps the worker registered until ctx ends; then it unregisters from every local instance.
func (c *Registrar) Run(ctx context.Context) {
	if !c.waitForEngine(ctx) {
		return
	}
	var wg sync.WaitGroup
	for _, l := range c.cfg.Locals {
		wg.Go(func() { c.keepRegistered(ctx, l) })
	}
	wg.Wait()
}

// waitForEngine waits until the engine is up; false when ctx ends first.
func (c *Registrar) waitForEngine(ctx context.Context) bool {
	if c.cfg.Health == "" {
		return ctx.Err() == nil
	}
	waits := backoff.Doubling{First: minRetryWait, Longest: maxRetryWait / 3}
	for reported := false; ; {
		err := c.checkHealth(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			c.cfg.Notify("the engine is up")
			return true
		}
		if !reported {
			reported = true
			c.cfg.Notify(fmt.Sprintf("waiting for the engine: %v", err))
		}
		if !sleepJittered(ctx, waits.NextDelay()) {
			return false
		}
	}
}

func (c *Registrar) checkHealth(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.Health, nil)
	if err != nil {
		return fmt.Errorf("health page: %w", err)
	}
	resp, err := c.httpClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswerBytes) // so that the connection can be reused
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", c.cfg.Health, resp.StatusCode)
	}
	return nil
}

// keepRegistered registers with one local instance and renews until ctx ends.
func (c *Registrar) keepRegistered(ctx context.Context, local string) {
	var (
		in      bool // registered, according to the last answer
		trouble string
		waits   = backoff.Doubling{First: minRetryWait, Longest: maxRetryWait}
		next    time.Duration
	)
	for {
		lease, err := c.callLocal(ctx, http.MethodPut, local)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if trouble != err.Error() {
				trouble = err.Error()
				c.cfg.Notify(fmt.Sprintf("%s: not registered, trying again: %v", local, err))
			}
			next = waits.NextDelay()
		case !in || trouble != "":
			c.cfg.Notify(fmt.Sprintf("%s: registered as %s at %s, lease %gs", local, lease.Name, lease.URL, lease.LeaseSeconds))
			in, trouble = true, ""
		}
		if err == nil {
			waits.Reset()
			next = max(time.Duration(min(lease.RenewSeconds, 3600)*float64(time.Second)), minRenewInterval)
		}
		if !sleepJittered(ctx, next) {
			break
		}
	}
	if in {
		c.unregisterWorker(context.WithoutCancel(ctx), local)
	}
}

func (c *Registrar) unregisterWorker(ctx context.Context, local string) {
	if _, err := c.callLocal(ctx, http.MethodDelete, local); err != nil {
		c.cfg.Notify(fmt.Sprintf("%s: unregistering failed, the lease will expire: %v", local, err))
		return
	}
	c.cfg.Notify(local + ": unregistered")
}

// callLocal sends a request to a local instance and decodes its answer.
func (c *Registrar) callLocal(ctx context.Context, method, local string) (lease discover.RegistrationReply, err error) {
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
	resp, err := c.httpClient.Do(req)
	if err != nil {
		return lease, unwrapURLError(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return lease, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return lease, parseRejection(resp.StatusCode, text)
	}
	if err := json.Unmarshal(text, &lease); err != nil {
		return lease, errors.New("the answer is not that of a local instance: is this the address of registration.listen?")
	}
	return lease, nil
}

func parseRejection(status int, text []byte) error {
	var e struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(text, &e) != nil || e.Error.Message == "" {
		return fmt.Errorf("status %d: is this the address of registration.listen?", status)
	}
	return fmt.Errorf("%s (%s)", e.Error.Message, e.Error.Code)
}

// unwrapURLError removes the URL from an HTTP client's error: the line contains it already.
func unwrapURLError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// sleepJittered waits for d, randomized by a tenth; false when ctx ends first.
func sleepJittered(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(backoff.SpreadAround(d, 0.1, rand.Float64()))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
