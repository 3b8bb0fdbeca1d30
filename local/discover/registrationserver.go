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
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// bodyTimeout bounds the time to receive a registration.
const bodyTimeout = 5 * time.Second

// rejection is the reason why a registration was refused. Its reason is a label of metrics, one of rejectionReasons.
type rejection struct {
	status  int
	reason  string
	message string
}

func newRejection(status int, reason, message string) *rejection {
	return &rejection{status: status, reason: reason, message: message}
}

// rejectionReasons lists the reasons for refusing a registration.
func rejectionReasons() []string {
	return []string{"unauthorized", "too_many_failures", "bad_name", "bad_body", "bad_url", "bad_worker", "unresolved", "not_allowed", "held", "taken", "full", "unknown", "not_found"}
}

// RegistrationServer is the HTTP handler for registrations: PUT /v1/workers/NAME registers and renews, DELETE
// unregisters.
type RegistrationServer struct {
	sources *Sources
	tokens  *tokenSet
	allow   allowList
	access  config.WorkerAccess
	store   leaseStore

	mu            sync.Mutex
	leases        *leaseTable
	failures      failureLimiter
	rejections    map[string]float64
	registered    float64
	leasesChanged chan struct{}
}

func newRegistrationServer(s *Sources, r config.Registration, dir string) (*RegistrationServer, error) {
	nets, err := parseAllowList(r.Allow)
	if err != nil {
		return nil, err
	}
	t, err := openTokenSet(&r, s.log)
	if err != nil {
		return nil, err
	}
	if r.Lease <= 0 {
		r.Lease = 30 * time.Second
	}
	if r.MaxWorkers <= 0 {
		r.MaxWorkers = 256
	}
	d := &RegistrationServer{
		sources: s, tokens: t, access: r.Access(), store: leaseStore{dir: dir}, leases: newLeaseTable(r.MaxWorkers, r.Lease), rejections: map[string]float64{},
		leasesChanged: make(chan struct{}, 1),
		allow: allowList{nets: nets, lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}},
	}
	d.restoreLeases(time.Now())
	return d, nil
}

// ServeHTTP handles one registration, renewal or removal.
func (d *RegistrationServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	by, no := d.authenticateRequest(r)
	if no == nil {
		no = d.handleRequest(w, r, by)
	}
	if no == nil {
		return
	}
	d.mu.Lock()
	d.rejections[no.reason]++
	d.mu.Unlock()
	e := &openai.Error{Status: no.status, Type: errorTypeOf(no.status), Code: no.reason, Message: no.message, NoRetry: no.status < 429}
	if no.status == http.StatusTooManyRequests || no.status == http.StatusServiceUnavailable {
		e.RetryAfter = failureRefill
	}
	forward.WriteError(w, e)
}

func errorTypeOf(status int) string {
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

// authenticateRequest checks the token before anything else. A valid token is accepted even from an address with too
// many failures: another client there with a wrong token must not cost a worker its lease.
func (d *RegistrationServer) authenticateRequest(r *http.Request) (tokenHash, *rejection) {
	now := time.Now()
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if ok {
		if by, ok := d.tokens.matchToken(token, now); ok {
			return by, nil
		}
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address if it is invalid
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.failures.allowFailure(from.Addr(), now) {
		return tokenHash{}, newRejection(http.StatusTooManyRequests, "too_many_failures", "too many wrong tokens from this address: wait, and check the token")
	}
	return tokenHash{}, newRejection(http.StatusUnauthorized, "unauthorized", "send Authorization: Bearer TOKEN with a token whose hash registration.tokens or token_file holds")
}

func (d *RegistrationServer) handleRequest(w http.ResponseWriter, r *http.Request, by tokenHash) *rejection {
	name, ok := strings.CutPrefix(r.URL.Path, "/v1/workers/")
	if !ok || r.Method != http.MethodPut && r.Method != http.MethodDelete {
		return newRejection(http.StatusNotFound, "not_found", "PUT or DELETE /v1/workers/NAME")
	}
	if name == "" || !isPlainName(name) {
		return newRejection(http.StatusBadRequest, "bad_name", "a worker's name has letters, digits, '.', '_' and '-', at most 63 of them")
	}
	if r.Method == http.MethodDelete {
		return d.unregisterWorker(w, name, by)
	}
	body, e := forward.ReadBody(w, r, maxBodyBytes, bodyTimeout)
	if e != nil {
		return newRejection(e.Status, "bad_body", e.Message)
	}
	reg, err := DecodeRegistration(body)
	if err != nil {
		return newRejection(http.StatusBadRequest, "bad_body", err.Error())
	}
	return d.registerWorker(r.Context(), w, reg.toWorker(name), by)
}

// registerWorker checks a worker and grants a lease.
func (d *RegistrationServer) registerWorker(ctx context.Context, w http.ResponseWriter, wk Worker, by tokenHash) *rejection {
	d.mu.Lock()
	last := ""
	if l := d.leases.leases[wk.Name]; l != nil {
		last = l.worker.URL
	}
	d.mu.Unlock()
	if no := d.allow.pinURLs(ctx, &wk, last); no != nil {
		return no
	}
	for _, p := range CheckWorkers([]Worker{wk}) {
		_, field, _ := strings.Cut(p.Path, "].")
		return newRejection(http.StatusBadRequest, "bad_worker", field+": "+p.Reason+": "+p.Hint)
	}
	if k, ok := d.sources.strongerHolder(SourceRegistered, &wk); ok {
		return newRejection(http.StatusConflict, "held", "a worker of source "+k.String()+" has this name or URL, and is not replaced: choose another name, or remove that worker there")
	}
	d.mu.Lock()
	changed, no := d.leases.putLease(wk, by, time.Now())
	if no != nil {
		d.mu.Unlock()
		return no
	}
	d.registered++
	term := d.leases.term
	d.publishLeases(changed)
	d.mu.Unlock()
	if changed {
		d.sources.log.Info("worker registered", telemetry.KeyWorker, wk.Name, "url", wk.URL, "lease", term)
	}
	writeJSON(w, RegistrationReply{Name: wk.Name, URL: wk.URL, LeaseSeconds: term.Seconds(), RenewSeconds: term.Seconds() / 3})
	return nil
}

func (d *RegistrationServer) unregisterWorker(w http.ResponseWriter, name string, by tokenHash) *rejection {
	d.mu.Lock()
	no := d.leases.endLease(name, by)
	if no == nil {
		d.publishLeases(true)
	}
	d.mu.Unlock()
	if no != nil {
		return no
	}
	d.sources.log.Info("worker leaves", telemetry.KeyWorker, name)
	writeJSON(w, map[string]string{"name": name, "state": "leaving: its answers finish"})
	return nil
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}

// leasedWorkers lists the leased workers, with the access settings of registration. A worker cannot name files of
// this machine, and credentials are not persisted with the leases.
func (d *RegistrationServer) leasedWorkers() []Worker {
	ws := d.leases.leasedWorkers()
	if !d.access.IsEmpty() {
		for i := range ws {
			ws[i].SetAccess(d.access)
		}
	}
	return ws
}

// publishLeases publishes the leased workers, under the lock so that an older list is never published later.
func (d *RegistrationServer) publishLeases(changed bool) {
	if changed {
		d.sources.setWorkers(SourceRegistered, d.leasedWorkers())
	}
	select {
	case d.leasesChanged <- struct{}{}:
	default:
	}
}

// runLeases ends expired leases and persists the lease table.
func (d *RegistrationServer) runLeases(ctx context.Context) {
	var next time.Time
	for {
		d.mu.Lock()
		gone := d.leases.expireDue(time.Now(), next)
		if len(gone) > 0 {
			d.sources.setWorkers(SourceRegistered, d.leasedWorkers())
		}
		next = d.leases.nextExpiry()
		entries := d.leases.storedLeases()
		d.mu.Unlock()
		for _, name := range gone {
			d.sources.log.Warn("worker removed: its lease was not renewed", telemetry.KeyWorker, name)
		}
		if err := d.store.saveLeases(entries); err != nil {
			d.sources.log.Warn("persisting registered workers failed", telemetry.ErrorAttr(err))
		}
		if !d.waitForChange(ctx, next) {
			return
		}
	}
}

// waitForChange returns at the time, or when the lease table has changed; false when ctx ends.
func (d *RegistrationServer) waitForChange(ctx context.Context, until time.Time) bool {
	var due <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-d.leasesChanged:
	case <-due:
	}
	return true
}

// restoreLeases gives the persisted workers one lease each, so that a restart does not empty the zone until they
// renew. Workers that are no longer allowed are dropped.
func (d *RegistrationServer) restoreLeases(now time.Time) {
	entries, err := d.store.loadLeases()
	if err != nil {
		d.sources.log.Warn("persisted registered workers cannot be read: waiting for them to register again", telemetry.ErrorAttr(err))
	}
	for _, e := range entries {
		w, by, ok := e.restoreWorker()
		if !ok || !d.tokens.hasHash(by) || d.allow.pinURLs(context.Background(), &w, "") != nil || len(CheckWorkers([]Worker{w})) > 0 {
			continue
		}
		if _, held := d.sources.strongerHolder(SourceRegistered, &w); !held {
			_, _ = d.leases.putLease(w, by, now) // one that conflicts registers again and gets the reason
		}
	}
	d.publishLeases(len(d.leases.leases) > 0)
}
