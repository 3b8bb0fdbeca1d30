package local

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/credential"
	"github.com/spillway-lb/spillway/local/discover"
)

// credentialReadInterval is the interval at which credential files are read again.
const credentialReadInterval = time.Second

// workerOrigin is the scheme and address of a worker, with the port always written out.
type workerOrigin struct{ scheme, hostPort string }

// credentialTable holds the credentials that workers require of their callers, by origin. Every call to such an
// origin carries them, for any purpose.
type credentialTable struct {
	byOrigin atomic.Pointer[map[workerOrigin]*credential.Credential] // nil while no worker requires credentials

	mu      sync.Mutex
	byEntry map[string]*credential.Credential // by the JSON of the worker's access entry, so that workers with equal entries share one
}

// setWorkers loads the credentials that the workers' entries require. It returns true when those of an origin
// changed.
func (t *credentialTable) setWorkers(list []discover.Worker) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	by, held := map[workerOrigin]*credential.Credential{}, map[string]*credential.Credential{}
	for i := range list {
		a := list[i].Access()
		if a.IsEmpty() {
			continue
		}
		key, _ := json.Marshal(&a) // cannot fail: only strings and maps of strings
		c := held[string(key)]
		if c == nil {
			if c = t.byEntry[string(key)]; c == nil {
				c = credential.New(a)
			}
			held[string(key)] = c
		}
		for _, at := range []string{list[i].URL, list[i].GRPC, list[i].Metrics} {
			o, ok := parseOrigin(at)
			if _, taken := by[o]; ok && !taken {
				by[o] = c
			}
		}
	}
	t.byEntry = held
	old := t.byOrigin.Load()
	switch {
	case len(by) == 0:
		t.byOrigin.Store(nil)
		return old != nil
	case old != nil && maps.Equal(by, *old):
		return false
	}
	t.byOrigin.Store(&by)
	return true
}

func parseOrigin(s string) (workerOrigin, bool) {
	u, err := url.Parse(s)
	if err != nil || s == "" || u.Host == "" {
		return workerOrigin{}, false
	}
	return workerOrigin{u.Scheme, dialHostPort(u)}, true
}

func dialHostPort(u *url.URL) string {
	if u.Scheme == "http" && u.Port() == "" {
		return u.Hostname() + ":80"
	}
	return tlsHostPort(u)
}

// credentialFor returns the credentials required at an address, or nil for none.
func (t *credentialTable) credentialFor(scheme, hostport string) *credential.Value {
	by := t.byOrigin.Load()
	if by == nil {
		return nil
	}
	c := (*by)[workerOrigin{scheme, hostport}]
	if c == nil {
		return nil
	}
	return c.Value()
}

// addCredentials returns a copy of r with the headers that the worker requires; r itself is not changed. A credential
// that could not be read yet is an error, and r is not sent.
func (t *credentialTable) addCredentials(r *http.Request) (*http.Request, error) {
	if t.byOrigin.Load() == nil {
		return r, nil
	}
	v := t.credentialFor(r.URL.Scheme, dialHostPort(r.URL))
	if v == nil {
		return r, nil
	}
	if v.Err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a transport closes the body even when it sends nothing
		}
		return nil, v.Err
	}
	r = r.WithContext(r.Context()) // shallow copy
	header := make(http.Header, len(r.Header)+len(v.Header))
	maps.Copy(header, r.Header)
	maps.Copy(header, v.Header)
	r.Header = header
	return r, nil
}

// refreshCredentials reads every credential again and reports what changed.
func (t *credentialTable) refreshCredentials() (out []credential.RefreshResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byEntry {
		out = append(out, c.RefreshFiles())
	}
	return out
}

// certificateExpiries returns the client and CA certificates used towards workers, each file once, sorted by name.
func (t *credentialTable) certificateExpiries() (out certfile.CertExpiries) {
	t.mu.Lock()
	for _, c := range t.byEntry {
		out = append(out, c.CertExpiries()...)
	}
	t.mu.Unlock()
	slices.SortFunc(out, func(a, b certfile.CertExpiry) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b certfile.CertExpiry) bool { return a.Name == b.Name })
}

// watchCredentials reads the credential files again at credentialReadInterval until the agent stops.
func (a *Agent) watchCredentials() {
	tick := time.NewTicker(credentialReadInterval)
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

// readCredentials applies changed credential files and logs problems with them. It never logs their contents.
func (a *Agent) readCredentials(now time.Time) {
	a.workerTransports().closeRetired()
	for _, c := range a.serverNames.credentials.refreshCredentials() {
		if c.TLS {
			a.workerTransports().retireConnections() // existing connections were made with the old credentials
		}
		if c.Changed {
			a.log.Info("worker credentials reloaded")
		}
		if c.Err != nil {
			if _, ok := a.logRepeats.AllowLine("credentials", c.Err.Error(), now); ok {
				a.log.Warn("worker credentials cannot be read; the last good ones stay in use", telemetry.ErrorAttr(c.Err))
			}
		}
		for _, file := range c.ExposedFiles {
			if _, first := a.exposedFiles[file]; !first {
				a.exposedFiles[file] = struct{}{}
				a.log.Warn("a file with worker credentials is readable by every user of this machine; set its mode to 600", "file", file)
			}
		}
	}
}
