package local

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/credential"
	"github.com/spillway-lb/spillway/local/discover"
)

// credentialsEvery is how often the files of credentials are read again.
const credentialsEvery = time.Second

// origin is where a worker takes calls, with its port written out.
type origin struct{ scheme, hostport string }

// accessTable holds what workers require of their callers, by where they are called. Every call to such a place carries it,
// whatever the call is for.
type accessTable struct {
	by atomic.Pointer[map[origin]*credential.Credential] // nil while no worker requires anything

	mu   sync.Mutex
	held map[string]*credential.Credential // by their entry, so that workers with the same share one
}

// set takes what the workers' entries require; true when that of an origin has changed.
func (t *accessTable) set(list []discover.Worker) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	by, held := map[origin]*credential.Credential{}, map[string]*credential.Credential{}
	for i := range list {
		a := list[i].Access()
		if a.Empty() {
			continue
		}
		key, _ := json.Marshal(&a) // texts and maps of texts
		c := held[string(key)]
		if c == nil {
			if c = t.held[string(key)]; c == nil {
				c = credential.New(a)
			}
			held[string(key)] = c
		}
		for _, at := range []string{list[i].URL, list[i].GRPC, list[i].Metrics} {
			o, ok := originOf(at)
			if _, taken := by[o]; ok && !taken {
				by[o] = c
			}
		}
	}
	t.held = held
	old := t.by.Load()
	switch {
	case len(by) == 0:
		t.by.Store(nil)
		return old != nil
	case old != nil && maps.Equal(by, *old):
		return false
	}
	t.by.Store(&by)
	return true
}

func originOf(s string) (origin, bool) {
	u, err := url.Parse(s)
	if err != nil || s == "" || u.Host == "" {
		return origin{}, false
	}
	return origin{u.Scheme, hostPortOf(u)}, true
}

func hostPortOf(u *url.URL) string {
	if u.Scheme == "http" && u.Port() == "" {
		return u.Hostname() + ":80"
	}
	return withPort(u)
}

// at is what is required at an address; nil for nothing.
func (t *accessTable) at(scheme, hostport string) *credential.Value {
	by := t.by.Load()
	if by == nil {
		return nil
	}
	c := (*by)[origin{scheme, hostport}]
	if c == nil {
		return nil
	}
	return c.Value()
}

// admit adds to a request what the worker requires; the caller's request stays as it is. A credential that was never read is
// an error, and nothing is sent.
func (t *accessTable) admit(r *http.Request) (*http.Request, error) {
	if t.by.Load() == nil {
		return r, nil
	}
	v := t.at(r.URL.Scheme, hostPortOf(r.URL))
	if v == nil {
		return r, nil
	}
	if v.Err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a transport closes it, also where it sends nothing
		}
		return nil, v.Err
	}
	r = r.WithContext(r.Context()) // a copy
	header := make(http.Header, len(r.Header)+len(v.Header))
	maps.Copy(header, r.Header)
	maps.Copy(header, v.Header)
	r.Header = header
	return r, nil
}

// refresh reads every credential again and reports what changed.
func (t *accessTable) refresh() (out []credential.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.held {
		out = append(out, c.Refresh())
	}
	return out
}

// watchCredentials reads the files of credentials again until the agent stops.
func (a *Agent) watchCredentials() {
	tick := time.NewTicker(credentialsEvery)
	defer tick.Stop()
	for {
		a.readCredentials(time.Now())
		select {
		case <-a.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readCredentials puts changed files in force, and logs what is wrong with them: never what they hold.
func (a *Agent) readCredentials(now time.Time) {
	for _, c := range a.names.access.refresh() {
		if c.TLS {
			a.closeIdle() // connections were made with what held before
		}
		if c.Changed {
			a.log.Info("workers' credentials were read again")
		}
		if c.Err != nil {
			if _, ok := a.repeats.Pass("credentials", c.Err.Error(), now); ok {
				a.log.Warn("a worker's credentials cannot be read; the last good ones stay in force", telemetry.Err(c.Err))
			}
		}
		for _, file := range c.Exposed {
			if _, first := a.exposed[file]; !first {
				a.exposed[file] = struct{}{}
				a.log.Warn("a file with a worker's credentials is readable by every user of this machine: chmod 600", "file", file)
			}
		}
	}
}
