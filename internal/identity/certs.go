package identity

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/certfile"
)

// checkEvery is how often, at most, handshakes look at the files' times.
const checkEvery = time.Second

// Certs is one node's certificate and the authorities it trusts, re-read when the files change. Safe for concurrent use;
// it has no goroutine: handshakes drive it.
type Certs struct {
	files Files
	log   *slog.Logger
	now   atomic.Pointer[bundle]
	due   atomic.Int64 // next look at the files, nanoseconds of the monotonic clock since start
	start time.Time

	mu     sync.Mutex // held by the one caller that looks
	stamp  [3]stamp   // of the files in use
	warned [3]stamp   // of the files last refused, so that a bad file is logged once
}

// stamp is what tells one version of a file from another without reading it.
type stamp struct {
	mod  time.Time
	size int64
}

// Load reads the files and refuses any set that peers would refuse. A nil logger discards.
func Load(f Files, log *slog.Logger) (*Certs, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Certs{files: f, log: log, start: time.Now()}
	c.stamp = stamps(f)
	b, err := readBundle(f, time.Now())
	if err != nil {
		return nil, err
	}
	c.now.Store(b)
	c.due.Store(int64(checkEvery))
	return c, nil
}

// ID is who this node is. It never changes while the node runs.
func (c *Certs) ID() ID { return c.now.Load().id }

// Expires is when the certificate in use ends.
func (c *Certs) Expires() time.Time { return c.now.Load().cert.Leaf.NotAfter }

// Expiries are those of the files in use.
func (c *Certs) Expiries() certfile.Expiries {
	return certfile.Expiries{{Name: "tls.cert", At: c.Expires}, {Name: "tls.ca", At: c.CAExpires}}
}

// CAExpires is when the first of the authorities in use ends.
func (c *Certs) CAExpires() time.Time { return c.now.Load().caExpires }

// Reload reads the files now. On an error the certificate in use stays.
func (c *Certs) Reload() error {
	if c.files == (Files{}) { // see Internal
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reload(stamps(c.files))
}

// current is the bundle for one handshake, after a look at the files if one is due.
func (c *Certs) current() *bundle {
	at, due := int64(time.Since(c.start)), c.due.Load()
	if at >= due && c.due.CompareAndSwap(due, at+int64(checkEvery)) {
		c.look()
	}
	return c.now.Load()
}

// look re-reads the files if any changed. Certificate and key are replaced one after the other, so a pair that does not
// fit is tried again at each look and logged only once.
func (c *Certs) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := stamps(c.files)
	if s == c.stamp {
		return
	}
	if err := c.reload(s); err != nil && s != c.warned {
		c.warned = s
		c.log.Warn("new certificate files refused, keeping the ones in use", "error", err)
	}
}

func (c *Certs) reload(s [3]stamp) error {
	b, err := readBundle(c.files, time.Now())
	if err != nil {
		return err
	}
	if old := c.now.Load().id; b.id != old {
		return fmt.Errorf("reloading %s: it names %s but this node runs as %s: restart the node to change who it is", c.files.Cert, b.id, old)
	}
	c.stamp = s
	c.now.Store(b)
	c.log.Info("certificate files reloaded", "id", b.id.String(), "expires", b.cert.Leaf.NotAfter)
	return nil
}

// stamps reads the three files' times and sizes; a file that cannot be looked at has the zero stamp.
func stamps(f Files) (s [3]stamp) {
	for i, path := range []string{f.Cert, f.Key, f.CA} {
		if st, err := os.Stat(path); err == nil {
			s[i] = stamp{mod: st.ModTime(), size: st.Size()}
		}
	}
	return s
}
