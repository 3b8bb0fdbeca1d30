package discover

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// bodyTimeout bounds how long a worker may take to send its registration.
const bodyTimeout = 5 * time.Second

// refused is why a registration was not taken. Its reason is a label of metrics, one of reasons.
type refused struct {
	status  int
	reason  string
	message string
}

func refuse(status int, reason, message string) *refused {
	return &refused{status: status, reason: reason, message: message}
}

// reasons are all that a registration is refused for.
func reasons() []string {
	return []string{"unauthorized", "too_many_failures", "bad_name", "bad_body", "bad_url", "bad_worker", "unresolved", "not_allowed", "held", "taken", "full", "unknown", "not_found"}
}

// Door is where workers register: PUT /v1/workers/NAME registers and renews, DELETE leaves.
type Door struct {
	sources *Sources
	tokens  *tokens
	allow   allowList
	access  config.WorkerAccess
	keep    keep

	mu       sync.Mutex
	book     *book
	patience patience
	refusals map[string]float64
	renewed  float64
	changed  chan struct{}
}

func newDoor(s *Sources, r config.Registration, dir string) (*Door, error) {
	nets, err := parseAllow(r.Allow)
	if err != nil {
		return nil, err
	}
	t, err := openTokens(&r, s.log)
	if err != nil {
		return nil, err
	}
	if r.Lease <= 0 {
		r.Lease = 30 * time.Second
	}
	if r.MaxWorkers <= 0 {
		r.MaxWorkers = 256
	}
	d := &Door{
		sources: s, tokens: t, access: r.Access(), keep: keep{dir: dir}, book: newBook(r.MaxWorkers, r.Lease), refusals: map[string]float64{},
		changed: make(chan struct{}, 1),
		allow: allowList{nets: nets, lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}},
	}
	d.recall(time.Now())
	return d, nil
}

// ServeHTTP takes one registration, renewal or farewell.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	by, no := d.admit(r)
	if no == nil {
		no = d.serve(w, r, by)
	}
	if no == nil {
		return
	}
	d.mu.Lock()
	d.refusals[no.reason]++
	d.mu.Unlock()
	e := &openai.Error{Status: no.status, Type: kindOfError(no.status), Code: no.reason, Message: no.message, NoRetry: no.status < 429}
	if no.status == http.StatusTooManyRequests || no.status == http.StatusServiceUnavailable {
		e.RetryAfter = refill
	}
	relay.WriteError(w, e)
}

func kindOfError(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return openai.TypeAuthentication
	case http.StatusForbidden:
		return openai.TypePermission
	case http.StatusTooManyRequests:
		return openai.TypeRateLimit
	case http.StatusServiceUnavailable:
		return openai.TypeUnavailable
	}
	return openai.TypeInvalidRequest
}

// admit asks for the token before anything else is looked at. The right one always opens: a neighbour with a wrong one
// must not cost a worker its lease.
func (d *Door) admit(r *http.Request) (owner, *refused) {
	now := time.Now()
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if ok {
		if by, ok := d.tokens.owner(token, now); ok {
			return by, nil
		}
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address for what is none
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.patience.fail(from.Addr(), now) {
		return owner{}, refuse(http.StatusTooManyRequests, "too_many_failures", "too many wrong tokens from this address: wait, and check the token")
	}
	return owner{}, refuse(http.StatusUnauthorized, "unauthorized", "send Authorization: Bearer TOKEN with a token whose hash registration.tokens or token_file holds")
}

func (d *Door) serve(w http.ResponseWriter, r *http.Request, by owner) *refused {
	name, ok := strings.CutPrefix(r.URL.Path, "/v1/workers/")
	if !ok || r.Method != http.MethodPut && r.Method != http.MethodDelete {
		return refuse(http.StatusNotFound, "not_found", "PUT or DELETE /v1/workers/NAME")
	}
	if name == "" || !plain(name) {
		return refuse(http.StatusBadRequest, "bad_name", "a worker's name has letters, digits, '.', '_' and '-', at most 63 of them")
	}
	if r.Method == http.MethodDelete {
		return d.leave(w, name, by)
	}
	body, e := relay.ReadBody(w, r, maxBody, bodyTimeout)
	if e != nil {
		return refuse(e.Status, "bad_body", e.Message)
	}
	reg, err := DecodeRegistration(body)
	if err != nil {
		return refuse(http.StatusBadRequest, "bad_body", err.Error())
	}
	return d.register(r.Context(), w, reg.worker(name), by)
}

// register checks a worker and gives it a lease.
func (d *Door) register(ctx context.Context, w http.ResponseWriter, wk Worker, by owner) *refused {
	d.mu.Lock()
	last := ""
	if l := d.book.leases[wk.Name]; l != nil {
		last = l.worker.URL
	}
	d.mu.Unlock()
	if no := d.allow.pin(ctx, &wk, last); no != nil {
		return no
	}
	for _, p := range Check([]Worker{wk}) {
		_, field, _ := strings.Cut(p.Path, "].")
		return refuse(http.StatusBadRequest, "bad_worker", field+": "+p.Reason+": "+p.Hint)
	}
	if k, ok := d.sources.held(Registered, &wk); ok {
		return refuse(http.StatusConflict, "held", "a worker of source "+k.String()+" has this name or URL, and is not replaced: choose another name, or take it out there")
	}
	d.mu.Lock()
	changed, no := d.book.put(wk, by, time.Now())
	if no != nil {
		d.mu.Unlock()
		return no
	}
	d.renewed++
	term := d.book.term
	d.publish(changed)
	d.mu.Unlock()
	if changed {
		d.sources.log.Info("worker registered", telemetry.KeyWorker, wk.Name, "url", wk.URL, "lease", term)
	}
	answer(w, Lease{Name: wk.Name, URL: wk.URL, LeaseSeconds: term.Seconds(), RenewSeconds: term.Seconds() / 3})
	return nil
}

func (d *Door) leave(w http.ResponseWriter, name string, by owner) *refused {
	d.mu.Lock()
	no := d.book.leave(name, by)
	if no == nil {
		d.publish(true)
	}
	d.mu.Unlock()
	if no != nil {
		return no
	}
	d.sources.log.Info("worker leaves", telemetry.KeyWorker, name)
	answer(w, map[string]string{"name": name, "state": "leaving: its answers finish"})
	return nil
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a caller that has left needs no answer
}

// workers are those in the book, with what registration has sent to each. A worker cannot name files of this machine, and
// credentials are not kept on disk with the book.
func (d *Door) workers() []Worker {
	ws := d.book.workers()
	if !d.access.Empty() {
		for i := range ws {
			ws[i].SetAccess(d.access)
		}
	}
	return ws
}

// publish tells what the book holds, under its lock so that no older list comes later.
func (d *Door) publish(changed bool) {
	if changed {
		d.sources.put(Registered, d.workers())
	}
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// run ends leases when their time is over, and keeps the book on disk.
func (d *Door) run(ctx context.Context) {
	var next time.Time
	for {
		d.mu.Lock()
		gone := d.book.tick(time.Now(), next)
		if len(gone) > 0 {
			d.sources.put(Registered, d.workers())
		}
		next = d.book.next()
		entries := d.book.entries()
		d.mu.Unlock()
		for _, name := range gone {
			d.sources.log.Warn("worker gone: nobody has renewed its lease", telemetry.KeyWorker, name)
		}
		if err := d.keep.save(entries); err != nil {
			d.sources.log.Warn("registered workers not kept on disk", telemetry.Err(err))
		}
		if !d.wait(ctx, next) {
			return
		}
	}
}

// wait ends at the time, or when the book has changed; false when ctx ends.
func (d *Door) wait(ctx context.Context, until time.Time) bool {
	var due <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-d.changed:
	case <-due:
	}
	return true
}

// recall gives the workers of the last life one lease each, so that a restart does not empty the zone until each has
// renewed. What is no longer allowed stays out.
func (d *Door) recall(now time.Time) {
	entries, err := d.keep.load()
	if err != nil {
		d.sources.log.Warn("registered workers of the last life cannot be read, waiting for them to register", telemetry.Err(err))
	}
	for _, e := range entries {
		w, by, ok := e.worker()
		if !ok || !d.tokens.knows(by) || d.allow.pin(context.Background(), &w, "") != nil || len(Check([]Worker{w})) > 0 {
			continue
		}
		if _, held := d.sources.held(Registered, &w); !held {
			_, _ = d.book.put(w, by, now) // one that clashes registers again and is told why
		}
	}
	d.publish(len(d.book.leases) > 0)
}
