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

// checkInterval is how often, at most, handshakes look at the files' times.
const checkInterval = time.Second

// Certs is one node's certificate and the authorities it trusts, re-read when the files change. Safe for concurrent use;
// it has no goroutine: handshakes drive it.
type Certs struct {
	files     CertFiles
	log       *slog.Logger
	current   atomic.Pointer[certBundle]
	nextCheck atomic.Int64 // next look at the files, nanoseconds of the monotonic clock since start
	startedAt time.Time

	mu           sync.Mutex   // held by the one caller that looks
	stamp        [3]fileStamp // of the files in use
	refusedStamp [3]fileStamp // of the files last refused, so that a bad file is logged once
}

// fileStamp is what tells one version of a file from another without reading it.
type fileStamp struct {
	modTime time.Time
	size    int64
}

// LoadCerts reads the files and refuses any set that peers would refuse. A nil logger discards.
func LoadCerts(f CertFiles, log *slog.Logger) (*Certs, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Certs{files: f, log: log, startedAt: time.Now()}
	c.stamp = readStamps(f)
	b, err := readBundle(f, time.Now())
	if err != nil {
		return nil, err
	}
	c.current.Store(b)
	c.nextCheck.Store(int64(checkInterval))
	return c, nil
}

// ID is who this node is. It never changes while the node runs.
func (c *Certs) ID() ID { return c.current.Load().id }

// Expires is when the certificate in use ends.
func (c *Certs) Expires() time.Time { return c.current.Load().cert.Leaf.NotAfter }

// Expiries are those of the files in use.
func (c *Certs) Expiries() certfile.CertExpiries {
	return certfile.CertExpiries{{Name: "tls.cert", EndsAt: c.Expires}, {Name: "tls.ca", EndsAt: c.CAExpires}}
}

// CAExpires is when the first of the authorities in use ends.
func (c *Certs) CAExpires() time.Time { return c.current.Load().caExpires }

// Reload reads the files now. On an error the certificate in use stays.
func (c *Certs) Reload() error {
	if c.files == (CertFiles{}) { // see Internal
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reloadBundle(readStamps(c.files))
}

// currentBundle is the bundle for one handshake, after a look at the files if one is due.
func (c *Certs) currentBundle() *certBundle {
	at, due := int64(time.Since(c.startedAt)), c.nextCheck.Load()
	if at >= due && c.nextCheck.CompareAndSwap(due, at+int64(checkInterval)) {
		c.checkFiles()
	}
	return c.current.Load()
}

// checkFiles re-reads the files if any changed. Certificate and key are replaced one after the other, so a pair that does not
// fit is tried again at each look and logged only once.
func (c *Certs) checkFiles() {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := readStamps(c.files)
	if s == c.stamp {
		return
	}
	if err := c.reloadBundle(s); err != nil && s != c.refusedStamp {
		c.refusedStamp = s
		c.log.Warn("new certificate files refused, keeping the ones in use", "error", err)
	}
}

func (c *Certs) reloadBundle(s [3]fileStamp) error {
	b, err := readBundle(c.files, time.Now())
	if err != nil {
		return err
	}
	if old := c.current.Load().id; b.id != old {
		return fmt.Errorf("reloading %s: it names %s but this node runs as %s: restart the node to change who it is", c.files.Cert, b.id, old)
	}
	c.stamp = s
	c.current.Store(b)
	c.log.Info("certificate files reloaded", "id", b.id.String(), "expires", b.cert.Leaf.NotAfter)
	return nil
}

// readStamps reads the three files' times and sizes; a file that cannot be looked at has the zero stamp.
func readStamps(f CertFiles) (s [3]fileStamp) {
	for i, path := range []string{f.Cert, f.Key, f.CA} {
		if st, err := os.Stat(path); err == nil {
			s[i] = fileStamp{modTime: st.ModTime(), size: st.Size()}
		}
	}
	return s
}
