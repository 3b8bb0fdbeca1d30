package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/backoff"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// Headers of a delivery.
const (
	HeaderSignature = "Spillway-Signature"
	HeaderEvent     = "Spillway-Event"
	HeaderDelivery  = "Spillway-Delivery"
)

// Endpoint is one receiver.
type Endpoint struct {
	// Name is its name in metrics and logs, without what the URL may keep secret.
	Name string
	URL  string
	// SecretFile has the secret of its signatures. It is read for each delivery, so that a new one takes effect at once.
	SecretFile string
	// Events are the types that it gets; empty: all.
	Events []string
}

// Sender sends events to endpoints.
type Sender struct {
	node      string
	log       *slog.Logger
	client    *http.Client
	endpoints []*endpointQueue
}

// endpointQueue is an endpoint with the events that wait for it.
type endpointQueue struct {
	Endpoint
	waiting   chan Event
	delivered atomic.Uint64
	failed    atomic.Uint64 // deliveries that were tried again, or were the last
	dropped   atomic.Uint64 // events that were never delivered
}

// NewSender returns a sender. transport may be nil.
func NewSender(node string, endpoints []Endpoint, transport http.RoundTripper, log *slog.Logger) *Sender {
	s := &Sender{node: node, log: telemetry.LoggerOrDiscard(log)}
	s.client = &http.Client{
		Timeout: sendTimeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the signed body goes to the named receiver only
	}
	for _, e := range endpoints {
		s.endpoints = append(s.endpoints, &endpointQueue{Endpoint: e, waiting: make(chan Event, maxWaiting)})
	}
	return s
}

// AddEvent queues an event for every endpoint that gets its type. It never blocks.
func (s *Sender) AddEvent(e Event) {
	e.Node = s.node
	for _, q := range s.endpoints {
		if len(q.Events) > 0 && !slices.Contains(q.Events, e.Type) {
			continue
		}
		select {
		case q.waiting <- e:
		default:
			q.dropped.Add(1)
			s.log.Warn("a notification was dropped: too many wait for the endpoint", "endpoint", q.Name, "event", e.Type, "subject", e.Subject)
		}
	}
}

// Run sends until ctx ends.
func (s *Sender) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, q := range s.endpoints {
		all.Go(func() { s.sendQueue(ctx, q) })
	}
	all.Wait()
	s.client.CloseIdleConnections()
}

func (s *Sender) sendQueue(ctx context.Context, q *endpointQueue) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-q.waiting:
			s.sendWithRetries(ctx, q, &e)
		}
	}
}

// sendWithRetries sends one event until it is delivered, refused for good, or tried maxDeliveries times.
func (s *Sender) sendWithRetries(ctx context.Context, q *endpointQueue, e *Event) {
	for try := 1; ; try++ {
		err := s.deliver(ctx, &q.Endpoint, e)
		if err == nil {
			q.delivered.Add(1)
			return
		}
		q.failed.Add(1)
		if refused := (*refusedError)(nil); try == maxDeliveries || errors.As(err, &refused) && refused.isFinal() {
			q.dropped.Add(1)
			s.log.Warn("a notification could not be delivered and is given up", "endpoint", q.Name, "event", e.Type, "subject", e.Subject, "deliveries", try, telemetry.ErrorAttr(err))
			return
		}
		if try == 1 {
			s.log.Warn("a notification could not be delivered; it is tried again", "endpoint", q.Name, "event", e.Type, "subject", e.Subject, telemetry.ErrorAttr(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff.DelayAfter(firstRetry, longestRetry, try)):
		}
	}
}

// refusedError is a response that is no success.
type refusedError struct{ status int }

func (e *refusedError) Error() string {
	return fmt.Sprintf("the receiver responded with status %d", e.status)
}

// isFinal reports whether another delivery has no chance: 400 to 499, except a timeout and too many requests.
func (e *refusedError) isFinal() bool {
	return e.status/100 == 4 && e.status != http.StatusRequestTimeout && e.status != http.StatusTooManyRequests
}

// deliver sends an event once.
func (s *Sender) deliver(ctx context.Context, to *Endpoint, e *Event) error {
	secret, err := ReadSecret(to.SecretFile)
	if err != nil {
		return err
	}
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL of the endpoint is malformed")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "spillway")
	req.Header.Set(HeaderEvent, e.Type)
	req.Header.Set(HeaderDelivery, e.ID)
	req.Header.Set(HeaderSignature, SignBody(secret, body, time.Now()))
	resp, err := s.client.Do(req)
	if err != nil {
		return hideURL(err)
	}
	defer func() { _ = resp.Body.Close() }()       // only read
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection is used again
	if resp.StatusCode/100 != 2 {
		return &refusedError{resp.StatusCode}
	}
	return nil
}

// TestResult is the result of one delivery of a test event.
type TestResult struct {
	Endpoint string
	Took     time.Duration
	Err      error
}

// SendTest sends an event once, without retries, to the endpoint with this name, or to all when it is empty, and waits for the
// results.
func (s *Sender) SendTest(ctx context.Context, e Event, name string) []TestResult {
	var to []*endpointQueue
	for _, q := range s.endpoints {
		if name == "" || q.Name == name {
			to = append(to, q)
		}
	}
	out := make([]TestResult, len(to))
	var all sync.WaitGroup
	for i, q := range to {
		all.Go(func() {
			start := time.Now()
			err := s.deliver(ctx, &q.Endpoint, &e)
			out[i] = TestResult{q.Name, time.Since(start), err}
		})
	}
	all.Wait()
	return out
}

// hideURL removes the URL from an error: its path is often a secret.
func hideURL(err error) error {
	if wrapped := errors.Unwrap(err); wrapped != nil {
		return wrapped
	}
	return err
}

// ReadSecret reads the secret of signatures.
func ReadSecret(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading secret_file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+2))
	if err != nil {
		return nil, fmt.Errorf("reading secret_file: %w", err)
	}
	b = bytes.TrimRight(b, "\r\n")
	if len(b) < minSecretBytes || len(b) > maxSecretBytes {
		return nil, fmt.Errorf("the secret in %s has %d bytes: use %d to %d, such as the output of `openssl rand -hex 32`", file, len(b), minSecretBytes, maxSecretBytes)
	}
	return b, nil
}

var (
	descNotifications = prometheus.NewDesc("spillway_global_notifications_total",
		"Notifications by endpoint and result: delivered, failed (one delivery; it is tried again unless the receiver refused it), dropped (never delivered).", []string{"endpoint", "result"}, nil)
	descWaiting = prometheus.NewDesc("spillway_global_notifications_waiting", "Notifications that wait for their endpoint.", []string{"endpoint"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Sender) Describe(out chan<- *prometheus.Desc) { out <- descNotifications; out <- descWaiting }

// Collect implements prometheus.Collector.
func (s *Sender) Collect(out chan<- prometheus.Metric) {
	for _, q := range s.endpoints {
		for result, n := range map[string]uint64{"delivered": q.delivered.Load(), "failed": q.failed.Load(), "dropped": q.dropped.Load()} {
			out <- prometheus.MustNewConstMetric(descNotifications, prometheus.CounterValue, float64(n), q.Name, result)
		}
		out <- prometheus.MustNewConstMetric(descWaiting, prometheus.GaugeValue, float64(len(q.waiting)), q.Name)
	}
}
